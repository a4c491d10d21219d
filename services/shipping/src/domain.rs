//! What a shipment can be, and the codes of its refusals. What to do when record and carrier disagree is the same for
//! every participant: [`messaging::participant`].

use messaging::participant::Record;

/// The status of a shipment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// The carrier has the parcel.
    Created,
    /// The carrier said no.
    Rejected,
    /// No parcel is on its way, and none will be.
    Cancelled,
}

/// Why a shipment was refused, or could not be undone: stable codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejection {
    /// The carrier said no.
    Rejected,
    /// The shipment was undone before.
    Undone,
    /// The carrier gave no answer within the attempts.
    NoAnswer,
    /// The carrier will not bring the parcel back.
    UndoRefused,
}

impl Status {
    const ALL: [Status; 3] = [Status::Created, Status::Rejected, Status::Cancelled];

    /// What the participant's rules see.
    pub fn record(self) -> Record {
        match self {
            Status::Created => Record::Done,
            Status::Rejected => Record::Rejected,
            Status::Cancelled => Record::Undone,
        }
    }

    /// The name in rows and answers.
    pub fn name(self) -> &'static str {
        match self {
            Status::Created => "created",
            Status::Rejected => "rejected",
            Status::Cancelled => "cancelled",
        }
    }

    /// The status with this name.
    pub fn named(name: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.name() == name)
    }

    /// The status to write when the rules say `record`.
    pub fn of(record: Record) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.record() == record)
    }
}

impl Rejection {
    /// The stable code.
    pub fn code(self) -> &'static str {
        match self {
            Rejection::Rejected => "shipping.rejected",
            Rejection::Undone => "shipping.undone",
            Rejection::NoAnswer => "shipping.no_answer",
            Rejection::UndoRefused => "shipping.undo_refused",
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
            assert_eq!(Status::of(status.record()), Some(status));
        }
    }
}
