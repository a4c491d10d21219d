//! What the tests of the saga share: placing orders, waiting for their end, and the books that must balance after
//! each of them. The books are the third parties' and the participants' own rows, not what the orchestrator says.

use std::time::Duration;

use anyhow::{Context as _, ensure};
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
    let request = client.request(Method::PUT, &format!("/switches/{name}")).json(&json!({"rate": rate, "seed": 1}));
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

/// Waits until nothing is under way any more, then checks the books: money, stock, parcels and mailboxes.
pub(crate) async fn books_balance(stack: &Stack) -> anyhow::Result<()> {
    books_balance_with(stack, 0).await
}

/// The same, where the test has parked messages.
pub(crate) async fn books_balance_with(stack: &Stack, parked: i64) -> anyhow::Result<()> {
    eventually(SOON, "nothing is under way", async || {
        let open = stack.database.rows(UNDER_WAY).await?;
        Ok(if open.is_empty() { State::Reached(()) } else { State::pending(open) })
    })
    .await?;
    let kept = stack.database.value(PARKED).await?;
    ensure!(kept == json!(parked), "{kept} messages are parked, {parked} expected");
    for (what, violations) in CHECKS {
        let rows = stack.database.rows(violations).await?;
        ensure!(rows.is_empty(), "{what}: {rows:#?}");
    }
    Ok(())
}

/// Unpublished rows, messages that wait or retry, and sagas that are neither ended nor with a person. A shipped order
/// is under way until inventory has heard of it.
const UNDER_WAY: &str = "
    select 'outbox' as what, event_type as which from orders.outbox
    union all select 'outbox', event_type from payments.outbox
    union all select 'outbox', event_type from inventory.outbox
    union all select 'outbox', event_type from shipping.outbox
    union all select 'inbox', message_type from orders.inbox where status in ('waiting', 'retrying')
    union all select 'inbox', message_type from payments.inbox where status in ('waiting', 'retrying')
    union all select 'inbox', message_type from inventory.inbox where status in ('waiting', 'retrying')
    union all select 'inbox', message_type from shipping.inbox where status in ('waiting', 'retrying')
    union all select 'saga', id::text from orders.sagas where state in ('running', 'compensating')
    union all select 'reservation', r.saga_id::text from inventory.reservations r
        join orders.sagas s on s.id = r.saga_id where s.state = 'completed' and r.status = 'reserved'
    union all select 'late effect', key from sandbox.late_effects";

const PARKED: &str = "
    select (select count(*) from orders.inbox where status = 'parked')
         + (select count(*) from payments.inbox where status = 'parked')
         + (select count(*) from inventory.inbox where status = 'parked')
         + (select count(*) from shipping.inbox where status = 'parked')";

/// Each lists what breaks the rule.
const CHECKS: &[(&str, &str)] = &[
    (
        "a shipped order is paid once and in full, a cancelled one not at all",
        "select o.id, s.state, o.total_amount, coalesce(l.shop, 0) as shop from orders.orders o
         join orders.sagas s on s.order_id = o.id
         left join (select order_id, sum(amount) as shop from sandbox.ledger where account = 'shop' group by order_id) l
             on l.order_id = o.id::text
         where coalesce(l.shop, 0) <> case s.state when 'completed' then o.total_amount else 0 end
           and s.state in ('completed', 'cancelled')",
    ),
    (
        "nobody is charged or refunded twice",
        "select key, effect, count(*) from sandbox.ledger where account = 'shop' group by key, effect having count(*) > 1",
    ),
    (
        "the ledger sums to zero",
        "select sum(amount) from sandbox.ledger where account in ('customer', 'shop')
         having coalesce(sum(amount), 0) <> 0",
    ),
    (
        "a shipped order has one parcel, a cancelled one none",
        "select o.id, s.state, coalesce(l.parcels, 0) as parcels from orders.orders o
         join orders.sagas s on s.order_id = o.id
         left join (select order_id, sum(case effect when 'ship' then 1 when 'recall' then -1 else 0 end) as parcels
                    from sandbox.ledger where account = 'parcel' group by order_id) l on l.order_id = o.id::text
         where coalesce(l.parcels, 0) <> case s.state when 'completed' then 1 else 0 end
           and s.state in ('completed', 'cancelled')",
    ),
    (
        "stock is conserved and nothing stays reserved for an order that has ended",
        "select sku, available, reserved, shipped, received from inventory.stock s
         where received <> available + reserved + shipped or available < 0
            or reserved <> (select coalesce(sum((l ->> 'quantity')::bigint), 0) from inventory.reservations r,
                jsonb_array_elements(r.lines) l where r.status = 'reserved' and l ->> 'sku' = s.sku)
            or shipped <> (select coalesce(sum((l ->> 'quantity')::bigint), 0) from inventory.reservations r,
                jsonb_array_elements(r.lines) l where r.status = 'committed' and l ->> 'sku' = s.sku)",
    ),
    (
        "the participants' records agree with the saga's end",
        "select s.id, s.state, p.status as payment, r.status as reservation, t.status as shipment from orders.sagas s
         left join payments.payments p on p.saga_id = s.id
         left join inventory.reservations r on r.saga_id = s.id
         left join shipping.shipments t on t.saga_id = s.id
         where (s.state = 'completed'
                and (p.status, r.status, t.status) is distinct from ('captured', 'committed', 'created'))
            or (s.state = 'cancelled' and (p.status = 'captured' or r.status in ('reserved', 'committed')
                or t.status = 'created'))",
    ),
    (
        "every saga has an order and every order a saga",
        "select o.id from orders.orders o full join orders.sagas s on s.order_id = o.id
         where o.id is null or s.id is null",
    ),
    (
        "no session is left in a transaction",
        "select pid, application_name, state from pg_stat_activity
         where datname = current_database() and state like 'idle in transaction%'
           and now() - state_change > interval '2 seconds'",
    ),
];
