//! The queue `order.replies`: what the participants answer moves the sagas on.

use contracts::answer::Answer;
use contracts::step::Outcome;
use messaging::{Delivery, Failure, Handler, Ready, RetryPolicy};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::definition::Deadlines;
use crate::domain::{self, Saga};
use crate::progress::{self, Answered, Became, Happening};
use crate::store::{sagas, steps};

/// Handles answers.
#[derive(Debug)]
pub(crate) struct Replies {
    pub(crate) deadlines: Deadlines,
}

impl Handler for Replies {
    type Message = Answer;
    type Prepared = ();
    const PREPARES: bool = false;

    async fn prepare(&self, _delivery: &Delivery<Answer>) -> Result<(), Failure> {
        Ok(())
    }

    async fn apply(&self, transaction: &mut PgConnection, batch: &[Ready<Answer, ()>]) -> Result<(), Failure> {
        let ids = batch.iter().map(|ready| ready.delivery.saga_id()).collect::<Result<Vec<Uuid>, Failure>>()?;
        let locked = sagas::lock(transaction, &ids).await?;
        let saga_of = |id: Uuid| locked.iter().find(|saga| saga.id == id);
        let needs_steps = |(ready, id): (&Ready<Answer, ()>, &Uuid)| {
            saga_of(*id).is_some_and(|saga| needs_steps(&ready.delivery.message, saga.saga))
        };
        let rows = match batch.iter().zip(&ids).any(needs_steps) {
            true => steps::list(transaction, &ids).await?,
            false => Vec::new(),
        };
        let mut happenings = Vec::with_capacity(batch.len());
        for (ready, id) in batch.iter().zip(&ids) {
            let delivery = &ready.delivery;
            let saga = saga_of(*id).ok_or_else(|| {
                // The answer may be faster than the commit that made the saga visible.
                Failure::transient(
                    "saga.unknown",
                    format!("there is no saga {id} for {}", delivery.envelope.event_type),
                )
            })?;
            let Answer { step, outcome, details } = &delivery.message;
            let (direction, claimed) = domain::claim_of(*outcome);
            let is_latest = rows.iter().any(|row| {
                row.saga_id == *id
                    && row.step == *step
                    && row.direction == direction
                    && Some(row.command_id) == delivery.envelope.causation_id
            });
            let event = domain::event_of(*step, *outcome, is_latest);
            delivery.describe("order.id", &details.order_id);
            happenings.push(Happening {
                saga,
                event,
                cause: delivery.cause(),
                answer: Some(Answered {
                    message_type: delivery.envelope.event_type.clone(),
                    direction,
                    step: *step,
                    claimed,
                    code: details.code.clone(),
                    handler_attempts: i32::try_from(details.attempts).unwrap_or(i32::MAX),
                }),
            });
        }
        let became = progress::advance(transaction, &self.deadlines, &rows, happenings).await?;
        for (ready, became) in batch.iter().zip(became) {
            tell(&ready.delivery, became);
        }
        Ok(())
    }

    fn retry_policy(&self, _message: &Answer) -> RetryPolicy {
        RetryPolicy::default()
    }
}

/// Whether the rows of the steps have a say: which command the failure of an undo answers, and how an answer that
/// changes nothing is recorded. A saga that just goes on saves the round trip.
fn needs_steps(answer: &Answer, saga: Saga) -> bool {
    let event = domain::event_of(answer.step, answer.outcome, true);
    answer.outcome == Outcome::UndoFailed || domain::transition(saga, event).is_none()
}

/// One line for each answer, written before the commit: a line may stand for a transaction that is run again.
fn tell(delivery: &Delivery<Answer>, became: Became) {
    let (event_type, step) = (&delivery.envelope.event_type, delivery.message.step.name());
    match became {
        Became::Moved(transition) => {
            let (state, at) = transition.saga.state.names();
            let at = at.map_or_else(String::new, |step| format!(" {}", step.name()));
            tracing::info!(parent: delivery.span(), step.name = step, status = state, "{event_type}: the saga is now {state}{at}");
        }
        Became::Ignored(kind) => {
            delivery.span().record("outcome", kind.name());
            delivery.mark(kind.name());
            tracing::info!(parent: delivery.span(), step.name = step, status = kind.name(),
                "{event_type} came {} and changes nothing", kind.name());
        }
        Became::Nothing => {
            tracing::warn!(parent: delivery.span(), step.name = step, status = "ignored",
                "{event_type} answers a step that was never asked");
        }
    }
}
