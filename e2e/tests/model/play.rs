//! What a move changes. Every decision is the product's; here it is only written down, as its transaction would.

use contracts::order::OrderEvent;
use contracts::step::{Direction, Outcome, Step};
use inventory::domain::{Answer as StockAnswer, Movement, Rejection, Request, Status};
use messaging::participant::{Answer, Reply};
use order::domain::{Attempt, Event};
use sandbox::domain::Effect;

use crate::moves::{Model, Move};
use crate::third_party::{self, Mood};
use crate::world::{Asked, Side, Stock, Work, World};

impl Model {
    /// The world after a move.
    pub(crate) fn play(&self, before: &World, played: Move) -> World {
        let mut world = *before;
        match played {
            Move::Order(event) => self.order(&mut world, event),
            Move::AnswerFromRecord(step, direction, attempt) => {
                self.apply(world.side_mut(step), step, direction, attempt, None);
            }
            Move::Begin(step, direction, attempt) => {
                let side = world.side_mut(step);
                side.may_land[direction as usize] = true;
                let idle = side.handlers[direction as usize].iter_mut().find(|work| work.is_idle());
                *idle.expect("a handler begins only where one is idle") = Work::Calling(attempt);
            }
            Move::Hear(step, direction, at, mood) => {
                let side = world.side_mut(step);
                let reply = self.land(side, direction, mood);
                let work = &mut side.handlers[direction as usize][usize::from(at)];
                *work = Work::Heard(work.attempt(), reply);
            }
            Move::GiveUp(step, direction, at) => {
                let side = world.side_mut(step);
                let work = end(side, direction, at);
                self.apply(side, step, direction, work.attempt(), Some(Reply::Silence));
            }
            Move::Commit(step, direction, at) => {
                let side = world.side_mut(step);
                if let Work::Heard(attempt, reply) = end(side, direction, at) {
                    self.apply(side, step, direction, attempt, Some(reply));
                }
            }
            Move::Die(step, direction, at) => {
                end(world.side_mut(step), direction, at);
            }
            Move::Land(step, direction, mood) => {
                self.land(world.side_mut(step), direction, mood);
            }
            Move::Stock(request) => self.stock(&mut world, request),
            Move::Receive => {
                let Stock { available, total, moves_left, .. } = world.stock;
                world.stock =
                    Stock { available: available + 1, total: total + 1, moves_left: moves_left - 1, ..world.stock };
            }
            Move::Sell => {
                let Stock { available, total, moves_left, .. } = world.stock;
                world.stock =
                    Stock { available: available - 1, total: total - 1, moves_left: moves_left - 1, ..world.stock };
            }
            Move::Park(step, direction) => world.side_mut(step).asked[direction as usize] = Asked::Parked,
            Move::Unpark(step, direction) => world.side_mut(step).asked[direction as usize] = Asked::Sent,
        }
        if self.bounds.merges {
            self.merge(&mut world);
        }
        world
    }

    /// One transaction: state, steps and messages.
    fn order(&self, world: &mut World, event: Event) {
        let Some(transition) = (self.rules.transition)(world.saga, event) else { return };
        if let (Event::Settle, (_, Some(step))) = (event, world.saga.state.names()) {
            world.settled[step as usize] = true;
        }
        world.saga = transition.saga;
        world.is_shipped |= transition.event == Some(OrderEvent::OrderShipped);
        if let Some((step, direction)) = transition.command {
            world.side_mut(step).ask(direction);
        }
    }

    /// One transaction of payment or shipping, at a command's last attempt.
    fn apply(&self, side: &mut Side, step: Step, direction: Direction, attempt: Attempt, reply: Option<Reply>) {
        let decision = (self.rules.decide)(side.record, direction, reply, true);
        side.record = decision.record;
        let outcome = match decision.answer {
            Some(Answer::Done) => Outcome::Done,
            Some(Answer::Rejected | Answer::RejectedAsUndone) => Outcome::Rejected,
            Some(Answer::Failed) => Outcome::Failed,
            Some(Answer::Undone) => Outcome::Undone,
            Some(Answer::UndoFailed) => Outcome::UndoFailed,
            None => return,
        };
        assert!(step.answer(outcome).is_some(), "{step:?} has no answer for {outcome:?}");
        side.answers.insert(outcome, attempt);
    }

    /// The third party takes a request.
    fn land(&self, side: &mut Side, direction: Direction, mood: Mood) -> Reply {
        let said = third_party::ask(&self.rules, side.kept, direction, mood);
        side.kept = said.decision;
        side.effects += u8::from(said.effect == Some(Effect::Take));
        side.reversals += u8::from(said.effect == Some(Effect::GiveBack));
        said.reply
    }

    /// One transaction of inventory.
    fn stock(&self, world: &mut World, request: Request) {
        let shortage = match world.reservation {
            None => (world.stock.available == 0).then_some(Rejection::OutOfStock),
            // What was written down with the refusal.
            Some(Status::Rejected) => Some(Rejection::OutOfStock),
            Some(Status::Reserved | Status::Committed | Status::Released) => None,
        };
        // A message that contradicts the record is parked and changes nothing.
        let Ok(decision) = (self.rules.reserve)(world.reservation, request, shortage) else { return };
        world.reservation = decision.status;
        let Stock { available, reserved, shipped, .. } = world.stock;
        let (available, reserved, shipped) = match decision.movement {
            Movement::Nothing => (available, reserved, shipped),
            Movement::Reserve => (available.saturating_sub(1), reserved + 1, shipped),
            // Other orders have pieces set aside too: nothing stops one release too many.
            Movement::Release => (available + 1, reserved.saturating_sub(1), shipped),
            Movement::Ship => (available, reserved.saturating_sub(1), shipped + 1),
        };
        world.stock = Stock { available, reserved, shipped, ..world.stock };
        let outcome = match decision.answer {
            Some(StockAnswer::Reserved) => Outcome::Done,
            Some(StockAnswer::Rejected(_)) => Outcome::Rejected,
            Some(StockAnswer::Released | StockAnswer::Barred) => Outcome::Undone,
            None => return,
        };
        world.side_mut(Step::Inventory).answers.insert(outcome, Attempt::Latest);
    }
}

/// Ends a handler's work and returns it.
fn end(side: &mut Side, direction: Direction, at: u8) -> Work {
    std::mem::take(&mut side.handlers[direction as usize][usize::from(at)])
}
