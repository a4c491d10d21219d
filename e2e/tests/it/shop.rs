//! What the tests of the saga share: placing orders, waiting for their end, and the audit after each of them.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use e2e::audit::{Sources, Verdict, audit};
use e2e::scenario::{Order, order_body};
use e2e::{Service, Settings, Stack, State, eventually};
use reqwest::Method;
use serde_json::{Value, json};

/// Long enough for every retry of a step on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// An order that was accepted.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) order: String,
    pub(crate) saga: String,
    pub(crate) correlation: String,
    pub(crate) trace: String,
}

/// Settings under which steps fail fast.
pub(crate) fn impatient() -> Settings {
    let mut settings = Settings::default();
    for service in [Service::Payment, Service::Shipping] {
        settings = settings.set(service, "CALL_TIMEOUT_MS", "500").set(service, "CALL_BACKOFF_MS", "50");
    }
    settings
}

/// Settings under which a third party may be slow: for crowds on a busy machine.
pub(crate) fn patient() -> Settings {
    let settings = Settings::default();
    [Service::Payment, Service::Shipping]
        .into_iter()
        .fold(settings, |s, service| s.set(service, "CALL_TIMEOUT_MS", "10000"))
}

/// The body of an order.
pub(crate) fn order(sku: &str, quantity: i64, method: &str, service: &str) -> Value {
    let [sku, payment, shipping] = [sku, method, service].map(str::to_owned);
    order_body(&Order { sku, quantity, payment, shipping, ..Order::default() })
}

/// Places an order under a key of its own.
pub(crate) async fn place(stack: &Stack, body: &Value) -> anyhow::Result<Placed> {
    place_under(stack, body, &format!("key-{:016x}", rand::random::<u64>())).await
}

/// Places an order.
pub(crate) async fn place_under(stack: &Stack, body: &Value, key: &str) -> anyhow::Result<Placed> {
    // As a client does: not now is no answer, and the key makes repeating harmless.
    let answer = eventually(SOON, "the order is accepted", async || {
        let answer = stack.order().post("/orders", body, key).await?;
        Ok(match answer.status {
            202 => State::Reached(answer),
            503 => State::Pending(answer.text),
            _ => State::Lost(format!("{} {}", answer.status, answer.text)),
        })
    })
    .await?;
    let text = |field: &str| answer.body[field].as_str().map(str::to_owned).with_context(|| format!("no {field}"));
    Ok(Placed {
        order: text("orderId")?,
        saga: text("sagaId")?,
        correlation: text("correlationId")?,
        trace: text("traceId")?,
    })
}

/// Waits until an order has this status, and returns it.
pub(crate) async fn comes_to(stack: &Stack, placed: &Placed, status: &str) -> anyhow::Result<Value> {
    let path = format!("/orders/{}", placed.order);
    eventually(SOON, &format!("order {} is {status}", placed.order), async || {
        let answer = stack.order().get(&path).await?;
        Ok(if answer.body["status"] == status { State::Reached(answer.body) } else { State::pending(answer.body) })
    })
    .await
}

/// The status of a step's row in the answer about an order.
pub(crate) fn step<'a>(order: &'a Value, step: &str, direction: &str) -> &'a Value {
    let steps = order["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    steps.iter().find(|row| row["step"] == step && row["direction"] == direction).unwrap_or(&Value::Null)
}

/// Sets a switch of the sandbox.
pub(crate) async fn switch(stack: &Stack, name: &str, rate: f64) -> anyhow::Result<()> {
    let client = stack.sandbox().client()?;
    let request =
        client.ops_request(Method::PUT, &format!("/ops/switches/{name}")).json(&json!({"rate": rate, "seed": 1}));
    let answer = e2e::stack::client::send(request).await?;
    ensure!(answer.status < 300, "switch {name}: {} {}", answer.status, answer.text);
    Ok(())
}

/// Posts to an operators' route of the order service.
pub(crate) async fn operate(
    stack: &Stack,
    placed: &Placed,
    verb: &str,
    step: &str,
    dry_run: bool,
) -> anyhow::Result<(u16, Value)> {
    let body = json!({"step": step, "reason": "the provider was called", "actor": "ada", "dryRun": dry_run});
    let answer = stack.order().client()?.ops_post(&format!("/ops/sagas/{}/{verb}", placed.saga), &body).await?;
    Ok((answer.status, answer.body))
}

/// Waits until a queue has no message.
pub(crate) async fn queue_is_empty(stack: &Stack, queue: &str) -> anyhow::Result<()> {
    let path = format!("queues/{}/{queue}", stack.vhost.name());
    eventually(SOON, &format!("{queue} is empty"), async || {
        // The management API counts with a delay: what it has never counted is not known to be empty.
        let seen = stack.vhost.call(Method::GET, &path, None).await?;
        let waiting = seen["messages"].as_i64();
        Ok(if waiting == Some(0) { State::Reached(()) } else { State::pending(seen["messages"].clone()) })
    })
    .await
}

/// Waits until nothing is under way any more, then looks whether everything agrees, as `cargo saga audit` does.
pub(crate) async fn books_balance(stack: &Stack) -> anyhow::Result<()> {
    books_balance_with(stack, 0).await
}

/// The same, where the test has parked messages.
pub(crate) async fn books_balance_with(stack: &Stack, parked: i64) -> anyhow::Result<()> {
    let orders = stack.order().client().ok();
    let database = stack.auditor_url();
    let report = audit(&Sources { database: &database, orders: orders.as_ref(), shop: None }, Some(SOON)).await?;
    ensure!(report.under_way.is_empty(), "still under way: {:#?}", report.under_way);
    let kept = stack.database.value(PARKED).await?;
    ensure!(kept == json!(parked), "{kept} messages are parked, {parked} expected");
    // Some tests place no order, and say so by what they look at.
    let violated = report.invariants.iter().filter(|one| one.verdict == Verdict::Violated && one.id != "I13");
    let violated: Vec<_> = violated.collect();
    ensure!(violated.is_empty(), "{violated:#?}");
    Ok(())
}

const PARKED: &str = "
    select (select count(*) from orders.inbox where status = 'parked')
         + (select count(*) from payments.inbox where status = 'parked')
         + (select count(*) from inventory.inbox where status = 'parked')
         + (select count(*) from shipping.inbox where status = 'parked')";
