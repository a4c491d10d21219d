//! States with the same future become one. Each paragraph forgets something that the orchestrator's table, the guards
//! on the records or the third party's first decision have made void; a mutant that breaks such a guard goes without.
//! The random walk checks that nothing is forgotten that matters.

use contracts::step::{Direction, Step};
use messaging::participant::{Record, Reply};
use order::domain::{Attempt, State};
use sandbox::domain::Decision;

use crate::moves::{DIRECTIONS, Model};
use crate::world::{Asked, HANDLERS, OF_DO, OF_UNDO, STALE, Work, World};

impl Model {
    pub(crate) fn merge(&self, world: &mut World) {
        for step in Step::ALL {
            let is_open = world.is_open(step);
            let record = world.record(step);
            let is_undone = matches!(record, Record::Rejected | Record::Undone);
            let side = &mut world.sides[step as usize];

            // Answers that change nothing any more.
            let is_waited_for = matches!(world.saga.state, State::Running(at) if step >= at);
            if !is_waited_for {
                side.answers.forget(OF_DO);
            }
            if !is_open {
                side.answers.forget(OF_UNDO);
                side.is_retried = false;
            }
            side.answers.forget(STALE);

            // Handlers and parked commands that can only be answered from the record, as every later delivery is.
            // While a parked undo is waited for, nothing else would answer.
            let [dos, undos] = &mut side.handlers;
            if record != Record::None {
                *dos = [Work::Idle; HANDLERS];
                unpark(&mut side.asked[Direction::Do as usize]);
            }
            if is_undone && !(is_open && self.bounds.parks) {
                *undos = [Work::Idle; HANDLERS];
            }
            if is_undone && !is_open {
                unpark(&mut side.asked[Direction::Undo as usize]);
            }

            // Which attempt an undo belongs to, once nothing that it can answer depends on it.
            for work in undos {
                *work = match *work {
                    Work::Calling(_) if !is_open => Work::Calling(Attempt::Latest),
                    Work::Heard(_, Reply::GaveBack) => Work::Heard(Attempt::Latest, Reply::GaveBack),
                    Work::Heard(_, Reply::CannotGiveBack) if !is_open => Work::Idle,
                    Work::Heard(Attempt::Stale, Reply::CannotGiveBack) if !self.bounds.parks => Work::Idle,
                    other => other,
                };
            }

            // Requests under a key that is decided.
            side.may_land[Direction::Do as usize] &= side.kept.is_none();
            side.may_land[Direction::Undo as usize] &= matches!(side.kept, None | Some(Decision::Taken));

            // Handlers of one command have no order among themselves.
            for direction in DIRECTIONS {
                let handlers = &mut side.handlers[direction as usize];
                if handlers[1..].iter().any(|work| !work.is_idle()) {
                    handlers.sort_unstable_by_key(|work| rank(*work));
                }
            }
        }
    }
}

fn unpark(asked: &mut Asked) {
    if *asked == Asked::Parked {
        *asked = Asked::Sent;
    }
}

fn rank(work: Work) -> (u8, Attempt, u8) {
    match work {
        Work::Calling(attempt) => (0, attempt, 0),
        Work::Heard(attempt, reply) => (1, attempt, reply as u8),
        Work::Idle => (2, Attempt::Latest, 0),
    }
}
