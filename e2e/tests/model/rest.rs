//! What must be so once faults stop: commands are handled, third parties answer, answers arrive, and no customer,
//! operator or accident adds anything. Then every saga comes to its end or to a person, and never goes round for ever.

use contracts::step::{Direction, Outcome, Step};
use inventory::domain::Request;
use order::domain::{Attempt, Event, State};

use crate::explore::{Broken, Explored, id};
use crate::moves::Move;
use crate::world::{OF_DO, OF_UNDO, Side, World};

/// When a move happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum When {
    /// Always, sooner or later.
    Surely,
    /// Where dos have a deadline.
    ByDoDeadline,
    /// Where undos have a deadline.
    ByUndoDeadline,
    /// If a person settles.
    BySettling,
    /// Perhaps never.
    Perhaps,
}

/// When `played` happens in this state.
pub(crate) fn when(world: &World, played: Move) -> When {
    let surely = |is_sure| if is_sure { When::Surely } else { When::Perhaps };
    match played {
        Move::Order(event) => match event {
            Event::Done(_) | Event::Rejected(_) | Event::Failed(_) | Event::Undone(_) | Event::UndoFailed(..) => {
                When::Surely
            }
            Event::DoDeadline(_) => When::ByDoDeadline,
            Event::UndoDeadline(..) => When::ByUndoDeadline,
            Event::Settle => When::BySettling,
            Event::Cancel | Event::Retry => When::Perhaps,
        },
        Move::Begin(step, direction, attempt) | Move::AnswerFromRecord(step, direction, attempt) => {
            surely(attempt == Attempt::Latest && is_unanswered(world, step, direction))
        }
        Move::Stock(request) => match request {
            Request::Reserve => surely(is_unanswered(world, Step::Inventory, Direction::Do)),
            Request::Release => surely(is_unanswered(world, Step::Inventory, Direction::Undo)),
            Request::Shipped => When::Surely,
        },
        Move::Hear(..) | Move::Commit(..) => When::Surely,
        Move::GiveUp(..) | Move::Die(..) | Move::Land(..) => When::Perhaps,
        Move::Receive | Move::Sell | Move::Park(..) | Move::Unpark(..) => When::Perhaps,
    }
}

/// Whether the saga waits for the step's answer, none was sent, and nobody is at work on it.
fn is_unanswered(world: &World, step: Step, direction: Direction) -> bool {
    let side: &Side = world.side(step);
    let (is_waited_for, answers) = match (direction, world.saga.state) {
        (Direction::Do, State::Running(at)) => (at == step, OF_DO),
        (Direction::Undo, State::Compensating(at) | State::NeedsAttention(at)) => (at == step, OF_UNDO),
        _ => return false,
    };
    is_waited_for
        && !side.answers.contain_any(answers)
        && side.handlers[direction as usize].iter().all(|work| work.is_idle())
}

impl Explored {
    /// Every promise at rest, for whatever may have been parked or lost before.
    pub(crate) fn broken_rest(&self) -> Option<Broken> {
        let none_parked = |world: &World, direction| world.sides.iter().all(|side| !side.is_parked(direction));
        let no_undo_parked = |world: &World| none_parked(world, Direction::Undo);
        let nothing_parked = |world: &World| no_undo_parked(world) && none_parked(world, Direction::Do);
        self.unending(nothing_parked, &[When::Surely])
            .or_else(|| self.unending(no_undo_parked, &[When::Surely, When::ByDoDeadline]))
            .or_else(|| self.unending(|_| true, &[When::Surely, When::ByDoDeadline, When::ByUndoDeadline]))
            .or_else(|| self.stuck())
    }

    /// From some state the moves of these kinds go on for ever, or end where nobody knows that anything is wrong.
    fn unending(&self, from: impl Fn(&World) -> bool, kinds: &[When]) -> Option<Broken> {
        let broken = |promise, state| Some(Broken { promise, state: id(state), last: None });
        let inside: Vec<bool> = self.worlds.iter().map(from).collect();
        let calm = |state: usize| {
            self.steps_from(state).iter().filter(|(_, when)| kinds.contains(when)).map(|(to, _)| *to as usize)
        };
        let mut incoming = vec![0_u32; self.worlds.len()];
        for state in (0..self.worlds.len()).filter(|state| inside[*state]) {
            let mut has_next = false;
            for next in calm(state) {
                incoming[next] += 1;
                has_next = true;
            }
            if let (false, Some(promise)) = (has_next, waits_in_vain(&self.worlds[state])) {
                return broken(promise, state);
            }
        }
        // If every state can be taken away, one without a way into it after the other, no way goes round.
        let mut ready: Vec<usize> =
            (0..self.worlds.len()).filter(|state| inside[*state] && incoming[*state] == 0).collect();
        let mut left = inside.iter().filter(|is_inside| **is_inside).count();
        while let Some(state) = ready.pop() {
            left -= 1;
            for next in calm(state) {
                incoming[next] -= 1;
                if inside[next] && incoming[next] == 0 {
                    ready.push(next);
                }
            }
        }
        let circling = (0..self.worlds.len()).find(|state| inside[*state] && incoming[*state] > 0);
        if left > 0 { broken("answers go round for ever", circling.unwrap_or_default()) } else { None }
    }

    /// A state from which no number of retries ends the saga; settling does not count.
    fn stuck(&self) -> Option<Broken> {
        let mut ends: Vec<bool> = self.worlds.iter().map(|world| world.saga.state.is_final()).collect();
        let mut has_changed = true;
        while has_changed {
            has_changed = false;
            for state in (0..self.worlds.len()).rev() {
                let mut ways = self.steps_from(state).iter();
                if !ends[state] && ways.any(|(to, when)| *when != When::BySettling && ends[*to as usize]) {
                    ends[state] = true;
                    has_changed = true;
                }
            }
        }
        let state = ends.iter().position(|ends| !ends)?;
        Some(Broken { promise: "no number of retries can end the saga", state: id(state), last: None })
    }
}

/// Why a saga must not come to rest here.
fn waits_in_vain(world: &World) -> Option<&'static str> {
    match world.saga.state {
        State::Running(_) | State::Compensating(_) => Some("the saga waits for something that never comes"),
        State::NeedsAttention(at) if world.side(at).answers.contain(Outcome::Undone, Attempt::Latest) => {
            Some("a person was called although the undo has succeeded")
        }
        State::Completed if world.stock.reserved > 0 => Some("completed, and the stock stays reserved for ever"),
        _ => None,
    }
}
