//! The wire: what stands in the body of every message, and how it is read back from a delivery.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::Failure;

/// The body of a message: JSON, camelCase. Unknown fields are accepted, so that a sender can add some.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    /// The same as the AMQP property `message_id`.
    pub event_id: Uuid,
    /// The same as the AMQP property `type`.
    pub event_type: String,
    /// The version of the payload's form.
    pub schema_version: u16,
    /// A noun of the domain.
    pub aggregate_type: String,
    /// Which one.
    pub aggregate_id: String,
    /// What the caller named the whole business transaction.
    pub correlation_id: String,
    /// The message that this one follows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub causation_id: Option<Uuid>,
    /// The saga that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub saga_id: Option<Uuid>,
    /// For commands: the same for every message that asks for the same effect.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idempotency_key: Option<String>,
    /// The trace in which it was made.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub traceparent: Option<String>,
    /// When it was appended, by the database's clock.
    #[serde(with = "time::serde::rfc3339")]
    pub occurred_at: OffsetDateTime,
    /// What the type says it is.
    pub payload: Box<RawValue>,
    /// The routing key that it came with; no part of the body. The broker lets each sender use only its own, so a type
    /// that must be a certain sender's is known by it.
    #[serde(skip)]
    pub routing_key: String,
}

impl Envelope {
    /// What must stay in order: the saga where there is one, else the aggregate.
    pub fn key(&self) -> String {
        match self.saga_id {
            Some(saga_id) => saga_id.to_string(),
            None => format!("{}:{}", self.aggregate_type, self.aggregate_id),
        }
    }

    /// Reads the payload as `T`.
    ///
    /// # Errors
    /// Permanent, if it is not one.
    pub fn payload<T: serde::de::DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_str(self.payload.get()).map_err(|error| {
            Failure::permanent("message.payload", format!("the payload is no {}", self.event_type)).caused_by(error)
        })
    }
}

/// What a consumer understands: decides by type and version, and reads the payload.
pub trait Decode: Sized {
    /// # Errors
    /// Permanent ([`unknown_type`] for types and versions that the consumer does not know): the message is parked.
    fn decode(envelope: &Envelope) -> Result<Self, Failure>;
}

/// The failure of a consumer that does not know this type, or not this version of it.
pub fn unknown_type(envelope: &Envelope) -> Failure {
    Failure::permanent(
        "message.unknown_type",
        format!("nobody here knows {} in version {}", envelope.event_type, envelope.schema_version),
    )
}
