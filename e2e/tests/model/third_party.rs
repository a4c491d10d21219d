//! The payment provider and the carrier: what they keep under one key is the sandbox's decision, what they would like
//! to do is up to them.

use contracts::step::Direction;
use messaging::participant::Reply;
use sandbox::domain::{CancelAnswer, Decision, Effect, Stance, TakeAnswer, Verdict};

use crate::rules::Rules;

/// What a third party would like to do, where it may choose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mood {
    /// Takes, gives back.
    Willing,
    /// Declines, refuses to give back.
    Unwilling,
}

/// What comes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Said {
    pub(crate) decision: Option<Decision>,
    pub(crate) effect: Option<Effect>,
    pub(crate) reply: Reply,
}

/// Asks a third party that keeps `decision` under the key.
pub(crate) fn ask(rules: &Rules, decision: Option<Decision>, direction: Direction, mood: Mood) -> Said {
    match direction {
        Direction::Do => {
            let verdict = if mood == Mood::Willing { Verdict::Take } else { Verdict::Decline };
            let outcome = (rules.take)(decision, verdict);
            let reply = match outcome.answer {
                TakeAnswer::Taken => Reply::Took,
                TakeAnswer::Declined => Reply::Declined,
                TakeAnswer::Cancelled => Reply::Cancelled,
            };
            Said { decision: outcome.decision, effect: outcome.effect, reply }
        }
        Direction::Undo => {
            let stance = if mood == Mood::Willing { Stance::Agrees } else { Stance::Refuses };
            let outcome = (rules.cancel)(decision, stance);
            let reply = match outcome.answer {
                CancelAnswer::GivenBack | CancelAnswer::Nothing => Reply::GaveBack,
                CancelAnswer::Refused => Reply::CannotGiveBack,
            };
            Said { decision: outcome.decision, effect: outcome.effect, reply }
        }
    }
}
