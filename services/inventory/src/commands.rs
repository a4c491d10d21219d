//! The queue `inventory.commands`: reserve and release. Calls nobody: each batch is one transaction.

use contracts::answer::{Answer as StepAnswer, Details};
use contracts::command::{Command, ReserveStock};
use contracts::step::{Outcome, Step};
use messaging::{Delivery, Failure, Handler, Message, Ready, RetryPolicy, outbox};
use sqlx::PgConnection;

use crate::domain::{Answer, Request};
use crate::reserving::{self, Asked};

/// Handles commands.
#[derive(Debug)]
pub(crate) struct Commands {
    pub(crate) retry: RetryPolicy,
}

impl Handler for Commands {
    type Message = Command<ReserveStock>;
    type Prepared = ();
    const PREPARES: bool = false;

    async fn prepare(&self, _delivery: &Delivery<Self::Message>) -> Result<(), Failure> {
        Ok(())
    }

    async fn apply(&self, transaction: &mut PgConnection, batch: &[Ready<Self::Message, ()>]) -> Result<(), Failure> {
        let asked = batch.iter().map(|ready| asked(&ready.delivery)).collect::<Result<Vec<_>, Failure>>()?;
        let answers = reserving::apply(transaction, &asked).await?;
        let messages = batch
            .iter()
            .zip(answers)
            .filter_map(|(ready, answer)| answer.map(|answer| message(&ready.delivery, answer)))
            .collect::<Result<Vec<_>, Failure>>()?;
        outbox::append(transaction, &messages).await
    }

    fn retry_policy(&self, _command: &Self::Message) -> RetryPolicy {
        self.retry
    }
}

fn asked(delivery: &Delivery<Command<ReserveStock>>) -> Result<Asked<'_>, Failure> {
    let order_id = delivery.message.order_id();
    delivery.span().record("step.name", Step::Inventory.name());
    delivery.describe("order.id", &order_id);
    let (request, lines) = match &delivery.message {
        Command::Do(reserve) => (Request::Reserve, reserve.lines.as_slice()),
        Command::Undo(_) => (Request::Release, [].as_slice()),
    };
    if lines.iter().any(|line| line.quantity < 1) {
        return Err(Failure::permanent("inventory.quantity", "a quantity below one cannot be reserved"));
    }
    Ok(Asked { saga_id: delivery.saga_id()?, order_id, request, lines })
}

fn message(delivery: &Delivery<Command<ReserveStock>>, answer: Answer) -> Result<Message, Failure> {
    let (outcome, code) = match answer {
        Answer::Reserved => (Outcome::Done, None),
        Answer::Rejected(rejection) => (Outcome::Rejected, Some(rejection.code())),
        Answer::Released => (Outcome::Undone, None),
        Answer::Barred => {
            delivery.mark("tombstone");
            (Outcome::Undone, None)
        }
    };
    let details = Details {
        order_id: delivery.message.order_id(),
        attempts: delivery.attempt.number,
        code: code.map(str::to_owned),
        reference: None,
    };
    tracing::info!(parent: delivery.span(), status = ?outcome, error.code = code,
        error.type = outcome.error_type(), "the reservation is answered");
    StepAnswer { step: Step::Inventory, outcome, details }.into_message(delivery.cause())
}
