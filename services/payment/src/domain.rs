//! What a payment can be, and the codes of its refusals. What to do when record and provider disagree is the same for
//! every participant: [`messaging::participant`].

use messaging::participant::Record;

/// The status of a payment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// The money was taken.
    Captured,
    /// The provider said no.
    Declined,
    /// The money went back.
    Refunded,
    /// No money had moved, and none will.
    Voided,
}

/// Why a payment was refused, or could not be undone: stable codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejection {
    /// The provider declined.
    Declined,
    /// The payment was undone before.
    Undone,
    /// The provider gave no answer within the attempts.
    NoAnswer,
    /// The provider will not give the money back.
    UndoRefused,
}

impl Status {
    const ALL: [Status; 4] = [Status::Captured, Status::Declined, Status::Refunded, Status::Voided];

    /// What the participant's rules see.
    pub fn record(self) -> Record {
        match self {
            Status::Captured => Record::Done,
            Status::Declined => Record::Rejected,
            Status::Refunded | Status::Voided => Record::Undone,
        }
    }

    /// The name in rows and answers.
    pub fn name(self) -> &'static str {
        match self {
            Status::Captured => "captured",
            Status::Declined => "declined",
            Status::Refunded => "refunded",
            Status::Voided => "voided",
        }
    }

    /// The status with this name.
    pub fn named(name: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.name() == name)
    }

    /// The status to write when the rules say `record`. `has_moved`: the provider says that money had been taken.
    pub fn of(record: Record, has_moved: bool) -> Option<Status> {
        match record {
            Record::None => None,
            Record::Done => Some(Status::Captured),
            Record::Rejected => Some(Status::Declined),
            Record::Undone if has_moved => Some(Status::Refunded),
            Record::Undone => Some(Status::Voided),
        }
    }
}

impl Rejection {
    /// The stable code.
    pub fn code(self) -> &'static str {
        match self {
            Rejection::Declined => "payment.declined",
            Rejection::Undone => "payment.undone",
            Rejection::NoAnswer => "payment.no_answer",
            Rejection::UndoRefused => "payment.undo_refused",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_a_record_and_keeps_its_name() {
        for status in Status::ALL {
            assert_eq!(Status::named(status.name()), Some(status));
            assert_eq!(Status::of(status.record(), status == Status::Refunded), Some(status));
        }
    }
}
