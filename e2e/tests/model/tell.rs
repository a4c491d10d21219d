//! Moves in words.

use contracts::step::{Direction, Outcome, Step};
use inventory::domain::Request;
use order::domain::{Attempt, Event, Saga};

use crate::moves::Move;
use crate::third_party::Mood;
use crate::world::World;

/// A move, and where the saga went by it.
pub(crate) fn line(before: &World, played: Move, after: &World) -> String {
    let moved = if before.saga == after.saga { String::new() } else { format!("  => {}", state(after.saga)) };
    format!("{}{moved}", words(played))
}

/// Where a saga stands.
pub(crate) fn state(saga: Saga) -> String {
    match saga.state.names() {
        (name, Some(step)) => format!("{name} {}", step.name()),
        (name, None) => name.to_owned(),
    }
}

fn words(played: Move) -> String {
    match played {
        Move::Order(event) => format!("order: {}", told(event)),
        Move::AnswerFromRecord(step, direction, attempt) => {
            format!("{}{}: the record answers", step.command(direction), of(attempt))
        }
        Move::Begin(step, direction, attempt) => {
            format!("{}{}: the request leaves", step.command(direction), of(attempt))
        }
        Move::Hear(step, direction, _, mood) => {
            format!("{}: the third party {}", step.command(direction), does(direction, mood))
        }
        Move::GiveUp(step, direction, _) => format!("{}: no answer, attempts used up", step.command(direction)),
        Move::Commit(step, direction, _) => format!("{}: commits", step.command(direction)),
        Move::Die(step, direction, _) => format!("{}: the handler dies", step.command(direction)),
        Move::Land(step, direction, mood) => {
            format!("{}: the late request lands, the third party {}", step.command(direction), does(direction, mood))
        }
        Move::Stock(Request::Reserve) => format!("{} is handled", Step::Inventory.command(Direction::Do)),
        Move::Stock(Request::Release) => format!("{} is handled", Step::Inventory.command(Direction::Undo)),
        Move::Stock(Request::Shipped) => "inventory hears OrderShipped".to_owned(),
        Move::Receive => "a piece comes in".to_owned(),
        Move::Sell => "another order takes a piece".to_owned(),
        Move::Park(step, direction) => format!("{} is parked", step.command(direction)),
        Move::Unpark(step, direction) => format!("{} is taken back", step.command(direction)),
    }
}

fn told(event: Event) -> String {
    let answer = |step: Step, outcome| step.answer(outcome).unwrap_or("an answer that is never given");
    match event {
        Event::Done(step) => format!("{} arrives", answer(step, Outcome::Done)),
        Event::Rejected(step) => format!("{} arrives", answer(step, Outcome::Rejected)),
        Event::Failed(step) => format!("{} arrives", answer(step, Outcome::Failed)),
        Event::Undone(step) => format!("{} arrives", answer(step, Outcome::Undone)),
        Event::UndoFailed(step, attempt) => format!("{}{} arrives", answer(step, Outcome::UndoFailed), of(attempt)),
        Event::DoDeadline(step) => format!("deadline of {}", step.command(Direction::Do)),
        Event::UndoDeadline(step, attempt) => format!("deadline of {}{}", step.command(Direction::Undo), of(attempt)),
        Event::Cancel => "the customer cancels".to_owned(),
        Event::Retry => "an operator retries".to_owned(),
        Event::Settle => "an operator settles".to_owned(),
    }
}

fn of(attempt: Attempt) -> &'static str {
    match attempt {
        Attempt::Latest => "",
        Attempt::Stale => " of an earlier attempt",
    }
}

fn does(direction: Direction, mood: Mood) -> &'static str {
    match (direction, mood) {
        (Direction::Do, Mood::Willing) => "answers",
        (Direction::Do, Mood::Unwilling) => "declines",
        (Direction::Undo, Mood::Willing) => "cancels",
        (Direction::Undo, Mood::Unwilling) => "refuses",
    }
}
