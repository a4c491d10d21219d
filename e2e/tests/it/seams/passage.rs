//! An order passes all services, and each of them dies once on its way: in the forward direction the first time that it
//! passes the point, in the other the first time after the last step has failed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use e2e::{Action, Service, Stack, State, eventually};
use futures::future::try_join_all;
use serde_json::{Value, json};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

use super::death::{Death, arm, dies, rises, rises_alive};
use super::table::{Direction, How, SEAMS, Seam};
use crate::shop::{Placed, SOON, books_balance, comes_to, order, place};

/// A seam, a direction, and who dies there.
pub(crate) type Passage = (&'static Seam, Direction, Vec<Service>);

/// Where a service dies first, so that its message is delivered again.
const BEFORE: &str = "consumer.delivered";
/// Long enough for whoever comes last.
const PASSED_WITHIN: Duration = Duration::from_secs(90);

/// All passages of one order. Where a relay dies, the receiver of what the order service sends first does not die as
/// well: its own redeliveries would be taken for those of the relay.
pub(crate) fn passages() -> Vec<Passage> {
    let of_one_order = |seam: &&Seam| matches!(seam.how, How::Order | How::Redelivered | How::Locked);
    let mut passages = Vec::new();
    for seam in SEAMS.iter().filter(of_one_order) {
        for direction in seam.directions {
            let apart = |service: &Service| seam.point.starts_with("relay.") && *service == first_receiver(*direction);
            let (alone, together): (Vec<Service>, Vec<Service>) = seam.services.iter().partition(|it| apart(it));
            let crews = [together, alone].into_iter().filter(|crew| !crew.is_empty());
            passages.extend(crews.map(|crew| (seam, *direction, crew)));
        }
    }
    passages
}

/// Who receives the order service's first message.
fn first_receiver(direction: Direction) -> Service {
    if direction == Direction::Do { Service::Payment } else { Service::Shipping }
}

/// The order that goes this way, and its end.
pub(crate) fn order_for(direction: Direction) -> (Value, &'static str) {
    match direction {
        Direction::Do => (order("KEYBOARD", 1, "pm_ok", "standard"), "completed"),
        _ => (order("KEYBOARD", 1, "pm_ok", "timeout_created"), "cancelled"),
    }
}

/// One order, on a stack whose shipping gives up after one attempt.
pub(crate) async fn pass(stack: &Stack, (seam, direction, crew): Passage) -> anyhow::Result<Vec<Death>> {
    let (body, end) = order_for(direction);
    let turned = match direction {
        Direction::Do => None,
        _ => Some(turn(stack, &body, 1).await?),
    };
    let locks = RefCell::new(BTreeMap::new());
    let is_locked = seam.how == How::Locked;
    if is_locked {
        // Orders cannot be placed while their table is locked.
        for service in crew.iter().filter(|service| turned.is_some() || **service != Service::Order) {
            let held = lock(stack, *service).await?;
            locks.borrow_mut().insert(*service, held);
        }
    }
    for service in &crew {
        arm(stack, *service, if seam.how == How::Redelivered { BEFORE } else { seam.point }, Action::Abort)?;
    }
    let going = async {
        let Some(turned) = &turned else {
            let placed = place(stack, &body).await?;
            if is_locked {
                let held = lock(stack, Service::Order).await?;
                locks.borrow_mut().insert(Service::Order, held);
            }
            return Ok(placed);
        };
        stack.order().resume()?;
        Ok(turned[0].clone())
    };
    let effects = effects(stack).await?;
    let mut done = BTreeMap::new();
    for service in crew.iter().filter(|service| service.has_broker()) {
        done.insert(*service, self::done(stack, *service).await?);
    }
    let dying = crew.iter().map(async |service| {
        if seam.how == How::Redelivered {
            dies(stack, *service, BEFORE).await?;
            arm(stack, *service, seam.point, Action::Abort)?;
            if rises_alive(stack, *service, seam.point).await? {
                dies(stack, *service, seam.point).await?;
            }
        } else {
            dies(stack, *service, seam.point).await?;
        }
        let had_effect = self::effects(stack).await? - effects;
        if let Some(done) = done.get(service) {
            is_as_told(stack, seam, *service, self::done(stack, *service).await? - done).await?;
        }
        let held = locks.borrow_mut().remove(service);
        drop(held);
        rises(stack, *service).await?;
        anyhow::Ok((*service, had_effect))
    });
    let (placed, died) = tokio::try_join!(going, try_join_all(dying))?;
    comes_to(stack, &placed, end).await?;
    let mut deaths = Vec::new();
    for (service, had_effect) in died {
        let recognised = match service {
            // What the third party had done is asked for again.
            Service::Sandbox => had_effect,
            _ => recognised(stack, seam, direction, service, std::slice::from_ref(&placed)).await?,
        };
        let times = if seam.how == How::Redelivered { 2 } else { 1 };
        deaths.push(Death { seam, direction, service: Some(service), deaths: times, recognised, end });
    }
    books_balance(stack).await?;
    Ok(deaths)
}

/// How many messages a service has done.
async fn done(stack: &Stack, service: Service) -> anyhow::Result<i64> {
    let done = format!("select count(*) from {}.inbox where status = 'done'", service.schema());
    Ok(stack.database.value(&done).await?.as_i64().unwrap_or_default())
}

/// While the service is dead: what its row says has not happened has not. A message that left the outbox too early, or
/// one that was remembered too late, could come to its right end by luck.
async fn is_as_told(stack: &Stack, seam: &Seam, service: Service, done: i64) -> anyhow::Result<()> {
    let waiting = format!("select count(*) > 0 from {}.outbox", service.schema());
    let waits = stack.database.value(&waiting).await? == json!(true);
    let (point, service) = (seam.point, service.name());
    match point {
        "relay.read" | "relay.published" | "relay.confirmed" => {
            ensure!(waits, "{service} at {point}: the outbox is empty, and no confirm was looked at");
        }
        "consumer.delivered" | "consumer.prepared" | "consumer.remembered" | "consumer.before_commit" => {
            ensure!(done == 0 || seam.how != How::Order, "{service} at {point}: {done} messages are done already");
        }
        "consumer.committed" | "consumer.acked" => {
            ensure!(done == 1 && (waits || point == "consumer.acked"), "{service} at {point}: {done} done, {waits}");
        }
        _ => {}
    }
    Ok(())
}

/// Orders whose shipment has failed, and nobody else knows it yet: the order service is frozen.
pub(crate) async fn turn(stack: &Stack, body: &Value, count: usize) -> anyhow::Result<Vec<Placed>> {
    stack.shipping().pause()?;
    let placed = try_join_all((0..count).map(|_| place(stack, body))).await?;
    let sagas = list(&placed);
    let sent = format!(
        "select count(*) from orders.sagas s where s.id::text in ({sagas}) and state = 'running' and step = 'shipping'
         and not exists (select from orders.outbox o where o.saga_id = s.id)"
    );
    counted(stack, "shipping is asked", &sent, count).await?;
    stack.order().pause()?;
    stack.shipping().resume()?;
    let failed = format!(
        "select count(*) from shipping.outbox_history where saga_id::text in ({sagas}) and event_type = 'ShipmentFailed'"
    );
    counted(stack, "the shipment has failed", &failed, count).await?;
    Ok(placed)
}

/// Waits for so many.
pub(crate) async fn counted(stack: &Stack, what: &str, sql: &str, count: usize) -> anyhow::Result<()> {
    eventually(PASSED_WITHIN, what, async || {
        let seen = stack.database.value(sql).await?;
        Ok(if seen == json!(count) { State::Reached(()) } else { State::pending(seen) })
    })
    .await
}

/// How many messages came again because of this death: at a consumer those that it receives, at a relay those that it
/// sends to somebody who has not died.
pub(crate) async fn recognised(
    stack: &Stack,
    seam: &Seam,
    direction: Direction,
    service: Service,
    placed: &[Placed],
) -> anyhow::Result<i64> {
    let (sagas, schema) = (list(placed), service.schema());
    let sql = if seam.point.starts_with("relay.") {
        let receiver = if service == Service::Order { first_receiver(direction) } else { Service::Order };
        format!(
            "select coalesce(sum(repeats), 0)::bigint from {}.inbox
             where message_id in (select event_id::text from {schema}.outbox_log where saga_id::text in ({sagas}))",
            receiver.schema()
        )
    } else {
        format!("select coalesce(sum(repeats), 0)::bigint from {schema}.inbox where key in ({sagas})")
    };
    let what = format!("{} at {} recognises what comes again", service.name(), seam.point);
    eventually(SOON, &what, async || {
        let seen = stack.database.value(&sql).await?.as_i64().unwrap_or_default();
        Ok(if seen >= *seam.again.range().start() { State::Reached(seen) } else { State::pending(seen) })
    })
    .await
}

/// How many effects the third parties have had.
async fn effects(stack: &Stack) -> anyhow::Result<i64> {
    let effects = "select count(distinct (key, effect)) from sandbox.ledger";
    Ok(stack.database.value(effects).await?.as_i64().unwrap_or_default())
}

/// Locks what a service writes, so that each attempt fails.
async fn lock(stack: &Stack, service: Service) -> anyhow::Result<PgConnection> {
    let table = match service {
        Service::Order => "orders.sagas",
        Service::Payment => "payments.payments",
        Service::Inventory => "inventory.reservations",
        Service::Shipping => "shipping.shipments",
        Service::Sandbox => "sandbox.decisions",
    };
    let mut connection = PgConnection::connect(stack.database.url()).await?;
    connection.execute(AssertSqlSafe(format!("begin; lock table {table} in share mode"))).await?;
    Ok(connection)
}

fn list(placed: &[Placed]) -> String {
    placed.iter().map(|placed| format!("'{}'", placed.saga)).collect::<Vec<_>>().join(", ")
}

/// Six orders, whose messages wait in the outbox of each service until all are there; it dies when some of them are
/// confirmed.
pub(crate) async fn pass_with_a_backlog(
    stack: &Stack,
    seam: &'static Seam,
    direction: Direction,
) -> anyhow::Result<Vec<Death>> {
    const ORDERS: usize = 6;
    let (body, end) = order_for(direction);
    let turned = match direction {
        Direction::Do => None,
        _ => Some(turn(stack, &body, ORDERS).await?),
    };
    for service in seam.services {
        arm(stack, *service, "relay.read", Action::Hold)?;
    }
    let going = async {
        let Some(turned) = turned else { return try_join_all((0..ORDERS).map(|_| place(stack, &body))).await };
        stack.order().resume()?;
        Ok(turned)
    };
    let dying = seam.services.iter().map(async |service| {
        let waiting = format!("select count(distinct saga_id) from {}.outbox", service.schema());
        counted(stack, "all wait in the outbox", &waiting, ORDERS).await?;
        arm(stack, *service, seam.point, Action::Abort)?;
        stack.process(*service).holds().release("relay.read")?;
        dies(stack, *service, seam.point).await?;
        rises(stack, *service).await
    });
    let (placed, _) = tokio::try_join!(going, try_join_all(dying))?;
    for placed in &placed {
        comes_to(stack, placed, end).await?;
    }
    let mut deaths = Vec::new();
    for service in seam.services {
        let recognised = recognised(stack, seam, direction, *service, &placed).await?;
        deaths.push(Death { seam, direction, service: Some(*service), deaths: 1, recognised, end });
    }
    books_balance(stack).await?;
    Ok(deaths)
}
