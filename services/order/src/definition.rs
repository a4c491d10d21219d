//! The saga's definition: which command each step's do and undo is, and how long it may take.

use std::time::Duration;

use contracts::command::{CapturePayment, Command, CreateShipment, ReserveStock, Undo};
use contracts::step::{Direction, Step};
use messaging::{Cause, Failure, Message};
use uuid::Uuid;

use crate::store::sagas::OrderDetails;

/// How long the saga waits for an answer before it goes on without it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    /// For a do. All attempts of the participant end well before.
    pub(crate) step: Duration,
    /// For an undo. Leaves room for many attempts; after it a person is called.
    pub(crate) undo: Duration,
}

impl Deadlines {
    pub(crate) fn of(&self, direction: Direction) -> Duration {
        match direction {
            Direction::Do => self.step,
            Direction::Undo => self.undo,
        }
    }
}

/// The command of a step, with everything that its participant needs.
pub(crate) fn command(
    step: Step,
    direction: Direction,
    saga_id: Uuid,
    order: &OrderDetails,
    cause: Cause,
) -> Result<Message, Failure> {
    let order_id = order.id;
    match (step, direction) {
        (Step::Payment, Direction::Do) => {
            let (total, payment_method) = (order.total.clone(), order.payment_method.clone());
            Command::Do(CapturePayment { order_id, total, payment_method }).into_message(saga_id, cause)
        }
        (Step::Inventory, Direction::Do) => {
            let lines = order.lines.clone();
            Command::Do(ReserveStock { order_id, lines }).into_message(saga_id, cause)
        }
        (Step::Shipping, Direction::Do) => {
            let (service, address) = (order.shipping.service.clone(), order.shipping.address.clone());
            let lines = order.lines.clone();
            Command::Do(CreateShipment { order_id, service, address, lines }).into_message(saga_id, cause)
        }
        (Step::Payment, Direction::Undo) => {
            Command::<CapturePayment>::Undo(Undo { order_id }).into_message(saga_id, cause)
        }
        (Step::Inventory, Direction::Undo) => {
            Command::<ReserveStock>::Undo(Undo { order_id }).into_message(saga_id, cause)
        }
        (Step::Shipping, Direction::Undo) => {
            Command::<CreateShipment>::Undo(Undo { order_id }).into_message(saga_id, cause)
        }
    }
}
