//! Everything there is while one saga runs: its row, what was sent, the participants' records, the handlers at work,
//! what the third parties keep, the stock. Two copies that are equal have the same future.

use contracts::step::{Direction, Outcome, Step};
use inventory::domain::Status;
use messaging::participant::{Record, Reply};
use order::domain::{Attempt, Saga, State};
use sandbox::domain::Decision;

/// The most handlers of one command that run at once.
pub(crate) const HANDLERS: usize = 3;

/// The world around one saga.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct World {
    pub(crate) saga: Saga,
    /// The steps that a person settled, one by one; the saga itself only knows whether there are any.
    pub(crate) settled: [bool; 3],
    /// `OrderShipped` was sent.
    pub(crate) is_shipped: bool,
    pub(crate) sides: [Side; 3],
    /// What inventory wrote down; payment and shipping have theirs in their [`Side`].
    pub(crate) reservation: Option<Status>,
    pub(crate) stock: Stock,
}

/// What there is of one step outside the saga's own row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Side {
    /// Its commands, by direction.
    pub(crate) asked: [Asked; 2],
    /// Its undo was sent more than once.
    pub(crate) is_retried: bool,
    pub(crate) answers: Answers,
    pub(crate) record: Record,
    /// What the third party keeps under the step's key.
    pub(crate) kept: Option<Decision>,
    /// How often the third party took effect.
    pub(crate) effects: u8,
    /// How often it gave back.
    pub(crate) reversals: u8,
    /// Requests, by direction, that may reach the third party at any time from now on.
    pub(crate) may_land: [bool; 2],
    pub(crate) handlers: [[Work; HANDLERS]; 2],
}

/// Whether a command was sent, and whether it can be delivered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Asked {
    /// Not sent.
    #[default]
    Never,
    /// Sent: it may be delivered now and always.
    Sent,
    /// Sent and set aside, until it is taken back.
    Parked,
}

/// Where a handler stands that has to call a third party.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Work {
    /// There is none.
    #[default]
    Idle,
    /// Its request has left.
    Calling(Attempt),
    /// It has its reply and has not committed.
    Heard(Attempt, Reply),
}

/// Pieces of the one product.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Stock {
    pub(crate) available: u8,
    pub(crate) reserved: u8,
    pub(crate) shipped: u8,
    /// All that were ever there, less what other orders took.
    pub(crate) total: u8,
    /// How often something besides this saga may still change it.
    pub(crate) moves_left: u8,
}

/// Every answer of one step that was ever sent: it may be delivered now and always.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Answers(u8);

/// Answers to a do.
pub(crate) const OF_DO: Answers = Answers(0b00_0111);
/// Answers to the latest undo.
pub(crate) const OF_UNDO: Answers = Answers(0b01_1000);
/// A failure of an earlier undo.
pub(crate) const STALE: Answers = Answers(0b10_0000);

impl Answers {
    fn bit(outcome: Outcome, attempt: Attempt) -> u8 {
        match (outcome, attempt) {
            (Outcome::UndoFailed, Attempt::Stale) => STALE.0,
            _ => 1 << outcome as u8,
        }
    }

    pub(crate) fn insert(&mut self, outcome: Outcome, attempt: Attempt) {
        self.0 |= Answers::bit(outcome, attempt);
    }

    pub(crate) fn contain(self, outcome: Outcome, attempt: Attempt) -> bool {
        self.0 & Answers::bit(outcome, attempt) != 0
    }

    pub(crate) fn contain_any(self, of: Answers) -> bool {
        self.0 & of.0 != 0
    }

    /// Whether both done and rejected were answered.
    pub(crate) fn contradict(self) -> bool {
        self.contain(Outcome::Done, Attempt::Latest) && self.contain(Outcome::Rejected, Attempt::Latest)
    }

    pub(crate) fn forget(&mut self, these: Answers) {
        self.0 &= !these.0;
    }

    /// The undo was sent again: a failure of the one before is now stale.
    fn age(&mut self) {
        let failed = Answers::bit(Outcome::UndoFailed, Attempt::Latest);
        if self.0 & failed != 0 {
            self.0 = self.0 & !failed | STALE.0;
        }
    }
}

impl Work {
    pub(crate) fn attempt(self) -> Attempt {
        match self {
            Work::Idle => Attempt::Latest,
            Work::Calling(attempt) | Work::Heard(attempt, _) => attempt,
        }
    }

    pub(crate) fn is_idle(self) -> bool {
        self == Work::Idle
    }

    fn age(&mut self) {
        *self = match *self {
            Work::Idle => Work::Idle,
            Work::Calling(_) => Work::Calling(Attempt::Stale),
            Work::Heard(_, reply) => Work::Heard(Attempt::Stale, reply),
        };
    }
}

impl Side {
    pub(crate) fn is_asked(&self, direction: Direction) -> bool {
        self.asked[direction as usize] != Asked::Never
    }

    pub(crate) fn is_parked(&self, direction: Direction) -> bool {
        self.asked[direction as usize] == Asked::Parked
    }

    /// Sends a command.
    pub(crate) fn ask(&mut self, direction: Direction) {
        if !self.is_asked(direction) {
            self.asked[direction as usize] = Asked::Sent;
        } else if direction == Direction::Undo {
            self.is_retried = true;
            self.answers.age();
            self.handlers[Direction::Undo as usize].iter_mut().for_each(Work::age);
        }
    }
}

impl World {
    /// A saga that has just been started with `available` pieces in stock.
    pub(crate) fn start(available: u8, moves_left: u8) -> World {
        let started = order::domain::start();
        let stock = Stock { available, reserved: 0, shipped: 0, total: available, moves_left };
        let mut world = World {
            saga: started.saga,
            settled: [false; 3],
            is_shipped: false,
            sides: [Side::default(); 3],
            reservation: None,
            stock,
        };
        if let Some((step, direction)) = started.command {
            world.side_mut(step).ask(direction);
        }
        world
    }

    pub(crate) fn side(&self, step: Step) -> &Side {
        &self.sides[step as usize]
    }

    pub(crate) fn side_mut(&mut self, step: Step) -> &mut Side {
        &mut self.sides[step as usize]
    }

    /// What the step's participant has written down.
    pub(crate) fn record(&self, step: Step) -> Record {
        match (step, self.reservation) {
            (Step::Payment | Step::Shipping, _) => self.side(step).record,
            (Step::Inventory, None) => Record::None,
            (Step::Inventory, Some(Status::Reserved | Status::Committed)) => Record::Done,
            (Step::Inventory, Some(Status::Rejected)) => Record::Rejected,
            (Step::Inventory, Some(Status::Released)) => Record::Undone,
        }
    }

    /// Whether the step's effect is there: at the third party, or in the stock.
    pub(crate) fn stands(&self, step: Step) -> bool {
        match step {
            Step::Payment | Step::Shipping => self.side(step).kept == Some(Decision::Taken),
            Step::Inventory => self.stock.reserved + self.stock.shipped > 0,
        }
    }

    /// Whether the saga can still come to wait for the step's undo, or waits for it.
    pub(crate) fn is_open(&self, step: Step) -> bool {
        match self.saga.state {
            State::Running(_) => true,
            State::Compensating(at) | State::NeedsAttention(at) => step <= at,
            State::Completed | State::Cancelled | State::Settled => false,
        }
    }
}
