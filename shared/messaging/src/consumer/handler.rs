//! What a service writes to consume messages: a handler with two halves. `prepare` may call third parties and has no
//! transaction; `apply` has the transaction and calls nobody.

use std::fmt;

use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use uuid::Uuid;

use crate::envelope::{Decode, Envelope};
use crate::error::Failure;
use crate::message::Cause;
use crate::retry::RetryPolicy;
use crate::trace::TraceContext;

/// Which run of a message this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// Counted from 1, over restarts of the process.
    pub number: u32,
    /// Whether a transient failure of this run parks the message. A handler that has an answer for that case
    /// (`PaymentFailed`) gives it now.
    pub is_last: bool,
}

/// A message that arrived, decoded, in the span of its processing.
#[derive(Debug)]
pub struct Delivery<M> {
    /// What the consumer's [`Decode`] made of it.
    pub message: M,
    /// Everything else that came with it.
    pub envelope: Envelope,
    /// The outbox id of its sender's row: rises per aggregate. `None` from senders without an outbox.
    pub sequence: Option<i64>,
    /// Which run this is.
    pub attempt: Attempt,
    pub(crate) span: Span,
}

impl<M> Delivery<M> {
    /// The cause for messages that follow from this one: same correlation, same saga, same trace.
    pub fn cause(&self) -> Cause {
        Cause {
            correlation_id: self.envelope.correlation_id.clone(),
            causation_id: Some(self.envelope.event_id),
            saga_id: self.envelope.saga_id,
            trace: TraceContext::of_span(&self.span),
        }
    }

    /// The saga that the message belongs to.
    ///
    /// # Errors
    /// Permanent, if it names none.
    pub fn saga_id(&self) -> Result<Uuid, Failure> {
        self.envelope.saga_id.ok_or_else(|| Failure::permanent("message.without_saga", "the message names no saga"))
    }

    /// Puts what the business knows about the message on its span (`order.id`).
    pub fn describe(&self, attribute: &'static str, value: &impl ToString) {
        self.span.set_attribute(attribute, value.to_string());
    }

    /// Marks a turn that the message took on its span, as a span event of this name (`late`, `tombstone`).
    pub fn mark(&self, turn: &'static str) {
        self.span.add_event(turn, Vec::new());
    }

    /// The span from delivery to commit: for events and attributes of this one message. A handler that is a step of a
    /// saga records its `step.name`, for its span and for every line about the message.
    pub fn span(&self) -> &Span {
        &self.span
    }
}

/// A delivery together with what `prepare` brought for it.
#[derive(Debug)]
pub struct Ready<M, P> {
    /// The message.
    pub delivery: Delivery<M>,
    /// What `prepare` returned.
    pub prepared: P,
}

/// Handles the messages of one queue. Two messages of one key never run at once within a process; between processes
/// only the database orders them, so `apply` locks the records that it decides on.
pub trait Handler: Send + Sync + 'static {
    /// What the consumer understands.
    type Message: Decode + fmt::Debug + Send + Sync + 'static;
    /// What `prepare` hands to `apply`.
    type Prepared: Send + Sync + 'static;

    /// Whether `prepare` calls anybody: then the inbox is asked before it whether the message is known. A handler
    /// whose `prepare` does nothing says `false` and saves that round trip: its transaction finds known messages out.
    const PREPARES: bool = true;

    /// The first half, for each message by itself, many at a time: calls third parties. No transaction is open, and
    /// nothing may be changed here: it may run twice, late, or beside another handler of the same saga.
    ///
    /// # Errors
    /// Transient: stored and tried again, parked after the last attempt. Permanent: parked. Unavailable: held.
    fn prepare(
        &self,
        delivery: &Delivery<Self::Message>,
    ) -> impl Future<Output = Result<Self::Prepared, Failure>> + Send;

    /// The second half, for a slice of messages with different keys, in one transaction that also remembers the
    /// messages in the inbox. Lock and load all records in key order with one statement, decide each, save with one
    /// statement per table, append what follows. Commits nothing: the caller does, and acknowledges afterwards.
    ///
    /// # Errors
    /// Everything is rolled back and each message is run again by itself; then as for `prepare`.
    fn apply(
        &self,
        transaction: &mut sqlx::PgConnection,
        batch: &[Ready<Self::Message, Self::Prepared>],
    ) -> impl Future<Output = Result<(), Failure>> + Send;

    /// How often this message is tried, and when again.
    fn retry_policy(&self, message: &Self::Message) -> RetryPolicy;
}
