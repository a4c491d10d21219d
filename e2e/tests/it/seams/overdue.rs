//! Deaths of the order service while it acts on a deadline: the step is overdue until that is committed, and the next
//! command is in the outbox afterwards.

use anyhow::ensure;
use e2e::{Action, Service, Settings, Stack};
use serde_json::json;

use super::death::{Death, arm, dies, rises};
use super::passage::counted;
use super::table::{Direction, How, SEAMS, Seam};
use crate::shop::{Placed, books_balance, comes_to, order, patient, place};

/// Deadlines that come soon, and leave the time to arm the next point.
pub(crate) fn settings() -> Settings {
    patient().set(Service::Order, "STEP_DEADLINE_MS", "2000").set(Service::Order, "UNDO_DEADLINE_MS", "5000")
}

/// All of them.
pub(crate) async fn deadlines(stack: &Stack) -> anyhow::Result<Vec<Death>> {
    let mut deaths = Vec::new();
    for seam in SEAMS.iter().filter(|seam| seam.how == How::Deadline) {
        for direction in seam.directions {
            overdue(stack, seam, *direction).await?;
            let (service, end) = (Some(Service::Order), "cancelled");
            deaths.push(Death { seam, direction: *direction, service, deaths: 1, recognised: 0, end });
            books_balance(stack).await?;
        }
    }
    Ok(deaths)
}

/// Payment is frozen, and the order service dies over its step.
async fn overdue(stack: &Stack, seam: &Seam, direction: Direction) -> anyhow::Result<()> {
    stack.payment().pause()?;
    if direction == Direction::DoDeadline {
        arm(stack, Service::Order, seam.point, Action::Abort)?;
    }
    let placed = place(stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    if direction == Direction::UndoDeadline {
        is(stack, &placed, "compensating").await?;
        arm(stack, Service::Order, seam.point, Action::Abort)?;
    }
    dies(stack, Service::Order, seam.point).await?;
    rises(stack, Service::Order).await?;
    // A saga that waits for a person still takes the answer that comes late.
    match direction {
        // On a busy machine that deadline is over as well.
        Direction::DoDeadline => is(stack, &placed, "compensating', 'needs_attention").await?,
        _ => is(stack, &placed, "needs_attention").await?,
    }
    stack.payment().resume()?;
    let cancelled = comes_to(stack, &placed, "cancelled").await?;
    let asked = format!(
        "select count(*) from orders.outbox_log where saga_id = '{}' and event_type = 'RefundPayment'",
        placed.saga
    );
    let asked = stack.database.value(&asked).await?;
    ensure!(asked == json!(1), "the undo is asked {asked} times: {cancelled:#}");
    Ok(())
}

async fn is(stack: &Stack, placed: &Placed, state: &str) -> anyhow::Result<()> {
    // What was waited for may be over already.
    let sql = format!("select count(*) from orders.sagas where id = '{}' and state in ('{state}')", placed.saga);
    counted(stack, &format!("the saga is {state}"), &sql, 1).await
}
