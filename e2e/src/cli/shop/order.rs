//! `saga order` and `saga cancel`.

use std::cell::Cell;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use e2e::Shop;
use e2e::scenario::{self, order_body};
use e2e::shop::problem;
use e2e::stack::Service;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use super::show::{BAD, GOOD, TITLE, WARNING, columns, show, show_json, styled};
use super::{Exit, On, Several, resolve};
use crate::cli::say::say;

/// Places an order and waits for its end.
///
/// Ends with 0 if the order was shipped, with 4 if it ended otherwise.
#[derive(Args)]
#[command(after_help = "\
Products: KEYBOARD, MOUSE, MONITOR, HEADSET, LAST_ONE (one piece), UNICORN (none)

Examples:
  cargo saga order
  cargo saga order UNICORN
  cargo saga order MOUSE --quantity 3 --payment pm_flaky_2 --correlation-id my-first")]
pub(crate) struct OrderArguments {
    /// What is ordered.
    #[arg(default_value = "KEYBOARD")]
    sku: String,
    /// How many pieces.
    #[arg(long, short, default_value_t = 1)]
    quantity: i64,
    /// How it is paid: a value of the sandbox's provider.
    #[arg(long, default_value = "pm_ok", value_parser = PAYMENTS)]
    payment: String,
    /// How it is sent: a value of the sandbox's carrier.
    #[arg(long, default_value = "standard", value_parser = SHIPPINGS)]
    shipping: String,
    /// So many orders at once.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    count: u16,
    /// Find it again by this in logs and in Jaeger; without it, the order's id.
    #[arg(long, value_parser = correlation_id)]
    correlation_id: Option<String>,
    /// The idempotency key; without it, a new one.
    #[arg(long, value_parser = visible)]
    key: Option<String>,
    /// Do not wait for the end.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    on: On,
}

/// What the sandbox's provider knows; anything else it would decline.
const PAYMENTS: [&str; 9] = [
    "pm_ok",
    "pm_declined",
    "pm_timeout",
    "pm_timeout_charged",
    "pm_timeout_late",
    "pm_flaky_2",
    "pm_flaky_2_declined",
    "pm_rate_limited",
    "pm_refund_fails",
];
/// What its carrier knows.
const SHIPPINGS: [&str; 8] = [
    "standard",
    "rejected",
    "timeout",
    "timeout_created",
    "timeout_late",
    "flaky_2",
    "flaky_2_rejected",
    "cancel_fails",
];

/// What can stand in a header.
fn visible(text: &str) -> Result<String, String> {
    let is_fine = (1..=255).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_fine.then(|| text.to_owned()).ok_or_else(|| "1 to 255 visible ASCII characters".to_owned())
}

/// What the services take as one.
fn correlation_id(text: &str) -> Result<String, String> {
    let is_fine = (1..=128).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte));
    is_fine.then(|| text.to_owned()).ok_or_else(|| "1 to 128 of A-Z a-z 0-9 . _ : -".to_owned())
}

/// Cancels an order, as its customer.
///
/// Ends with 0 if it is being undone, with 4 if it is too late for that.
#[derive(Args)]
pub(crate) struct CancelArguments {
    /// The id of the order, of its saga, of one of its messages, or its correlation id.
    id: String,
    #[command(flatten)]
    on: On,
}

/// As many as the service takes in at once without refusing some.
const AT_ONCE: usize = 50;
/// Of so many orders the ids are told before they have ended.
const LISTED: usize = 10;
/// Orders whose end is waited for at once: each is asked for again and again.
const WATCHED_AT_ONCE: usize = 10;
pub(super) const UNDER_WAY: [&str; 2] = ["pending", "cancelling"];
/// How often an order is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// When it is first said how many have ended; after that, each time when twice as much has passed.
const FIRST_WORD: Duration = Duration::from_secs(5);
const PERSON: &str = "README, \"When a person is needed\"";
const ENDS_WITHIN: Duration = Duration::from_secs(90);

pub(crate) async fn order(arguments: OrderArguments) -> anyhow::Result<ExitCode> {
    let shop = Shop::find(arguments.on.on).await?;
    let OrderArguments { sku, quantity, payment, shipping, count, correlation_id, key, no_wait, on } = arguments;
    let count = usize::from(count);
    let body = order_body(&scenario::Order { sku, quantity, payment, shipping, count, ..scenario::Order::default() });
    let key = key.unwrap_or_else(|| format!("cli-{:016x}", rand::random::<u64>()));
    let numbers = stream::iter(0..count).map(|number| {
        let key = if count == 1 { key.clone() } else { format!("{key}-{number}") };
        place(&shop, &body, key, correlation_id.as_deref())
    });
    // What was accepted is told, whatever became of the others.
    let (placed, refused): (Vec<_>, Vec<_>) =
        numbers.buffered(AT_ONCE).collect::<Vec<_>>().await.into_iter().partition(Result::is_ok);
    let placed: Vec<Value> = placed.into_iter().flatten().collect();
    let orders = match no_wait {
        true => placed,
        false => {
            if !on.json {
                tell_accepted(&placed);
            }
            ends(&shop, &placed).await?
        }
    };
    if on.json {
        let refused = refused.iter().filter_map(|refused| refused.as_ref().err());
        let refused: Vec<Value> = refused.map(|error| json!({"error": format!("{error:#}")})).collect();
        show_json(&[orders.as_slice(), refused.as_slice()].concat())?;
        if !refused.is_empty() {
            return Ok(Exit::Failed.into());
        }
    } else {
        for order in &orders {
            tell(order);
        }
    }
    let several = refused.len();
    if let Some(Err(error)) = refused.into_iter().next() {
        return Err(if count == 1 {
            error
        } else {
            error.context(format!("{several} of {count} orders were not taken"))
        });
    }
    if !on.json && orders.iter().any(|order| UNDER_WAY.iter().any(|status| order["status"] == *status)) && !no_wait {
        tell_what_is_broken(&shop).await?;
    }
    let shipped = no_wait || orders.iter().all(|order| order["status"] == "completed");
    Ok(if shipped { Exit::Good } else { Exit::Otherwise }.into())
}

pub(crate) async fn cancel(arguments: CancelArguments) -> anyhow::Result<ExitCode> {
    let shop = Shop::find(arguments.on.on).await?;
    let id = resolve(&shop, &arguments.id, Several::Refused).await?.order_id;
    let answer = shop.client(Service::Order)?.post(&format!("/orders/{id}/cancel"), &json!({}), "cancel").await?;
    if arguments.on.json {
        show_json(&answer.body)?;
    } else if answer.status == 202 {
        show(format!("order {id} is {}", answer.body["status"].as_str().unwrap_or("being cancelled")));
        show(format!("next  cargo saga timeline {id}"));
    } else {
        show(styled(BAD, problem(&answer)));
    }
    // Too late is an answer; everything else is none.
    Ok(match answer.status {
        202 => Exit::Good,
        409 => Exit::Otherwise,
        _ => Exit::Failed,
    }
    .into())
}

async fn place(shop: &Shop, body: &Value, key: String, correlation_id: Option<&str>) -> anyhow::Result<Value> {
    let answer = shop.order(body, &key, correlation_id).await;
    let answer = answer.with_context(|| format!("the order with the key {key}: repeat it with --key"))?;
    if answer.status != 202 {
        bail!("the order is refused: {}", problem(&answer));
    }
    Ok(answer.body)
}

/// Who stops waiting has their ids.
fn tell_accepted(placed: &[Value]) {
    for order in placed.iter().take(LISTED) {
        say(format!("order {} is accepted", order["orderId"].as_str().unwrap_or_default()));
    }
    if placed.len() > LISTED {
        say(format!("and {} more", placed.len() - LISTED));
    }
}

/// The orders as they have ended, and says now and then how many have.
async fn ends(shop: &Shop, placed: &[Value]) -> anyhow::Result<Vec<Value>> {
    let (begin, ended) = (Instant::now(), Cell::new(0));
    let watch = async |placed| {
        let seen = end(shop, placed, begin).await;
        ended.set(ended.get() + 1);
        seen
    };
    let all = stream::iter(placed).map(watch).buffered(WATCHED_AT_ONCE).try_collect();
    tokio::pin!(all);
    let mut told = FIRST_WORD;
    loop {
        tokio::select! {
            done = &mut all => return done,
            () = sleep_until(begin + told) => {
                say(format!("... {} of {} orders have ended, {} s so far", ended.get(), placed.len(), told.as_secs()));
                told *= 2;
            }
        }
    }
}

/// The order as it has ended, as it waits for a person, or as it was when we stopped waiting.
async fn end(shop: &Shop, placed: &Value, begin: Instant) -> anyhow::Result<Value> {
    let id = placed["orderId"].as_str().context("the id of an accepted order")?;
    let path = format!("/orders/{id}");
    let mut seen = placed.clone();
    loop {
        // A service that is away for a moment ends no order.
        if let Ok(answer) = shop.get(Service::Order, &path).await {
            seen = answer.body;
        }
        let is_under_way = UNDER_WAY.iter().any(|status| seen["status"] == *status);
        if !is_under_way || begin.elapsed() > ENDS_WITHIN {
            return Ok(seen);
        }
        sleep(LOOK).await;
    }
}

/// Why orders may not end.
async fn tell_what_is_broken(shop: &Shop) -> anyhow::Result<()> {
    let parts = shop.disturbed().await?.into_iter().map(|(part, act)| format!("{part} ({act})"));
    let broken: Vec<String> = parts.chain(shop.switched_on().await?).collect();
    if !broken.is_empty() {
        show(styled(WARNING, format!(" broken on request: {}; `cargo saga mend` takes it back", broken.join(", "))));
    }
    Ok(())
}

/// Shows an order for people.
fn tell(order: &Value) {
    let text = |field: &str| order[field].as_str().unwrap_or_default().to_owned();
    let status = text("status");
    let style = match status.as_str() {
        "completed" => GOOD,
        "needs_attention" => WARNING,
        "pending" | "cancelling" => TITLE,
        _ => BAD,
    };
    let reason = order["reason"]["code"].as_str().map(|code| format!(" ({code})")).unwrap_or_default();
    let mut rows = vec![
        ["order".to_owned(), text("orderId")],
        ["status".to_owned(), format!("{}{reason}", styled(style, &status))],
        ["saga".to_owned(), text("sagaId")],
        ["correlation id".to_owned(), text("correlationId")],
    ];
    if let Some(trace) = order["links"]["trace"].as_str() {
        rows.push(["trace".to_owned(), trace.to_owned()]);
    }
    rows.push(["next".to_owned(), format!("cargo saga timeline {}", text("orderId"))]);
    columns(rows);
    match status.as_str() {
        "needs_attention" => show(styled(WARNING, format!(" its undo waits for a person: {PERSON}"))),
        _ if UNDER_WAY.contains(&status.as_str()) => {
            show(styled(TITLE, " it is not at its end yet, and goes on by itself"))
        }
        _ => {}
    }
}
