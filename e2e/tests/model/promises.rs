//! What must hold, whatever happened and whatever is still in flight.

use contracts::step::{Direction, Step};
use inventory::domain::Status;
use messaging::participant::Record;
use order::domain::{Attempt, Event, State};
use sandbox::domain::Decision;

use crate::moves::Move;
use crate::world::World;

/// What must hold after a move: before it, the move, after it.
pub(crate) type Judge = fn(&World, Move, &World) -> Option<&'static str>;

/// All promises.
pub(crate) fn all(before: &World, played: Move, after: &World) -> Option<&'static str> {
    broken_promise(after).or_else(|| broken_state(after)).or_else(|| broken_move(before, played, after))
}

/// Only those that somebody outside would notice.
pub(crate) fn noticed(_before: &World, _played: Move, after: &World) -> Option<&'static str> {
    broken_promise(after)
}

/// What a customer, a warehouse or an accountant would notice.
fn broken_promise(world: &World) -> Option<&'static str> {
    if world.sides.iter().any(|side| side.effects > 1) {
        return Some("the third party took effect twice");
    }
    if world.sides.iter().any(|side| side.reversals > 1) {
        return Some("the third party gave back twice");
    }
    let stock = &world.stock;
    if stock.reserved + stock.shipped > 1 {
        return Some("stock was reserved twice");
    }
    if stock.available + stock.reserved + stock.shipped != stock.total {
        return Some("stock was created or lost");
    }
    let stands = |step| world.stands(step);
    let is_settled = |step| world.settled[step as usize];
    let is_refunded = world.side(Step::Payment).kept == Some(Decision::GivenBack);
    let is_released = world.reservation == Some(Status::Released);
    if (is_refunded || is_released) && stands(Step::Shipping) && !is_settled(Step::Shipping) {
        return Some("the parcel travels, but money or stock was given back");
    }
    match world.saga.state {
        State::Completed if !Step::ALL.into_iter().all(stands) => Some("completed without all three effects"),
        State::Cancelled if Step::ALL.into_iter().any(stands) => Some("cancelled while an effect stands"),
        State::Settled if Step::ALL.into_iter().any(|step| stands(step) && !is_settled(step)) => {
            Some("settled while an effect stands that nobody settled")
        }
        _ => None,
    }
}

/// What must hold on the way, so that the promises are kept for the right reason.
fn broken_state(world: &World) -> Option<&'static str> {
    for side in &world.sides {
        if side.is_asked(Direction::Undo) && !side.is_asked(Direction::Do) {
            return Some("an undo was sent for a step that was never asked");
        }
        if side.answers.contradict() && !side.is_asked(Direction::Undo) {
            return Some("a step was answered both done and rejected");
        }
    }
    let is_committed = world.reservation == Some(Status::Committed);
    if is_committed && world.side(Step::Inventory).is_asked(Direction::Undo) {
        return Some("stock of a shipped order was asked back");
    }
    if world.is_shipped && world.record(Step::Inventory) != Record::Done {
        return Some("an order was shipped without its reservation");
    }
    let is_undone = |step| matches!(world.record(step), Record::Rejected | Record::Undone);
    let is_asked = |step| world.side(step).is_asked(Direction::Do);
    let mut steps = Step::ALL.into_iter();
    match world.saga.state {
        State::Completed if !steps.all(|step| world.record(step) == Record::Done) => {
            Some("completed, but a participant's record says otherwise")
        }
        State::Cancelled if steps.any(|step| is_asked(step) && !is_undone(step)) => {
            Some("cancelled, but a participant's record says otherwise")
        }
        State::Running(at) if steps.any(|step| step < at && !world.stands(step)) => {
            Some("running on a step whose predecessor has no effect")
        }
        State::Compensating(at) | State::NeedsAttention(at)
            if steps.any(|step| step > at && world.stands(step) && !world.settled[step as usize]) =>
        {
            Some("undo went past a step whose effect stands")
        }
        _ => None,
    }
}

/// What a single move must not do.
fn broken_move(before: &World, played: Move, after: &World) -> Option<&'static str> {
    let Move::Order(event) = played else { return None };
    if before.saga.state.is_final() && before.saga != after.saga {
        return Some("a final state was left");
    }
    let is_undoing = before.sides.iter().any(|side| side.is_asked(Direction::Undo));
    let dos = |world: &World| Step::ALL.map(|step| world.side(step).is_asked(Direction::Do));
    if is_undoing && dos(before) != dos(after) {
        return Some("a do was sent after an undo");
    }
    let waits = |world: &World| matches!(world.saga.state, State::NeedsAttention(_));
    let is_reason = matches!(event, Event::UndoFailed(_, Attempt::Latest) | Event::UndoDeadline(_, Attempt::Latest));
    if waits(after) && !waits(before) && !is_reason {
        return Some("a person was called although the latest undo neither failed nor is overdue");
    }
    None
}
