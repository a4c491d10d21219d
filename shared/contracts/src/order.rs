//! What the order service tells everybody about an order.

use messaging::{Aggregate, Cause, Decode, Envelope, Failure, Message};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::topology;

/// What happened to an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderEvent {
    /// It was accepted.
    OrderCreated,
    /// The money is there.
    OrderPaid,
    /// The parcel is on its way: the saga has ended well.
    OrderShipped,
    /// Everything was undone.
    OrderCancelled,
    /// It ended with something that a person accepted as it is.
    OrderSettled,
    /// An undo failed or is overdue: a person must look.
    OrderNeedsAttention,
}

impl OrderEvent {
    /// The message type.
    pub fn name(self) -> &'static str {
        match self {
            OrderEvent::OrderCreated => "OrderCreated",
            OrderEvent::OrderPaid => "OrderPaid",
            OrderEvent::OrderShipped => "OrderShipped",
            OrderEvent::OrderCancelled => "OrderCancelled",
            OrderEvent::OrderSettled => "OrderSettled",
            OrderEvent::OrderNeedsAttention => "OrderNeedsAttention",
        }
    }

    /// The event as a message. Only `OrderShipped` must reach a queue: inventory ends the reservation by it.
    ///
    /// # Errors
    /// Permanent, if it cannot be written as JSON.
    pub fn into_message(self, details: &OrderDetails, cause: Cause) -> Result<Message, Failure> {
        let aggregate = Aggregate { kind: "Order".into(), id: details.order_id.to_string() };
        let route = topology::event_route("Order", self.name(), self == OrderEvent::OrderShipped);
        Message::new(self.name(), aggregate, route, details, cause)
    }
}

/// What every event of an order says besides its type.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrderDetails {
    /// The order.
    pub order_id: Uuid,
    /// Why it is being undone, where it is: the code of the rejection, `step_failed`, `step_overdue`, `customer`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
}

/// The one event of an order that inventory acts on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderShipped(pub OrderDetails);

impl Decode for OrderShipped {
    fn decode(envelope: &Envelope) -> Result<Self, Failure> {
        if envelope.event_type == OrderEvent::OrderShipped.name() && envelope.schema_version == 1 {
            Ok(OrderShipped(envelope.payload()?))
        } else {
            Err(messaging::unknown_type(envelope))
        }
    }
}
