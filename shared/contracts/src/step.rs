//! The steps of the saga and the names of everything that is said about them. The one table from which senders and
//! consumers take their message types.

pub use messaging::participant::Direction;
use serde::{Deserialize, Serialize};

/// A step, in the order in which they are done; undone in reverse.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// Take the money.
    Payment,
    /// Set the goods aside.
    Inventory,
    /// Hand the parcel to the carrier.
    Shipping,
}

/// What a participant can answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The effect is there.
    Done,
    /// Nothing happened, and never will.
    Rejected,
    /// No answer within the attempts: anything may have happened.
    Failed,
    /// Nothing is left of the effect, and none will come.
    Undone,
    /// It cannot be given back.
    UndoFailed,
}

impl Outcome {
    /// Who says no, where somebody does: `Business` if the rules did, `Technical` if nobody answered.
    pub fn error_type(self) -> Option<&'static str> {
        match self {
            Outcome::Rejected | Outcome::UndoFailed => Some("Business"),
            Outcome::Failed => Some("Technical"),
            Outcome::Done | Outcome::Undone => None,
        }
    }
}

/// The names of one step.
struct Names {
    step: Step,
    name: &'static str,
    aggregate: &'static str,
    commands: [&'static str; 2],
    answers: &'static [(Outcome, &'static str)],
}

const NAMES: [Names; 3] = [
    Names {
        step: Step::Payment,
        name: "payment",
        aggregate: "Payment",
        commands: ["CapturePayment", "RefundPayment"],
        answers: &[
            (Outcome::Done, "PaymentCaptured"),
            (Outcome::Rejected, "PaymentDeclined"),
            (Outcome::Failed, "PaymentFailed"),
            (Outcome::Undone, "PaymentRefunded"),
            (Outcome::UndoFailed, "RefundFailed"),
        ],
    },
    Names {
        step: Step::Inventory,
        name: "inventory",
        aggregate: "Inventory",
        commands: ["ReserveStock", "ReleaseStock"],
        answers: &[
            (Outcome::Done, "StockReserved"),
            (Outcome::Rejected, "StockRejected"),
            (Outcome::Undone, "StockReleased"),
        ],
    },
    Names {
        step: Step::Shipping,
        name: "shipping",
        aggregate: "Shipping",
        commands: ["CreateShipment", "CancelShipment"],
        answers: &[
            (Outcome::Done, "ShipmentCreated"),
            (Outcome::Rejected, "ShipmentRejected"),
            (Outcome::Failed, "ShipmentFailed"),
            (Outcome::Undone, "ShipmentCancelled"),
            (Outcome::UndoFailed, "CancelShipmentFailed"),
        ],
    },
];

impl Step {
    /// All of them, in order.
    pub const ALL: [Step; 3] = [Step::Payment, Step::Inventory, Step::Shipping];

    fn names(self) -> &'static Names {
        &NAMES[self as usize]
    }

    /// The name in rows, routing keys and answers over HTTP: `payment`.
    pub fn name(self) -> &'static str {
        self.names().name
    }

    /// The step with this name.
    pub fn named(name: &str) -> Option<Step> {
        Step::ALL.into_iter().find(|step| step.name() == name)
    }

    /// The aggregate whose events answer it: `Payment`.
    pub fn aggregate(self) -> &'static str {
        self.names().aggregate
    }

    /// The step that is done after this one.
    pub fn next(self) -> Option<Step> {
        Step::ALL.get(self as usize + 1).copied()
    }

    /// The step that was done before this one.
    pub fn previous(self) -> Option<Step> {
        (self as usize).checked_sub(1).map(|index| Step::ALL[index])
    }

    /// The type of the command: `CapturePayment`.
    pub fn command(self, direction: Direction) -> &'static str {
        self.names().commands[direction as usize]
    }

    /// The type of the answer: `PaymentCaptured`. `None` where this step never gives it.
    pub fn answer(self, outcome: Outcome) -> Option<&'static str> {
        self.names().answers.iter().find(|(known, _)| *known == outcome).map(|(_, name)| *name)
    }
}

/// Which step and outcome an answer's type means.
pub fn meaning(answer: &str) -> Option<(Step, Outcome)> {
    NAMES.iter().find_map(|names| {
        let (outcome, _) = names.answers.iter().find(|(_, name)| *name == answer)?;
        Some((names.step, *outcome))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_stands_in_the_order_of_the_steps() {
        for step in Step::ALL {
            assert_eq!(step.names().step, step);
            assert_eq!(Step::named(step.name()), Some(step));
        }
        assert_eq!(Step::Payment.next(), Some(Step::Inventory));
        assert_eq!(Step::Payment.previous(), None);
        assert_eq!(Step::Shipping.next(), None);
    }

    #[test]
    fn every_answer_means_what_it_is_named_for() {
        assert_eq!(meaning("RefundFailed"), Some((Step::Payment, Outcome::UndoFailed)));
        assert_eq!(meaning("StockReleased"), Some((Step::Inventory, Outcome::Undone)));
        assert_eq!(meaning("OrderPaid"), None);
        assert_eq!(Step::Inventory.answer(Outcome::Failed), None);
    }
}
