//! Commands: what the order service asks of a participant. Each carries all that the step needs.

use std::fmt;

use messaging::{Aggregate, Cause, Decode, Envelope, Failure, Message};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::money::Money;
use crate::step::{Direction, Step};
use crate::topology;

/// A number of pieces of one product.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Line {
    /// The product.
    pub sku: String,
    /// At least one.
    pub quantity: i64,
}

/// Where a parcel goes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Address {
    /// Who gets it.
    pub name: String,
    /// Street and number.
    pub street: String,
    /// Town.
    pub city: String,
    /// Postal code.
    pub postal_code: String,
    /// ISO 3166-1 alpha-2.
    pub country: String,
}

/// Take the money.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CapturePayment {
    /// The order.
    pub order_id: Uuid,
    /// How much.
    pub total: Money,
    /// The provider's token for the customer's means of payment.
    pub payment_method: String,
}

/// Set the goods aside.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReserveStock {
    /// The order.
    pub order_id: Uuid,
    /// Which and how many, each product once.
    pub lines: Vec<Line>,
}

/// Hand the parcel to the carrier.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateShipment {
    /// The order.
    pub order_id: Uuid,
    /// The carrier's product.
    pub service: String,
    /// Where to.
    pub address: Address,
    /// What is inside.
    pub lines: Vec<Line>,
}

/// Undo a step: the same for all of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Undo {
    /// The order.
    pub order_id: Uuid,
}

/// The payload of a step's do.
pub trait StepCommand: Serialize + DeserializeOwned + fmt::Debug + Send + Sync + 'static {
    /// The step.
    const STEP: Step;
    /// The order that it belongs to.
    fn order_id(&self) -> Uuid;
}

/// What a participant is asked: to do its step, or to undo it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command<D> {
    /// Do it.
    Do(D),
    /// Undo it.
    Undo(Undo),
}

impl<D: StepCommand> Command<D> {
    /// Which of the two.
    pub fn direction(&self) -> Direction {
        match self {
            Command::Do(_) => Direction::Do,
            Command::Undo(_) => Direction::Undo,
        }
    }

    /// The order that it belongs to.
    pub fn order_id(&self) -> Uuid {
        match self {
            Command::Do(command) => command.order_id(),
            Command::Undo(undo) => undo.order_id,
        }
    }

    /// The command as a message to its participant, with the business key `sagaId:step:direction`.
    ///
    /// # Errors
    /// Permanent, if it cannot be written as JSON.
    pub fn into_message(self, saga_id: Uuid, cause: Cause) -> Result<Message, Failure> {
        let (step, direction) = (D::STEP, self.direction());
        let aggregate = Aggregate { kind: "Order".into(), id: self.order_id().to_string() };
        let route = topology::command_route(step);
        let message_type = step.command(direction);
        let message = match &self {
            Command::Do(command) => Message::new(message_type, aggregate, route, command, cause),
            Command::Undo(undo) => Message::new(message_type, aggregate, route, undo, cause),
        }?;
        Ok(message.with_idempotency_key(format!("{saga_id}:{}:{}", step.name(), direction.name())))
    }
}

impl<D: StepCommand> Decode for Command<D> {
    fn decode(envelope: &Envelope) -> Result<Self, Failure> {
        let known = |direction| envelope.schema_version == 1 && envelope.event_type == D::STEP.command(direction);
        if known(Direction::Do) {
            Ok(Command::Do(envelope.payload()?))
        } else if known(Direction::Undo) {
            Ok(Command::Undo(envelope.payload()?))
        } else {
            Err(messaging::unknown_type(envelope))
        }
    }
}

impl StepCommand for CapturePayment {
    const STEP: Step = Step::Payment;
    fn order_id(&self) -> Uuid {
        self.order_id
    }
}

impl StepCommand for ReserveStock {
    const STEP: Step = Step::Inventory;
    fn order_id(&self) -> Uuid {
        self.order_id
    }
}

impl StepCommand for CreateShipment {
    const STEP: Step = Step::Shipping;
    fn order_id(&self) -> Uuid {
        self.order_id
    }
}
