//! A handler that writes each note it handles into `effects`, and besides does what the test says.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use messaging::{Backoff, Decode, Delivery, Envelope, Failure, Handler, Ready, RetryPolicy, unknown_type};
use serde::Deserialize;
use sqlx::PgConnection;

#[derive(Debug, Deserialize)]
pub(crate) struct Note {
    pub(crate) text: String,
}

impl Decode for Note {
    fn decode(envelope: &Envelope) -> Result<Note, Failure> {
        match (envelope.event_type.as_str(), envelope.schema_version) {
            ("NoteWritten", 1) => envelope.payload(),
            _ => Err(unknown_type(envelope)),
        }
    }
}

type Prepare = dyn for<'a> Fn(&'a Delivery<Note>) -> BoxFuture<'a, Result<(), Failure>> + Send + Sync;
type Each = dyn Fn(&Delivery<Note>) -> Result<(), Failure> + Send + Sync;
type Apply =
    dyn for<'a> Fn(&'a mut PgConnection, &'a [Ready<Note, ()>]) -> BoxFuture<'a, Result<(), Failure>> + Send + Sync;

/// Waits that a test can afford: three attempts.
pub(crate) fn quick() -> RetryPolicy {
    let backoff = Backoff { first: Duration::from_millis(20), factor: 2, longest: Duration::from_millis(80) };
    RetryPolicy { attempts: Some(3), backoff }
}

#[derive(Clone)]
pub(crate) struct Script {
    prepare: Option<Arc<Prepare>>,
    each: Option<Arc<Each>>,
    apply: Option<Arc<Apply>>,
    policy: RetryPolicy,
}

impl Script {
    /// Writes down every note and does nothing else.
    pub(crate) fn new() -> Script {
        Script { prepare: None, each: None, apply: None, policy: quick() }
    }

    pub(crate) fn policy(self, policy: RetryPolicy) -> Script {
        Script { policy, ..self }
    }

    /// In the first half, for each message.
    pub(crate) fn preparing<F>(self, act: F) -> Script
    where
        F: for<'a> Fn(&'a Delivery<Note>) -> BoxFuture<'a, Result<(), Failure>> + Send + Sync + 'static,
    {
        Script { prepare: Some(Arc::new(act)), ..self }
    }

    /// In the second half, for each message, after its effect was written.
    pub(crate) fn failing(
        self,
        act: impl Fn(&Delivery<Note>) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Script {
        Script { each: Some(Arc::new(act)), ..self }
    }

    /// In the second half, once, after the effects were written.
    pub(crate) fn applying<F>(self, act: F) -> Script
    where
        F: for<'a> Fn(&'a mut PgConnection, &'a [Ready<Note, ()>]) -> BoxFuture<'a, Result<(), Failure>>
            + Send
            + Sync
            + 'static,
    {
        Script { apply: Some(Arc::new(act)), ..self }
    }
}

impl Handler for Script {
    type Message = Note;
    type Prepared = ();

    async fn prepare(&self, delivery: &Delivery<Note>) -> Result<(), Failure> {
        match &self.prepare {
            Some(act) => act(delivery).await,
            None => Ok(()),
        }
    }

    async fn apply(&self, transaction: &mut PgConnection, batch: &[Ready<Note, ()>]) -> Result<(), Failure> {
        for Ready { delivery, .. } in batch {
            sqlx::query("insert into effects (message_id, key, text, attempt) values ($1, $2, $3, $4)")
                .bind(delivery.envelope.event_id)
                .bind(&delivery.envelope.aggregate_id)
                .bind(&delivery.message.text)
                .bind(delivery.attempt.number.cast_signed())
                .execute(&mut *transaction)
                .await?;
        }
        if let Some(act) = &self.each {
            batch.iter().try_for_each(|ready| act(&ready.delivery))?;
        }
        match &self.apply {
            Some(act) => act(transaction, batch).await,
            None => Ok(()),
        }
    }

    fn retry_policy(&self, _message: &Note) -> RetryPolicy {
        self.policy
    }
}
