//! The saga's rules: every state, every event, and what follows. Pure functions over plain values; whoever calls them
//! holds the saga's row lock and commits state, steps and messages together.

use contracts::order::OrderEvent;
use contracts::step::{Direction, Outcome, Step};

pub mod cart;
mod state;

pub use state::{ErrorType, Ignored, Saga, State, Status};

/// Whether something is about the latest command of an undo, or about one before an operator's retry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Attempt {
    /// The latest.
    Latest,
    /// An earlier one.
    Stale,
}

/// What can happen to a saga.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Event {
    /// The step's effect is there.
    Done(Step),
    /// The step's effect is not there and never will be.
    Rejected(Step),
    /// Nobody knows whether the step's effect is there.
    Failed(Step),
    /// The do was not answered in time.
    DoDeadline(Step),
    /// Nothing is left of the step's effect.
    Undone(Step),
    /// The step's effect cannot be given back.
    UndoFailed(Step, Attempt),
    /// The undo was not answered in time.
    UndoDeadline(Step, Attempt),
    /// The customer does not want it any more.
    Cancel,
    /// An operator wants the undo tried again.
    Retry,
    /// An operator accepts the step's effect as it is.
    Settle,
}

/// A step's do or undo has come to a status.
pub type Mark = (Step, Direction, Status);

/// What follows from an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transition {
    /// The saga afterwards.
    pub saga: Saga,
    /// How the step that was open ended.
    pub mark: Option<Mark>,
    /// What is asked next.
    pub command: Option<(Step, Direction)>,
    /// What everybody is told.
    pub event: Option<OrderEvent>,
}

/// What follows from a new order.
pub fn start() -> Transition {
    Transition {
        saga: Saga { state: State::Running(Step::Payment), has_settled: false },
        mark: None,
        command: Some((Step::Payment, Direction::Do)),
        event: Some(OrderEvent::OrderCreated),
    }
}

/// What follows from an event. `None`: it is recorded and changes nothing.
pub fn transition(saga: Saga, event: Event) -> Option<Transition> {
    use State::{Compensating, NeedsAttention, Running};
    let did = |step, status| Some((step, Direction::Do, status));
    let undid = |step, status| Some((step, Direction::Undo, status));
    match (saga.state, event) {
        (Running(at), Event::Done(step)) if step == at => Some(forward(saga, at)),
        (Running(at), Event::Rejected(step)) if step == at => {
            Some(undo(saga, at.previous(), did(at, Status::Rejected)))
        }
        // Nobody knows whether it took effect, so the step itself is undone too.
        (Running(at), Event::Failed(step)) if step == at => Some(undo(saga, Some(at), did(at, Status::Failed))),
        (Running(at), Event::DoDeadline(step)) if step == at => Some(undo(saga, Some(at), did(at, Status::Overdue))),
        (Running(at), Event::Cancel) => Some(undo(saga, Some(at), did(at, Status::Abandoned))),

        // The late success of an undo counts even when a person was called.
        (Compensating(at) | NeedsAttention(at), Event::Undone(step)) if step == at => {
            Some(undo(saga, at.previous(), undid(at, Status::Done)))
        }
        (Compensating(at), Event::UndoFailed(step, Attempt::Latest)) if step == at => {
            Some(call_a_person(saga, at, Status::Failed))
        }
        (Compensating(at), Event::UndoDeadline(step, Attempt::Latest)) if step == at => {
            Some(call_a_person(saga, at, Status::Overdue))
        }

        (NeedsAttention(at), Event::Retry) => Some(undo(saga, Some(at), None)),
        (NeedsAttention(at), Event::Settle) => {
            Some(undo(Saga { has_settled: true, ..saga }, at.previous(), undid(at, Status::Settled)))
        }
        _ => None,
    }
}

fn forward(saga: Saga, at: Step) -> Transition {
    let (state, command, event) = match at.next() {
        Some(next) => {
            let paid = (at == Step::Payment).then_some(OrderEvent::OrderPaid);
            (State::Running(next), Some((next, Direction::Do)), paid)
        }
        None => (State::Completed, None, Some(OrderEvent::OrderShipped)),
    };
    Transition { saga: Saga { state, ..saga }, mark: Some((at, Direction::Do, Status::Done)), command, event }
}

/// Undoes `step`; with nothing left to undo the saga ends.
fn undo(saga: Saga, step: Option<Step>, mark: Option<Mark>) -> Transition {
    let (state, command, event) = match step {
        Some(step) => (State::Compensating(step), Some((step, Direction::Undo)), None),
        None if saga.has_settled => (State::Settled, None, Some(OrderEvent::OrderSettled)),
        None => (State::Cancelled, None, Some(OrderEvent::OrderCancelled)),
    };
    Transition { saga: Saga { state, ..saga }, mark, command, event }
}

fn call_a_person(saga: Saga, at: Step, status: Status) -> Transition {
    Transition {
        saga: Saga { state: State::NeedsAttention(at), ..saga },
        mark: Some((at, Direction::Undo, status)),
        command: None,
        event: Some(OrderEvent::OrderNeedsAttention),
    }
}

/// The event that an answer means. `is_latest`: it answers the latest command of its step and direction.
pub fn event_of(step: Step, outcome: Outcome, is_latest: bool) -> Event {
    let attempt = if is_latest { Attempt::Latest } else { Attempt::Stale };
    match outcome {
        Outcome::Done => Event::Done(step),
        Outcome::Rejected => Event::Rejected(step),
        Outcome::Failed => Event::Failed(step),
        Outcome::Undone => Event::Undone(step),
        Outcome::UndoFailed => Event::UndoFailed(step, attempt),
    }
}

/// Which direction an answer is about, and the status that it claims.
pub fn claim_of(outcome: Outcome) -> (Direction, Status) {
    match outcome {
        Outcome::Done => (Direction::Do, Status::Done),
        Outcome::Rejected => (Direction::Do, Status::Rejected),
        Outcome::Failed => (Direction::Do, Status::Failed),
        Outcome::Undone => (Direction::Undo, Status::Done),
        Outcome::UndoFailed => (Direction::Undo, Status::Failed),
    }
}

/// How an answer without a transition is recorded. `status` is its step row's.
pub fn ignored(event: Event, claimed: Status, status: Status) -> Ignored {
    match event {
        Event::UndoFailed(_, Attempt::Stale) => Ignored::Stale,
        _ if claimed == status => Ignored::Repeated,
        _ => Ignored::Late,
    }
}

/// An ignored answer that is shown all the same: in `needs_attention` the failure of the latest undo turns its row from
/// overdue to failed.
pub fn shown(saga: Saga, event: Event, status: Status) -> Option<Mark> {
    match (saga.state, event) {
        (State::NeedsAttention(at), Event::UndoFailed(step, Attempt::Latest))
            if step == at && status == Status::Overdue =>
        {
            Some((step, Direction::Undo, Status::Failed))
        }
        _ => None,
    }
}

/// Why a saga left `running`: a stable code, and whether the business or the machine said no.
pub fn reason(event: Event, code: Option<&str>) -> Option<(String, ErrorType)> {
    match event {
        Event::Rejected(_) => Some((code.unwrap_or("rejected").to_owned(), ErrorType::Business)),
        Event::Failed(_) => Some(("step_failed".to_owned(), ErrorType::Technical)),
        Event::DoDeadline(_) => Some(("step_overdue".to_owned(), ErrorType::Technical)),
        Event::Cancel => Some(("customer".to_owned(), ErrorType::Business)),
        Event::Done(_)
        | Event::Undone(_)
        | Event::UndoFailed(..)
        | Event::UndoDeadline(..)
        | Event::Retry
        | Event::Settle => None,
    }
}

#[cfg(test)]
mod tests;
