//! What can happen next. Whatever was sent can be delivered at any time, any number of times; handlers begin, hear and
//! commit one by one and die in between; deadlines, customers and operators act when they like.

use contracts::step::{Direction, Outcome, Step};
use inventory::domain::Request;
use messaging::participant::FirstLook;
use order::domain::{Attempt, Event, event_of};

use crate::rules::Rules;
use crate::third_party::{self, Mood};
use crate::world::{Asked, Work, World};

/// The steps whose effect is at a third party.
pub(crate) const CALLING: [Step; 2] = [Step::Payment, Step::Shipping];
pub(crate) const DIRECTIONS: [Direction; 2] = [Direction::Do, Direction::Undo];

const OUTCOMES: [Outcome; 4] = [Outcome::Done, Outcome::Rejected, Outcome::Failed, Outcome::Undone];
const ATTEMPTS: [Attempt; 2] = [Attempt::Latest, Attempt::Stale];

/// One thing that happens. Handlers are told apart by their place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Move {
    /// The saga takes an event.
    Order(Event),
    /// A command is delivered, and the record answers it.
    AnswerFromRecord(Step, Direction, Attempt),
    /// A command is delivered, and its request leaves for the third party.
    Begin(Step, Direction, Attempt),
    /// The third party takes the request and is heard.
    Hear(Step, Direction, u8, Mood),
    /// Nothing is heard, and the attempts are used up.
    GiveUp(Step, Direction, u8),
    /// What was heard is committed.
    Commit(Step, Direction, u8),
    /// The handler's process dies.
    Die(Step, Direction, u8),
    /// A request that nobody waits for reaches the third party.
    Land(Step, Direction, Mood),
    /// Inventory handles a message.
    Stock(Request),
    /// A piece comes in.
    Receive,
    /// Another order takes a piece.
    Sell,
    /// A command is set aside; if it is never taken back it is lost.
    Park(Step, Direction),
    /// It is taken back.
    Unpark(Step, Direction),
}

/// How far the world goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Handlers of one command that run at once.
    pub(crate) handlers: usize,
    /// Whether commands are parked and lost.
    pub(crate) parks: bool,
    /// Whether operators settle; they always retry.
    pub(crate) settles: bool,
    /// How often the stock changes by itself.
    pub(crate) stock_moves: u8,
    /// Whether states with the same future become one.
    pub(crate) merges: bool,
}

/// The rules in a world of some size.
#[derive(Clone, Copy)]
pub(crate) struct Model {
    pub(crate) rules: Rules,
    pub(crate) bounds: Bounds,
}

/// Every event that can reach the saga, whether or not it changes anything.
pub(crate) fn events(world: &World, bounds: &Bounds) -> Vec<Event> {
    let mut events = vec![Event::Cancel, Event::Retry];
    if bounds.settles {
        events.push(Event::Settle);
    }
    for step in Step::ALL {
        let side = world.side(step);
        let answered = OUTCOMES.into_iter().filter(|outcome| side.answers.contain(*outcome, Attempt::Latest));
        events.extend(answered.map(|outcome| event_of(step, outcome, true)));
        for attempt in ATTEMPTS {
            if side.answers.contain(Outcome::UndoFailed, attempt) {
                events.push(event_of(step, Outcome::UndoFailed, attempt == Attempt::Latest));
            }
        }
        if side.is_asked(Direction::Do) {
            events.push(Event::DoDeadline(step));
        }
        if side.is_asked(Direction::Undo) {
            events.push(Event::UndoDeadline(step, Attempt::Latest));
        }
        if side.is_retried {
            events.push(Event::UndoDeadline(step, Attempt::Stale));
        }
    }
    events
}

impl Model {
    /// Every move that may change something.
    pub(crate) fn moves(&self, world: &World) -> Vec<Move> {
        let mut moves = Vec::with_capacity(48);
        for event in events(world, &self.bounds) {
            if (self.rules.transition)(world.saga, event).is_some() {
                moves.push(Move::Order(event));
            }
        }
        for step in CALLING {
            for direction in DIRECTIONS {
                self.deliveries(world, step, direction, &mut moves);
                self.handlers(world, step, direction, &mut moves);
                if world.side(step).may_land[direction as usize] {
                    let moods = self.moods(world, step, direction);
                    moves.extend(moods.iter().map(|mood| Move::Land(step, direction, *mood)));
                }
            }
        }
        inventory(world, &mut moves);
        if self.bounds.parks {
            parking(world, &mut moves);
        }
        moves
    }

    fn deliveries(&self, world: &World, step: Step, direction: Direction, moves: &mut Vec<Move>) {
        let side = world.side(step);
        if side.asked[direction as usize] != Asked::Sent {
            return;
        }
        let calls = (self.rules.first_look)(side.record, direction) == FirstLook::Call;
        let busy = side.handlers[direction as usize].iter().filter(|work| !work.is_idle()).count();
        for attempt in ATTEMPTS {
            let was_sent = attempt == Attempt::Latest || (direction == Direction::Undo && side.is_retried);
            match (was_sent, calls) {
                (true, false) => moves.push(Move::AnswerFromRecord(step, direction, attempt)),
                (true, true) if busy < self.bounds.handlers => moves.push(Move::Begin(step, direction, attempt)),
                _ => {}
            }
        }
    }

    fn handlers(&self, world: &World, step: Step, direction: Direction, moves: &mut Vec<Move>) {
        for (at, work) in (0_u8..).zip(world.side(step).handlers[direction as usize]) {
            match work {
                Work::Idle => continue,
                Work::Calling(_) => {
                    let moods = self.moods(world, step, direction);
                    moves.extend(moods.iter().map(|mood| Move::Hear(step, direction, at, *mood)));
                    moves.push(Move::GiveUp(step, direction, at));
                }
                Work::Heard(..) => moves.push(Move::Commit(step, direction, at)),
            }
            moves.push(Move::Die(step, direction, at));
        }
    }

    /// Both moods where the third party may choose, else one.
    fn moods(&self, world: &World, step: Step, direction: Direction) -> &'static [Mood] {
        let ask = |mood| third_party::ask(&self.rules, world.side(step).kept, direction, mood);
        if ask(Mood::Willing) == ask(Mood::Unwilling) { &[Mood::Willing] } else { &[Mood::Willing, Mood::Unwilling] }
    }
}

fn inventory(world: &World, moves: &mut Vec<Move>) {
    for (direction, request) in [(Direction::Do, Request::Reserve), (Direction::Undo, Request::Release)] {
        if world.side(Step::Inventory).asked[direction as usize] == Asked::Sent {
            moves.push(Move::Stock(request));
        }
    }
    if world.is_shipped {
        moves.push(Move::Stock(Request::Shipped));
    }
    if world.stock.moves_left > 0 {
        moves.push(Move::Receive);
        if world.stock.available > 0 {
            moves.push(Move::Sell);
        }
    }
}

fn parking(world: &World, moves: &mut Vec<Move>) {
    for step in Step::ALL {
        for direction in DIRECTIONS {
            match world.side(step).asked[direction as usize] {
                Asked::Never => {}
                Asked::Sent => moves.push(Move::Park(step, direction)),
                Asked::Parked => moves.push(Move::Unpark(step, direction)),
            }
        }
    }
}
