//! Deaths over messages that are set aside: one that nobody can read, one that kills whoever runs it; and over a
//! request that takes effect late.

use anyhow::ensure;
use e2e::{Action, Service, Stack};
use lapin::BasicProperties;
use serde_json::json;
use tokio::select;

use super::death::{Death, arm, dies, rises, rises_alive};
use super::passage::counted;
use super::table::{How, SEAMS, Seam};
use crate::shop::{books_balance, books_balance_with, comes_to, order, place, queue_is_empty};
use crate::stranger::Stranger;

fn seams(how: How) -> impl Iterator<Item = &'static Seam> {
    SEAMS.iter().filter(move |seam| seam.how == how)
}

/// A message that nobody can read, in each service: one parked row, and a person gives it up.
pub(crate) async fn unreadable(stack: &Stack) -> anyhow::Result<Vec<Death>> {
    let stranger = Stranger::at(stack).await?;
    let mut deaths = Vec::new();
    for seam in seams(How::Unreadable) {
        for service in seam.services {
            let (queue, schema) = match service {
                Service::Order => ("order.replies", "orders"),
                Service::Payment => ("payment.commands", "payments"),
                Service::Inventory => ("inventory.commands", "inventory"),
                Service::Shipping => ("shipping.commands", "shipping"),
                Service::Sandbox => continue,
            };
            arm(stack, *service, seam.point, Action::Abort)?;
            let id = format!("unreadable-{queue}");
            stranger.send(queue, b"not json", BasicProperties::default().with_message_id(id.as_str().into())).await?;
            dies(stack, *service, seam.point).await?;
            let parked = format!("select count(*) from {schema}.inbox where message_id = '{id}' and status = 'parked'");
            counted(stack, "it is parked", &parked, 1).await?;
            rises(stack, *service).await?;
            let known = format!("{parked} and repeats = 1");
            counted(stack, "it came again and is known", &known, 1).await?;
            let given_up = format!(
                "update {schema}.inbox set status = 'discarded', finished_at = now() where message_id = '{id}'"
            );
            stack.database.execute(&given_up).await?;
            let end = "parked once";
            deaths.push(Death {
                seam,
                direction: seam.directions[0],
                service: Some(*service),
                deaths: 1,
                recognised: 1,
                end,
            });
        }
    }
    books_balance(stack).await?;
    Ok(deaths)
}

/// A parcel that the carrier would take after the order was cancelled.
pub(crate) async fn late(stack: &Stack) -> anyhow::Result<Vec<Death>> {
    let mut deaths = Vec::new();
    for seam in seams(How::Late) {
        arm(stack, Service::Sandbox, seam.point, Action::Abort)?;
        let placed = place(stack, &order("KEYBOARD", 1, "pm_ok", "timeout_late")).await?;
        dies(stack, Service::Sandbox, seam.point).await?;
        rises(stack, Service::Sandbox).await?;
        comes_to(stack, &placed, "cancelled").await?;
        books_balance(stack).await?;
        let (direction, service) = (seam.directions[0], Some(Service::Sandbox));
        deaths.push(Death { seam, direction, service, deaths: 1, recognised: 0, end: "cancelled" });
    }
    Ok(deaths)
}

/// Six captures wait together for the payment service, and one of them kills whoever runs it.
pub(crate) async fn poison(stack: &Stack) -> anyhow::Result<Vec<Death>> {
    const NEIGHBOURS: usize = 5;
    let mut deaths = Vec::new();
    for seam in seams(How::Poison) {
        let payment = stack.payment();
        payment.pause()?;
        let mut placed = Vec::new();
        for _ in 0..=NEIGHBOURS {
            placed.push(place(stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?);
        }
        counted(stack, "all are sent", "select count(*) from orders.outbox", 0).await?;
        let deadly = placed.remove(NEIGHBOURS / 2);
        let point = format!("{}.{}", seam.point, deadly.saga);
        arm(stack, Service::Payment, &point, Action::Abort)?;
        payment.resume()?;
        let parked = format!(
            "select count(*) from payments.inbox where key = '{}' and status = 'parked'
             and error_code = 'message.kills_the_process' and unfinished = 5",
            deadly.saga
        );
        dies(stack, Service::Payment, &point).await?;
        let mut died = 1;
        // It dies again until it knows whose fault it is.
        loop {
            ensure!(died <= 6, "it dies again and again");
            arm(stack, Service::Payment, &point, Action::Abort)?;
            if rises_alive(stack, Service::Payment, &point).await? {
                select! {
                    dead = dies(stack, Service::Payment, &point) => dead?,
                    known = counted(stack, "the deadly one is parked", &parked, 1) => { known?; break }
                }
            }
            died += 1;
        }
        // Once before anybody knew, and five times as its message alone or with those that came with it.
        ensure!(died == 6, "it died {died} times");
        for neighbour in &placed {
            comes_to(stack, neighbour, "completed").await?;
        }
        queue_is_empty(stack, "payment.commands").await?;
        books_balance_with(stack, 1).await?;
        // Its cause is gone: a person takes it up again, as the README says.
        payment.holds().release(&point)?;
        let replay = format!(
            "update payments.inbox set status = 'retrying', attempts = 0, unfinished = 0, next_attempt_at = now()
             where key = '{}' and status = 'parked'",
            deadly.saga
        );
        stack.database.execute(&replay).await?;
        comes_to(stack, &deadly, "completed").await?;
        let attempts = format!("select attempts from payments.inbox where key = '{}' and status = 'done'", deadly.saga);
        ensure!(stack.database.value(&attempts).await? == json!(1), "it begins anew");
        books_balance(stack).await?;
        let (direction, service) = (seam.directions[0], Some(Service::Payment));
        let end = "parked; completed when taken up again";
        deaths.push(Death { seam, direction, service, deaths: died, recognised: 0, end });
    }
    Ok(deaths)
}
