//! Two instances of each service: one relay leads, both consume, and whoever is left does all of it.

use std::time::Instant;

use anyhow::Context as _;
use e2e::stack::Process;
use e2e::{Service, Stack, State, eventually};
use futures::future::{join_all, try_join_all};
use serde_json::{Value, json};

use crate::races::all_end;
use crate::shop::{SOON, books_balance, order, patient, place};

const TWICE: [Service; 4] = [Service::Order, Service::Payment, Service::Inventory, Service::Shipping];

/// What its relay says.
async fn relay(process: &Process) -> anyhow::Result<String> {
    let ready = process.client()?.ops_get("/health/ready").await?.body;
    let loops = ready["loops"].as_array().cloned().unwrap_or_default();
    let relay = loops.into_iter().find(|one| one["name"] == "relay").context("a relay")?;
    Ok(relay["state"].as_str().unwrap_or_default().to_owned())
}

async fn leads(process: &Process) -> anyhow::Result<()> {
    eventually(SOON, &format!("the relay of {} works", process.name()), async || {
        let state = relay(process).await?;
        Ok(if state == "working" { State::Reached(()) } else { State::pending(state) })
    })
    .await
}

#[tokio::test]
async fn two_of_each_service_share_the_work_and_take_over_from_each_other() -> anyhow::Result<()> {
    let stack = Stack::start(patient()).await?;
    let others = try_join_all(TWICE.map(|service| stack.another(service))).await?;
    for other in &others {
        assert_eq!(relay(other).await?, "standby", "{}: the first one leads", other.name());
    }
    let keyboard = order("KEYBOARD", 1, "pm_ok", "standard");
    let crowd = |count: usize| join_all((0..count).map(|_| place(&stack, &keyboard)));
    for (service, other) in TWICE.into_iter().zip(&others) {
        // Orders that are under way when one of the two dies.
        let placed = crowd(10).await.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        assert_eq!(placed.len(), 10);
        let begin = Instant::now();
        stack.process(service).kill().await?;
        leads(other).await?;
        eprintln!("{} took over after {} ms", other.name(), begin.elapsed().as_millis());
        stack.process(service).restart().await?;
        let placed = crowd(10).await.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        assert_eq!((placed.len(), relay(stack.process(service)).await?.as_str()), (10, "standby"));
    }
    assert_eq!(all_end(&stack).await?, json!({"completed": 80}));
    // Both have worked.
    for other in &others {
        let figures = other.client()?.ops_get("/metrics").await?.text;
        let is_done = |line: &&str| line.starts_with("messaging_handled_total") && line.contains("outcome=\"done\"");
        let done: f64 =
            figures.lines().filter(is_done).filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum();
        assert!(done > 0.0, "{}: {figures}", other.name());
    }
    books_balance(&stack).await
}

#[tokio::test]
async fn a_deadline_that_two_instances_see_is_acted_on_once() -> anyhow::Result<()> {
    let stack = Stack::start(patient().set(Service::Order, "STEP_DEADLINE_MS", "1500")).await?;
    let other = stack.another(Service::Order).await?;
    stack.payment().pause()?;
    for _ in 0..20 {
        place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    }
    let undone = "select count(*) from orders.saga_steps where step = 'payment' and direction = 'undo'";
    eventually(SOON, "every payment is undone", async || {
        let count = stack.database.value(undone).await?;
        Ok(if count == json!(20) { State::Reached(()) } else { State::pending(count) })
    })
    .await?;
    stack.payment().resume()?;
    assert_eq!(all_end(&stack).await?, json!({"cancelled": 20}));
    let asked: Value = stack.database.value("select max(attempts) from orders.saga_steps").await?;
    assert_eq!(asked, json!(1));
    let commands = "select count(*) from orders.outbox_history where event_type = 'RefundPayment'";
    assert_eq!(stack.database.value(commands).await?, json!(20));
    books_balance(&stack).await?;
    drop(other);
    Ok(())
}
