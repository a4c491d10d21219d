//! A message as its sender makes it: what happened or what shall be done, about which aggregate, caused by what, and
//! where it goes. It does nothing until it is appended to the outbox.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::error::{Classify as _, Failure};
use crate::trace::TraceContext;

/// Where a message goes, and whether it must reach a queue there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// The exchange.
    pub exchange: Cow<'static, str>,
    /// The routing key.
    pub routing_key: Cow<'static, str>,
    /// If so, a message that no queue takes stays in the outbox as `unroutable`; if not, nobody needs to listen.
    pub mandatory: bool,
}

impl Route {
    /// To a queue that must be there.
    pub fn mandatory(exchange: impl Into<Cow<'static, str>>, routing_key: impl Into<Cow<'static, str>>) -> Route {
        Route { exchange: exchange.into(), routing_key: routing_key.into(), mandatory: true }
    }

    /// To whoever listens, if anybody does.
    pub fn optional(exchange: impl Into<Cow<'static, str>>, routing_key: impl Into<Cow<'static, str>>) -> Route {
        Route { exchange: exchange.into(), routing_key: routing_key.into(), mandatory: false }
    }
}

/// What a message is about. Messages of one aggregate are published in the order in which they were appended.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Aggregate {
    /// A noun of the domain, `Payment`.
    pub kind: Cow<'static, str>,
    /// Which one.
    pub id: String,
}

/// Why a message is made: what it answers or follows, in which saga and which trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cause {
    /// What the caller named the whole business transaction.
    pub correlation_id: String,
    /// The message that this one follows, if it follows one.
    pub causation_id: Option<Uuid>,
    /// The saga that both belong to, if they do.
    pub saga_id: Option<Uuid>,
    /// The trace, captured inside the span that makes the message.
    pub trace: TraceContext,
}

impl Cause {
    /// A cause from outside, such as a request, in the current span's trace.
    pub fn new(correlation_id: impl Into<String>) -> Cause {
        Cause {
            correlation_id: correlation_id.into(),
            causation_id: None,
            saga_id: None,
            trace: TraceContext::current(),
        }
    }

    /// The same cause within a saga.
    #[must_use]
    pub fn within_saga(mut self, saga_id: Uuid) -> Cause {
        self.saga_id = Some(saga_id);
        self
    }
}

/// A message that is ready to be appended to the outbox.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its id, a UUIDv7; the consumers' inboxes know it by this.
    pub id: Uuid,
    /// Its type, `PaymentCaptured`.
    pub message_type: Cow<'static, str>,
    /// Rises when the payload changes in a way that old consumers cannot read.
    pub schema_version: i16,
    /// What it is about.
    pub aggregate: Aggregate,
    /// Where it goes.
    pub route: Route,
    /// For commands: the same for every message that asks for the same effect.
    pub idempotency_key: Option<String>,
    /// Self-contained: a consumer never asks back.
    pub payload: Box<RawValue>,
    /// Why it is made.
    pub cause: Cause,
}

impl Message {
    /// A message of schema version 1 with a new id.
    ///
    /// # Errors
    /// Permanent, if the payload cannot be written as JSON.
    pub fn new(
        message_type: impl Into<Cow<'static, str>>,
        aggregate: Aggregate,
        route: Route,
        payload: &impl Serialize,
        cause: Cause,
    ) -> Result<Message, Failure> {
        Ok(Message {
            id: Uuid::now_v7(),
            message_type: message_type.into(),
            schema_version: 1,
            aggregate,
            route,
            idempotency_key: None,
            payload: serde_json::value::to_raw_value(payload).permanent("message.payload")?,
            cause,
        })
    }

    /// The same message with a business key: consumers use it to recognise a repeated intent under a new message id.
    #[must_use]
    pub fn with_idempotency_key(mut self, key: impl Into<String>) -> Message {
        self.idempotency_key = Some(key.into());
        self
    }
}
