//! The functions of the product that the model calls. A mutant replaces one of them.

use contracts::step::Direction;
use inventory::domain::{Contradiction, Rejection, Request, Status};
use messaging::participant::{self, FirstLook, Record, Reply};
use order::domain::{Event, Saga, Transition};
use sandbox::domain::{self as third_party, CancelAnswer, Decision, Stance, TakeAnswer, Verdict};

/// What decides, and where.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// The orchestrator.
    pub(crate) transition: fn(Saga, Event) -> Option<Transition>,
    /// Payment and shipping, before they call.
    pub(crate) first_look: fn(Record, Direction) -> FirstLook,
    /// Payment and shipping, with the record locked.
    pub(crate) decide: fn(Record, Direction, Option<Reply>, bool) -> participant::Decision,
    /// Inventory.
    pub(crate) reserve: fn(Option<Status>, Request, Option<Rejection>) -> Reserving,
    /// The payment provider and the carrier, asked to do something.
    pub(crate) take: fn(Option<Decision>, Verdict) -> third_party::Outcome<TakeAnswer>,
    /// The same, asked to undo it.
    pub(crate) cancel: fn(Option<Decision>, Stance) -> third_party::Outcome<CancelAnswer>,
}

/// What inventory decides.
pub(crate) type Reserving = Result<inventory::domain::Decision, Contradiction>;

/// The product as it is.
pub(crate) const REAL: Rules = Rules {
    transition: order::domain::transition,
    first_look: participant::first_look,
    decide: participant::decide,
    reserve: inventory::domain::decide,
    take: third_party::take,
    cancel: third_party::cancel,
};
