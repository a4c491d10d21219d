//! The queue `shipping.commands`: create and cancel, by one record per saga and one key at the carrier.

use chassis::Together;
use contracts::answer::{Answer, Details};
use contracts::command::{Command, CreateShipment};
use contracts::step::{Direction, Outcome, Step};
use messaging::participant::{self, Decision, FirstLook, Record};
use messaging::{Class, Delivery, Failure, Handler, Ready, RetryPolicy, outbox};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::carrier::{Carrier, Said};
use crate::domain::{Rejection, Status};
use crate::store::{self, Change};

/// Where first looks meet.
pub(crate) type Looks = Together<Uuid, Result<Record, Failure>>;

/// Handles commands.
#[derive(Debug)]
pub(crate) struct Commands {
    pub(crate) pool: PgPool,
    pub(crate) looks: Looks,
    pub(crate) carrier: Carrier,
    pub(crate) retry: RetryPolicy,
    pub(crate) undo_retry: RetryPolicy,
}

impl Handler for Commands {
    type Message = Command<CreateShipment>;
    /// What the carrier said; `None` if the record had the answer.
    type Prepared = Option<Said>;

    async fn prepare(&self, delivery: &Delivery<Self::Message>) -> Result<Option<Said>, Failure> {
        let saga_id = delivery.saga_id()?;
        let correlation_id = &delivery.envelope.correlation_id;
        delivery.span().record("step.name", Step::Shipping.name());
        delivery.describe("order.id", &delivery.message.order_id());
        let record = self.looks.run(saga_id, |group| look(self.pool.clone(), group)).await??;
        if participant::first_look(record, delivery.message.direction()) == FirstLook::Settled {
            return Ok(None);
        }
        let called = match &delivery.message {
            Command::Do(create) => self.carrier.create(saga_id, create, correlation_id).await,
            Command::Undo(_) => self.carrier.cancel(saga_id, correlation_id).await,
        };
        match called {
            // The last silence is an answer too: nobody knows, so the saga undoes the step.
            Err(failure) if failure.class() == Class::Transient && delivery.attempt.is_last => {
                tracing::warn!(parent: delivery.span(), error.type = "Technical",
                    error.code = failure.code(), "the carrier gave no answer: {}", failure.chain());
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
        let shipments = store::lock(transaction, &ids).await?;
        let mut changes = Vec::new();
        let mut answers = Vec::with_capacity(batch.len());
        for (Ready { delivery, prepared }, saga_id) in batch.iter().zip(ids) {
            let shipment = shipments.iter().find(|shipment| shipment.saga_id == saga_id);
            let record = shipment.map_or(Record::None, |shipment| shipment.status.record());
            let (direction, reply) = (delivery.message.direction(), prepared.as_ref().map(|said| said.reply));
            let decision = participant::decide(record, direction, reply, delivery.attempt.is_last);
            if (record, decision.record) == (Record::None, Record::Undone) {
                delivery.mark("tombstone");
            }
            if decision.record != record {
                changes.push(change(delivery, saga_id, decision, prepared.as_ref(), shipment.is_none()));
            }
            let reference = shipment.and_then(|shipment| shipment.reference.clone());
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
    let shipments = match listed.await {
        Ok(shipments) => shipments,
        Err(failure) => return saga_ids.iter().map(|_| Err(failure.share())).collect(),
    };
    let of = |id: &Uuid| shipments.iter().find(|shipment| shipment.saga_id == *id);
    saga_ids.iter().map(|id| Ok(of(id).map_or(Record::None, |shipment| shipment.status.record()))).collect()
}

fn change(
    delivery: &Delivery<Command<CreateShipment>>,
    saga_id: Uuid,
    decision: Decision,
    said: Option<&Said>,
    is_new: bool,
) -> Change {
    let create = match &delivery.message {
        Command::Do(create) => Some(create),
        Command::Undo(_) => None,
    };
    Change {
        saga_id,
        order_id: delivery.message.order_id(),
        // A decision that changes the record never says `None`.
        status: Status::of(decision.record).unwrap_or(Status::Cancelled),
        service: create.map(|create| create.service.clone()),
        reference: said.and_then(|said| said.reference.clone()),
        is_new,
    }
}

fn answer(
    delivery: &Delivery<Command<CreateShipment>>,
    decision: Decision,
    reference: Option<String>,
) -> Result<messaging::Message, Failure> {
    let (outcome, rejection) = match decision.answer {
        Some(participant::Answer::Done) => (Outcome::Done, None),
        Some(participant::Answer::Rejected) => (Outcome::Rejected, Some(Rejection::Rejected)),
        Some(participant::Answer::RejectedAsUndone) => (Outcome::Rejected, Some(Rejection::Undone)),
        Some(participant::Answer::Failed) => (Outcome::Failed, Some(Rejection::NoAnswer)),
        Some(participant::Answer::Undone) => (Outcome::Undone, None),
        Some(participant::Answer::UndoFailed) => (Outcome::UndoFailed, Some(Rejection::UndoRefused)),
        None => return Err(Failure::transient("shipping.no_answer", "the carrier gave no answer yet")),
    };
    let details = Details {
        order_id: delivery.message.order_id(),
        attempts: delivery.attempt.number,
        code: rejection.map(|rejection| rejection.code().to_owned()),
        reference,
    };
    let code = details.code.as_deref();
    tracing::info!(parent: delivery.span(), status = ?outcome, error.code = code,
        error.type = outcome.error_type(), "the shipment is answered");
    Answer { step: Step::Shipping, outcome, details }.into_message(delivery.cause())
}
