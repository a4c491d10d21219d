//! The queue `payment.commands`: capture and refund, by one record per saga and one key at the provider.

use chassis::Together;
use contracts::answer::{Answer, Details};
use contracts::command::{CapturePayment, Command};
use contracts::step::{Direction, Outcome, Step};
use messaging::participant::{self, Decision, FirstLook, Record};
use messaging::{Class, Delivery, Failure, Handler, Ready, RetryPolicy, outbox};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::domain::{Rejection, Status};
use crate::provider::{Provider, Said};
use crate::store::{self, Change};

/// Where first looks meet.
pub(crate) type Looks = Together<Uuid, Result<Record, Failure>>;

/// Handles commands.
#[derive(Debug)]
pub(crate) struct Commands {
    pub(crate) pool: PgPool,
    pub(crate) looks: Looks,
    pub(crate) provider: Provider,
    pub(crate) retry: RetryPolicy,
    pub(crate) undo_retry: RetryPolicy,
}

impl Handler for Commands {
    type Message = Command<CapturePayment>;
    /// What the provider said; `None` if the record had the answer.
    type Prepared = Option<Said>;

    async fn prepare(&self, delivery: &Delivery<Self::Message>) -> Result<Option<Said>, Failure> {
        let saga_id = delivery.saga_id()?;
        let correlation_id = &delivery.envelope.correlation_id;
        delivery.span().record("step.name", Step::Payment.name());
        delivery.describe("order.id", &delivery.message.order_id());
        let record = self.looks.run(saga_id, |group| look(self.pool.clone(), group)).await??;
        if participant::first_look(record, delivery.message.direction()) == FirstLook::Settled {
            return Ok(None);
        }
        let called = match &delivery.message {
            Command::Do(capture) => self.provider.capture(saga_id, capture, correlation_id).await,
            Command::Undo(_) => self.provider.cancel(saga_id, correlation_id).await,
        };
        match called {
            // The last silence is an answer too: nobody knows, so the saga undoes the step.
            Err(failure) if failure.class() == Class::Transient && delivery.attempt.is_last => {
                tracing::warn!(parent: delivery.span(), error.type = "Technical",
                    error.code = failure.code(), "the provider gave no answer: {}", failure.chain());
                Ok(Some(Said::nothing()))
            }
            called => Ok(Some(called?)),
        }
    }

    async fn apply(
        &self,
        transaction: &mut PgConnection,
        batch: &[Ready<Self::Message, Option<Said>>],
    ) -> Result<(), Failure> {
        let ids = batch.iter().map(|ready| ready.delivery.saga_id()).collect::<Result<Vec<Uuid>, Failure>>()?;
        let payments = store::lock(transaction, &ids).await?;
        let mut changes = Vec::new();
        let mut answers = Vec::with_capacity(batch.len());
        for (Ready { delivery, prepared }, saga_id) in batch.iter().zip(ids) {
            let payment = payments.iter().find(|payment| payment.saga_id == saga_id);
            let record = payment.map_or(Record::None, |payment| payment.status.record());
            let (direction, reply) = (delivery.message.direction(), prepared.as_ref().map(|said| said.reply));
            let decision = participant::decide(record, direction, reply, delivery.attempt.is_last);
            if (record, decision.record) == (Record::None, Record::Undone) {
                delivery.mark("tombstone");
            }
            if decision.record != record {
                changes.push(change(delivery, saga_id, decision, prepared.as_ref(), payment.is_none()));
            }
            let reference = payment.and_then(|payment| payment.reference.clone());
            answers.push(answer(delivery, decision, reference.or_else(|| prepared.as_ref()?.reference.clone()))?);
        }
        store::insert(transaction, &changes).await?;
        store::update(transaction, &changes).await?;
        outbox::append(transaction, &answers).await
    }

    fn retry_policy(&self, command: &Self::Message) -> RetryPolicy {
        match command.direction() {
            Direction::Do => self.retry,
            Direction::Undo => self.undo_retry,
        }
    }
}

/// The records of sagas before anybody is called, without a lock: those of messages that come together with one look.
async fn look(pool: PgPool, saga_ids: Vec<Uuid>) -> Vec<Result<Record, Failure>> {
    let listed = async { store::list(&mut *pool.acquire().await?, &saga_ids).await };
    let payments = match listed.await {
        Ok(payments) => payments,
        Err(failure) => return saga_ids.iter().map(|_| Err(failure.share())).collect(),
    };
    let of = |id: &Uuid| payments.iter().find(|payment| payment.saga_id == *id);
    saga_ids.iter().map(|id| Ok(of(id).map_or(Record::None, |payment| payment.status.record()))).collect()
}

fn change(
    delivery: &Delivery<Command<CapturePayment>>,
    saga_id: Uuid,
    decision: Decision,
    said: Option<&Said>,
    is_new: bool,
) -> Change {
    let has_moved = said.is_some_and(|said| said.has_moved) || !is_new;
    let capture = match &delivery.message {
        Command::Do(capture) => Some(capture),
        Command::Undo(_) => None,
    };
    Change {
        saga_id,
        order_id: delivery.message.order_id(),
        // A decision that changes the record never says `None`.
        status: Status::of(decision.record, has_moved).unwrap_or(Status::Voided),
        total: capture.map(|capture| capture.total.clone()),
        reference: said.and_then(|said| said.reference.clone()),
        is_new,
    }
}

fn answer(
    delivery: &Delivery<Command<CapturePayment>>,
    decision: Decision,
    reference: Option<String>,
) -> Result<messaging::Message, Failure> {
    let (outcome, rejection) = match decision.answer {
        Some(participant::Answer::Done) => (Outcome::Done, None),
        Some(participant::Answer::Rejected) => (Outcome::Rejected, Some(Rejection::Declined)),
        Some(participant::Answer::RejectedAsUndone) => (Outcome::Rejected, Some(Rejection::Undone)),
        Some(participant::Answer::Failed) => (Outcome::Failed, Some(Rejection::NoAnswer)),
        Some(participant::Answer::Undone) => (Outcome::Undone, None),
        Some(participant::Answer::UndoFailed) => (Outcome::UndoFailed, Some(Rejection::UndoRefused)),
        None => return Err(Failure::transient("payment.no_answer", "the provider gave no answer yet")),
    };
    let details = Details {
        order_id: delivery.message.order_id(),
        attempts: delivery.attempt.number,
        code: rejection.map(|rejection| rejection.code().to_owned()),
        reference,
    };
    let code = details.code.as_deref();
    tracing::info!(parent: delivery.span(), status = ?outcome, error.code = code,
        error.type = outcome.error_type(), "the payment is answered");
    Answer { step: Step::Payment, outcome, details }.into_message(delivery.cause())
}
