//! The rules of a saga's participant whose effect happens at a third party: one record per saga and step, one key at
//! the third party, and what to do when the two disagree. Pure functions over plain values; the participant reads and
//! writes its own record.
//!
//! What goes wrong without a rule is told beside it. The rules were checked against a network that delivers late,
//! twice, in any order or never, and a third party that may take effect after its answer was given up.

/// What the participant has written down about a step of one saga. Never deleted: a refusal and an undo without a do
/// are outcomes too.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Record {
    /// Nothing yet.
    #[default]
    None,
    /// The effect is there.
    Done,
    /// The third party declined; it never will happen.
    Rejected,
    /// Given back or never there, and none will come. Without a do before it this is the tombstone.
    Undone,
}

/// Do the step or undo it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// Take effect.
    Do,
    /// Give back, and make sure that nothing takes effect later.
    Undo,
}

impl Direction {
    /// The name in rows and keys.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Do => "do",
            Direction::Undo => "undo",
        }
    }

    /// The direction with this name.
    pub fn named(name: &str) -> Option<Direction> {
        [Direction::Do, Direction::Undo].into_iter().find(|direction| direction.name() == name)
    }
}

/// What the third party said.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reply {
    /// To a do: it took effect, now or earlier under the same key.
    Took,
    /// To a do: no, and the key keeps that answer.
    Declined,
    /// To a do: the key was cancelled.
    Cancelled,
    /// To an undo: given back, or nothing to give back; nothing will take effect under this key any more.
    GaveBack,
    /// To an undo: it cannot be given back.
    CannotGiveBack,
    /// Nothing: a time-out, a refusal for now, a broken connection. Anything may have happened.
    Silence,
}

/// What the participant answers the orchestrator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// The effect is there.
    Done,
    /// Nothing happened and never will; the record's own code says why.
    Rejected,
    /// As rejected, because the step was undone before.
    RejectedAsUndone,
    /// No answer within the attempts: anything may have happened.
    Failed,
    /// Nothing is left of the effect, and none will come.
    Undone,
    /// It cannot be given back.
    UndoFailed,
}

/// What a first look at the record says, before anybody is called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FirstLook {
    /// Ask the third party, under the step's one key.
    Call,
    /// The record answers.
    Settled,
}

/// What to write and what to answer, decided with the record locked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Decision {
    /// The record afterwards.
    pub record: Record,
    /// The answer; `None`: none yet, the same message is tried again.
    pub answer: Option<Answer>,
}

/// Whether the third party must be asked. No lock is needed: [`decide`] looks again.
///
/// An undo always asks unless the record says that nothing is there: a do may be on its way at this moment, and an
/// undo that trusts an empty record leaves its effect standing.
pub fn first_look(record: Record, direction: Direction) -> FirstLook {
    match (direction, record) {
        (Direction::Do, Record::None) | (Direction::Undo, Record::None | Record::Done) => FirstLook::Call,
        (Direction::Do, Record::Done | Record::Rejected | Record::Undone)
        | (Direction::Undo, Record::Rejected | Record::Undone) => FirstLook::Settled,
    }
}

/// What to write and answer, with the record locked. `reply` is what the third party said, `None` if the first look
/// did not call it; `is_last_attempt` whether a silence is final.
///
/// The locked record decides, never the reply alone: between the call and now an undo may have been written.
pub fn decide(record: Record, direction: Direction, reply: Option<Reply>, is_last_attempt: bool) -> Decision {
    match direction {
        Direction::Do => decide_do(record, reply, is_last_attempt),
        Direction::Undo => decide_undo(record, reply),
    }
}

fn decide_do(record: Record, reply: Option<Reply>, is_last_attempt: bool) -> Decision {
    let record = match (record, reply) {
        (Record::None, Some(Reply::Took)) => Record::Done,
        (Record::None, Some(Reply::Declined)) => Record::Rejected,
        (Record::None, Some(Reply::Cancelled)) => Record::Undone,
        (decided, _) => decided,
    };
    let answer = match record {
        Record::Done => Some(Answer::Done),
        Record::Rejected => Some(Answer::Rejected),
        Record::Undone => Some(Answer::RejectedAsUndone),
        // A failure is no outcome and is not written down: the next command of the step calls again.
        Record::None => is_last_attempt.then_some(Answer::Failed),
    };
    Decision { record, answer }
}

fn decide_undo(record: Record, reply: Option<Reply>) -> Decision {
    match (record, reply) {
        (Record::Rejected | Record::Undone, _) => Decision { record, answer: Some(Answer::Undone) },
        (Record::None | Record::Done, Some(Reply::GaveBack)) => {
            Decision { record: Record::Undone, answer: Some(Answer::Undone) }
        }
        // Not written down either: the operator's next attempt asks again.
        (Record::None | Record::Done, Some(Reply::CannotGiveBack)) => {
            Decision { record, answer: Some(Answer::UndoFailed) }
        }
        // Tried again without limit; the saga's deadline calls a person, and a late success still counts.
        (Record::None | Record::Done, _) => Decision { record, answer: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: [Record; 4] = [Record::None, Record::Done, Record::Rejected, Record::Undone];

    #[test]
    fn an_undo_asks_the_third_party_unless_nothing_can_be_there() {
        let called: Vec<Record> =
            RECORDS.into_iter().filter(|r| first_look(*r, Direction::Undo) == FirstLook::Call).collect();
        assert_eq!(called, [Record::None, Record::Done]);
    }

    #[test]
    fn a_decided_record_answers_whatever_the_third_party_said() {
        for reply in [None, Some(Reply::Took), Some(Reply::Declined), Some(Reply::Cancelled), Some(Reply::Silence)] {
            for (record, answer) in [
                (Record::Done, Answer::Done),
                (Record::Rejected, Answer::Rejected),
                (Record::Undone, Answer::RejectedAsUndone),
            ] {
                assert_eq!(decide(record, Direction::Do, reply, true), Decision { record, answer: Some(answer) });
            }
        }
        for reply in [None, Some(Reply::GaveBack), Some(Reply::CannotGiveBack), Some(Reply::Silence)] {
            for record in [Record::Rejected, Record::Undone] {
                let expected = Decision { record, answer: Some(Answer::Undone) };
                assert_eq!(decide(record, Direction::Undo, reply, true), expected);
            }
        }
    }

    #[test]
    fn the_first_answer_of_the_third_party_is_written_down() {
        for (reply, record, answer) in [
            (Reply::Took, Record::Done, Answer::Done),
            (Reply::Declined, Record::Rejected, Answer::Rejected),
            (Reply::Cancelled, Record::Undone, Answer::RejectedAsUndone),
        ] {
            let expected = Decision { record, answer: Some(answer) };
            assert_eq!(decide(Record::None, Direction::Do, Some(reply), false), expected);
        }
        for record in [Record::None, Record::Done] {
            let expected = Decision { record: Record::Undone, answer: Some(Answer::Undone) };
            assert_eq!(decide(record, Direction::Undo, Some(Reply::GaveBack), false), expected);
        }
    }

    #[test]
    fn silence_and_refused_undos_are_never_written_down() {
        let again = Decision { record: Record::None, answer: None };
        assert_eq!(decide(Record::None, Direction::Do, Some(Reply::Silence), false), again);
        let failed = Decision { record: Record::None, answer: Some(Answer::Failed) };
        assert_eq!(decide(Record::None, Direction::Do, Some(Reply::Silence), true), failed);
        for record in [Record::None, Record::Done] {
            let refused = Decision { record, answer: Some(Answer::UndoFailed) };
            assert_eq!(decide(record, Direction::Undo, Some(Reply::CannotGiveBack), true), refused);
            let again = Decision { record, answer: None };
            assert_eq!(decide(record, Direction::Undo, Some(Reply::Silence), true), again);
        }
    }
}
