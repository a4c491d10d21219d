//! The scenarios of `cargo saga scenario`, each on a stack of its own. Afterwards the books must balance as well.

use std::rc::Rc;

use anyhow::{Context as _, ensure};
use e2e::scenario::{Runner, find, names, read};
use e2e::shop::{Hands, Shop};
use e2e::{Servers, Service, Settings, Stack};

use crate::shop::{books_balance, comes_to, order, patient, place};

/// One test for each file, of the file's name.
macro_rules! scenarios {
    ($($test:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $test() -> anyhow::Result<()> {
                play(stringify!($test)).await
            }
        )*

        const TESTS: &[&str] = &[$(stringify!($test)),*];
    };
}

scenarios![
    happy,
    out_of_stock,
    payment_declined,
    payment_timeout,
    payment_timeout_charged,
    payment_timeout_late,
    payment_flaky,
    payment_rate_limited,
    shipping_flaky,
    shipping_timeout,
    shipping_timeout_created,
    shipping_timeout_late,
    shipping_rejected,
    refund_fails,
    cancel_fails_settled,
    customer_cancel_payment,
    customer_cancel_inventory,
    customer_cancel_shipping,
    duplicate_message,
    late_answer,
    undo_before_do,
    broker_down,
    service_down,
    database_down,
    last_piece,
    poison_message,
];

#[test]
fn every_scenario_is_a_test() {
    let tests: Vec<String> = TESTS.iter().map(|test| test.replace('_', "-")).collect();
    assert_eq!(tests, names().collect::<Vec<_>>());
}

#[tokio::test]
async fn what_a_scenario_broke_is_whole_again_when_it_fails() -> anyhow::Result<()> {
    let steps = r#"{ freeze = "inventory" }, { kill = "payment" }, { switch = { name = "carrier_slow" } }, { retry = "payment" }"#;
    let scenario = read("broken", &format!("about = ''\nsteps = [{steps}]\n[expect]\norder = 'completed'"))?;
    let stack = Rc::new(Stack::start(Settings::default()).await?);
    let shop = shop_of(&stack)?;
    let failed = Runner::new(&shop).run(&scenario, drop).await.unwrap_err().to_string();
    assert!(failed.contains("retry"), "nobody was asked whose payment could be retried: {failed}");
    let switches = stack.sandbox().client()?.ops_get("/ops/switches").await?;
    assert_eq!(switches.body["switches"].as_array().map(Vec::len), Some(0), "{}", switches.text);
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &placed, "completed").await?;
    books_balance(&stack).await
}

async fn play(test: &str) -> anyhow::Result<()> {
    let name = test.replace('_', "-");
    let scenario = find(&name)?.pop().context("a scenario of this name")?;
    // Who kills a server has one of his own.
    let kills = matches!(test, "broker_down" | "database_down");
    let servers = if kills { Some(Servers::start().await?) } else { None };
    // On a busy machine a third party that answers may take longer than a second; one that does not is given up.
    let mut settings = if test.contains("timeout") { giving_up() } else { patient() };
    if let Some(servers) = &servers {
        settings = settings.on(servers.coordinates());
    }
    let stack = Rc::new(Stack::start(settings).await?);
    let shop = Hands { stack: stack.clone(), servers: servers.map(Rc::new) }.shop()?;
    let mut told = Vec::new();
    let report = Runner::new(&shop).run(&scenario, |step| told.push(step)).await?;
    let wrong: Vec<_> = report.checks.iter().filter(|check| !check.is_as_expected()).collect();
    ensure!(wrong.is_empty(), "{name}: {wrong:#?} after {told:#?}");
    books_balance(&stack).await
}

/// Two seconds for each attempt, and what is late comes after the last of them.
pub(crate) fn giving_up() -> Settings {
    let settings =
        Settings::default().set(Service::Sandbox, "TIMEOUT_MS", "4000").set(Service::Sandbox, "LATE_MS", "20000");
    settings.set(Service::Payment, "CALL_TIMEOUT_MS", "2000").set(Service::Shipping, "CALL_TIMEOUT_MS", "2000")
}

/// The shop that this stack is, for scenarios that kill no server.
pub(crate) fn shop_of(stack: &Rc<Stack>) -> anyhow::Result<Shop> {
    Hands { stack: stack.clone(), servers: None }.shop()
}
