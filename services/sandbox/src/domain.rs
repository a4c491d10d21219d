//! What a third party promises about a key. The first decision is kept: the same request again gets the same answer
//! and has no second effect. A cancel is final: nothing takes effect under its key any more. Both are functions of
//! what is kept and nothing else.

/// What is kept under a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Decision {
    /// It took effect.
    Taken,
    /// It was refused.
    Declined,
    /// It had taken effect, and was given back.
    GivenBack,
    /// It was cancelled before it took effect.
    Cancelled,
}

/// What the third party thinks of a request that it sees for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// Yes.
    Take,
    /// No.
    Decline,
}

/// Whether it gives back what it took.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stance {
    /// Yes.
    Agrees,
    /// No: the money is spent, the parcel is on the ship.
    Refuses,
}

/// The answer to a capture or a shipment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TakeAnswer {
    /// It took effect, now or before.
    Taken,
    /// It was refused, now or before.
    Declined,
    /// The key was cancelled: never.
    Cancelled,
}

/// The answer to a cancel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CancelAnswer {
    /// It had taken effect, and was given back, now or before.
    GivenBack,
    /// There was nothing to give back, and there never will be.
    Nothing,
    /// It is not given back; nothing has changed.
    Refused,
}

/// What changes in the world, and so in the ledger.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// Money moves to the shop, a parcel leaves.
    Take,
    /// It comes back.
    GiveBack,
}

/// What comes of a request: what is kept from now on, what changes, and the answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Outcome<A> {
    /// What is kept; `None`: nothing still.
    pub decision: Option<Decision>,
    /// What changes.
    pub effect: Option<Effect>,
    /// The answer.
    pub answer: A,
}

/// A capture or a shipment. `verdict` counts only where nothing is kept yet.
pub fn take(decision: Option<Decision>, verdict: Verdict) -> Outcome<TakeAnswer> {
    let (kept, effect, answer) = match (decision, verdict) {
        (None, Verdict::Take) => (Decision::Taken, Some(Effect::Take), TakeAnswer::Taken),
        (None, Verdict::Decline) => (Decision::Declined, None, TakeAnswer::Declined),
        (Some(Decision::Taken), _) => (Decision::Taken, None, TakeAnswer::Taken),
        (Some(Decision::Declined), _) => (Decision::Declined, None, TakeAnswer::Declined),
        (Some(kept @ (Decision::GivenBack | Decision::Cancelled)), _) => (kept, None, TakeAnswer::Cancelled),
    };
    Outcome { decision: Some(kept), effect, answer }
}

/// A cancel. `stance` counts only where something was taken; a refusal is not kept.
pub fn cancel(decision: Option<Decision>, stance: Stance) -> Outcome<CancelAnswer> {
    let (kept, effect, answer) = match (decision, stance) {
        (None, _) => (Decision::Cancelled, None, CancelAnswer::Nothing),
        (Some(Decision::Taken), Stance::Agrees) => {
            (Decision::GivenBack, Some(Effect::GiveBack), CancelAnswer::GivenBack)
        }
        (Some(Decision::Taken), Stance::Refuses) => (Decision::Taken, None, CancelAnswer::Refused),
        (Some(Decision::GivenBack), _) => (Decision::GivenBack, None, CancelAnswer::GivenBack),
        (Some(kept @ (Decision::Declined | Decision::Cancelled)), _) => (kept, None, CancelAnswer::Nothing),
    };
    Outcome { decision: Some(kept), effect, answer }
}

impl Decision {
    const ALL: [Decision; 4] = [Decision::Taken, Decision::Declined, Decision::GivenBack, Decision::Cancelled];

    /// The name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Decision::Taken => "taken",
            Decision::Declined => "declined",
            Decision::GivenBack => "given_back",
            Decision::Cancelled => "cancelled",
        }
    }

    /// The decision with this name.
    pub fn named(name: &str) -> Option<Decision> {
        Decision::ALL.into_iter().find(|decision| decision.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: [Option<Decision>; 5] =
        [None, Some(Decision::Taken), Some(Decision::Declined), Some(Decision::GivenBack), Some(Decision::Cancelled)];
    const VERDICTS: [Verdict; 2] = [Verdict::Take, Verdict::Decline];
    const STANCES: [Stance; 2] = [Stance::Agrees, Stance::Refuses];

    #[test]
    fn the_first_decision_is_kept_and_has_its_effect_once() {
        for first in VERDICTS {
            let once = take(None, first);
            for again in VERDICTS {
                let twice = take(once.decision, again);
                assert_eq!((twice.decision, twice.answer, twice.effect), (once.decision, once.answer, None));
            }
        }
    }

    #[test]
    fn after_a_cancel_nothing_is_taken_any_more() {
        for kept in KEPT {
            let cancelled = cancel(kept, Stance::Agrees);
            for verdict in VERDICTS {
                let late = take(cancelled.decision, verdict);
                assert_eq!((late.decision, late.effect), (cancelled.decision, None));
                assert_ne!(late.answer, TakeAnswer::Taken);
            }
        }
    }

    #[test]
    fn a_cancel_gives_back_once_what_was_taken_and_says_so_each_time() {
        for kept in KEPT {
            let once = cancel(kept, Stance::Agrees);
            assert_eq!(once.effect.is_some(), kept == Some(Decision::Taken));
            for stance in STANCES {
                let twice = cancel(once.decision, stance);
                assert_eq!((twice.decision, twice.answer, twice.effect), (once.decision, once.answer, None));
            }
        }
    }

    #[test]
    fn a_refused_cancel_changes_nothing_and_only_what_was_taken_can_be_refused() {
        for kept in KEPT {
            let refused = cancel(kept, Stance::Refuses);
            assert_eq!(refused.answer == CancelAnswer::Refused, kept == Some(Decision::Taken));
            if refused.answer == CancelAnswer::Refused {
                assert_eq!((refused.decision, refused.effect), (kept, None));
            }
        }
    }
}
