//! What the customers saw beside what the books say, and what was sent beside what came out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::history::{Request, Wanted};
use super::plan::Plan;
use super::spy::Spy;
use super::wish::{Fate, Wish};
use crate::audit::Violation;
use crate::stack::database::Database;

/// What was confirmed is in the spy's queue; it may be some seconds behind.
const HEARD_WITHIN: Duration = Duration::from_secs(20);
/// Of what is lost, so many are named.
const NAMED: usize = 10;

const ORDERS: &str = "
    select k.key, o.id::text as id, s.state, s.reason_code as reason
    from orders.orders o join orders.sagas s on s.order_id = o.id
    left join orders.idempotency_keys k on k.body ->> 'orderId' = o.id::text";

const SENT: &str = "
    select event_id::text as id from orders.outbox_history union all
    select event_id::text from payments.outbox_history union all
    select event_id::text from inventory.outbox_history union all
    select event_id::text from shipping.outbox_history";

const MESSAGES: &str = "
    with inboxes as (
        select status, repeats from orders.inbox union all select status, repeats from payments.inbox union all
        select status, repeats from inventory.inbox union all select status, repeats from shipping.inbox)
    select coalesce(sum(repeats), 0)::bigint as repeats,
           count(*) filter (where status in ('parked', 'discarded')) as parked from inboxes";

/// An order as the books have it.
pub(super) struct Booked {
    key: Option<String>,
    id: String,
    pub(super) state: String,
    pub(super) reason: Option<String>,
}

/// All orders.
pub(super) async fn booked(database: &Database) -> anyhow::Result<Vec<Booked>> {
    let rows = database.rows(ORDERS).await?;
    let text = |row: &Value, field: &str| row[field].as_str().map(str::to_owned);
    let booked = |row: &Value| Booked {
        key: text(row, "key"),
        id: text(row, "id").unwrap_or_default(),
        state: text(row, "state").unwrap_or_default(),
        reason: text(row, "reason"),
    };
    Ok(rows.iter().map(booked).collect())
}

/// Whether each answer that a customer got is true, and each customer got one.
pub(super) fn customers(plan: &Plan, requests: &[Request], orders: &[Booked]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut wrong = |order: Option<&str>, what: &str, rows: Value| {
        found.push(Violation { order: order.map(str::to_owned), what: what.to_owned(), rows });
    };
    let by_id: BTreeMap<&str, &Booked> = orders.iter().map(|order| (order.id.as_str(), order)).collect();
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    for request in requests {
        let rows = || json!({"request": request});
        match (request.wanted, request.status) {
            (Wanted::Order | Wanted::Repeat, Some(202)) => {
                let id = request.order.as_deref().unwrap_or_default();
                let Some(order) = by_id.get(id) else {
                    wrong(Some(id), "each accepted order exists", rows());
                    continue;
                };
                if order.key.as_deref() != Some(&request.key) || *known.entry(&request.key).or_insert(id) != id {
                    wrong(Some(id), "each key has one order", rows());
                }
            }
            (Wanted::Cancel, Some(202)) => {
                let id = request.order.as_deref().unwrap_or_default();
                if by_id.get(id).is_none_or(|order| order.state == "completed") {
                    wrong(Some(id), "what a customer has cancelled is not shipped", rows());
                }
            }
            // Shipped already.
            (Wanted::Cancel, Some(409)) | (_, None) => {}
            (_, Some(503)) if request.retry_after => {}
            (_, Some(503)) => wrong(None, "each 503 says when to come again", rows()),
            (_, Some(_)) => wrong(None, "a good client gets 202, or 503 for now", rows()),
        }
    }
    let ids: BTreeSet<&str> = known.values().copied().collect();
    if ids.len() != known.len() {
        wrong(None, "no two keys have one order", json!({"keys": known.len(), "orders": ids.len()}));
    }
    for order in orders {
        let key = order.key.as_deref().unwrap_or_default();
        let rows = || json!({"key": order.key, "state": order.state, "reason": order.reason});
        let Some(number) = key.strip_prefix("chaos-").and_then(|number| number.parse().ok()) else {
            wrong(Some(&order.id), "each order is one that a customer wanted", rows());
            continue;
        };
        if !["completed", "cancelled"].contains(&order.state.as_str()) {
            wrong(Some(&order.id), "each order ends, and nobody settles it", rows());
        }
        if order.state == "completed" && Wish::of(plan, number).fate == Fate::Lost {
            wrong(Some(&order.id), "what is declined, refused or out of stock is not shipped", rows());
        }
    }
    found
}

/// What became of the messages.
pub(super) struct Messages {
    pub(super) lost: usize,
    pub(super) unexpected: usize,
    pub(super) sent: usize,
    /// Published more than once by the shop.
    pub(super) sent_again: u64,
    /// Copies and new ids of ours.
    pub(super) ours: u64,
    /// Recognised by the inboxes as seen before.
    pub(super) recognised: i64,
    pub(super) parked: i64,
    pub(super) violations: Vec<Violation>,
}

/// I7: what was sent came out, and nothing else did.
pub(super) async fn messages(database: &Database, spy: &Spy) -> anyhow::Result<Messages> {
    let rows = database.rows(SENT).await?;
    let sent: BTreeSet<String> = rows.iter().filter_map(|row| row["id"].as_str().map(str::to_owned)).collect();
    let (lost, unexpected) = (spy.missing(&sent, HEARD_WITHIN).await, spy.unexpected(&sent));
    let rows = database.rows(MESSAGES).await?.pop().unwrap_or_default();
    let (recognised, parked) = (rows["repeats"].as_i64().unwrap_or(0), rows["parked"].as_i64().unwrap_or(0));
    let mut violations = Vec::new();
    let mut wrong = |count: usize, what: &str, ids: &[String]| {
        if count > 0 {
            let rows = json!({"count": count, "ids": ids.iter().take(NAMED).collect::<Vec<_>>()});
            violations.push(Violation { order: None, what: what.to_owned(), rows });
        }
    };
    wrong(lost.len(), "what was published came out of the broker", &lost);
    wrong(unexpected.len(), "what came out of the broker was published", &unexpected);
    wrong(usize::try_from(parked)?, "no message is parked: no fault is one of a message", &[]);
    let (copies, invented) = spy.ours();
    Ok(Messages {
        lost: lost.len(),
        unexpected: unexpected.len(),
        sent: sent.len(),
        sent_again: spy.again().saturating_sub(copies),
        ours: copies + invented as u64,
        recognised,
        parked,
        violations,
    })
}
