//! Where a saga and its steps stand, and the names of it in rows, answers and spans.

use contracts::step::Step;

/// Where a saga stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum State {
    /// The step's do is asked.
    Running(Step),
    /// The step's undo is asked.
    Compensating(Step),
    /// The step's undo failed or is overdue: it waits for a person, or for the undo's late success.
    NeedsAttention(Step),
    /// Everything was done.
    Completed,
    /// Everything was undone.
    Cancelled,
    /// It ended with something that a person accepted as it is.
    Settled,
}

/// A saga: where it stands, and whether a person has settled one of its steps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Saga {
    /// Where it stands.
    pub state: State,
    /// Whether it will end as settled rather than cancelled.
    pub has_settled: bool,
}

/// The status of a step's do or undo.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Status {
    /// The command is on its way.
    Asked,
    /// It took effect, or was undone.
    Done,
    /// It was refused.
    Rejected,
    /// It failed.
    Failed,
    /// It was not answered in time.
    Overdue,
    /// The customer cancelled first.
    Abandoned,
    /// A person accepted it as it is.
    Settled,
}

/// How an answer that changes nothing came to be ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ignored {
    /// The saga had gone on without it.
    Late,
    /// It said so before.
    Repeated,
    /// A failure of an earlier attempt.
    Stale,
}

/// Who said no.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorType {
    /// The rules.
    Business,
    /// The machine.
    Technical,
}

impl ErrorType {
    /// The name in rows, answers and logs.
    pub fn name(self) -> &'static str {
        match self {
            ErrorType::Business => "Business",
            ErrorType::Technical => "Technical",
        }
    }
}

impl State {
    /// The name in rows, and the step where there is one.
    pub fn names(self) -> (&'static str, Option<Step>) {
        match self {
            State::Running(step) => ("running", Some(step)),
            State::Compensating(step) => ("compensating", Some(step)),
            State::NeedsAttention(step) => ("needs_attention", Some(step)),
            State::Completed => ("completed", None),
            State::Cancelled => ("cancelled", None),
            State::Settled => ("settled", None),
        }
    }

    /// The state with this name and step.
    pub fn named(name: &str, step: Option<Step>) -> Option<State> {
        match (name, step) {
            ("running", Some(step)) => Some(State::Running(step)),
            ("compensating", Some(step)) => Some(State::Compensating(step)),
            ("needs_attention", Some(step)) => Some(State::NeedsAttention(step)),
            ("completed", None) => Some(State::Completed),
            ("cancelled", None) => Some(State::Cancelled),
            ("settled", None) => Some(State::Settled),
            _ => None,
        }
    }

    /// Whether nothing will ever change it.
    pub fn is_final(self) -> bool {
        matches!(self, State::Completed | State::Cancelled | State::Settled)
    }
}

pub(super) const STATUSES: [(Status, &str); 7] = [
    (Status::Asked, "asked"),
    (Status::Done, "done"),
    (Status::Rejected, "rejected"),
    (Status::Failed, "failed"),
    (Status::Overdue, "overdue"),
    (Status::Abandoned, "abandoned"),
    (Status::Settled, "settled"),
];

impl Status {
    /// The name in rows and answers.
    pub fn name(self) -> &'static str {
        STATUSES[self as usize].1
    }

    /// The status with this name.
    pub fn named(name: &str) -> Option<Status> {
        STATUSES.iter().find(|(_, known)| *known == name).map(|(status, _)| *status)
    }
}

impl Ignored {
    /// The name in rows and spans.
    pub fn name(self) -> &'static str {
        match self {
            Ignored::Late => "late",
            Ignored::Repeated => "repeated",
            Ignored::Stale => "stale",
        }
    }
}
