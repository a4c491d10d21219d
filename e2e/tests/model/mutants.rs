//! The product with one rule broken at a time, each around the real function. What they break shows that the model can
//! fail, and why the rule is there.

use contracts::step::Direction;
use inventory::domain::{Decision as StockDecision, Movement, Rejection, Request, Status};
use messaging::participant::{Answer, Decision, FirstLook, Record, Reply};
use order::domain::{Attempt, Event, Saga, State, Transition};
use sandbox::domain::{CancelAnswer, Decision as Kept, Effect, Outcome, Stance, TakeAnswer, Verdict};

use crate::ONE_EACH;
use crate::moves::Bounds;
use crate::promises::{self, Judge};
use crate::rules::{REAL, Reserving, Rules};

/// A broken product, and the promise that it breaks.
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    pub(crate) rules: Rules,
    pub(crate) breaks: &'static str,
    pub(crate) judge: Judge,
    pub(crate) bounds: Bounds,
}

/// Without settling the traces read best.
const SMALL: Bounds = Bounds { settles: false, ..ONE_EACH };
/// For a mutant that breaks what merging relies on.
const UNMERGED: Bounds = Bounds { merges: false, ..SMALL };

const CANCELLED: &str = "cancelled while an effect stands";

const fn mutant(name: &'static str, rules: Rules, breaks: &'static str) -> Mutant {
    Mutant { name, rules, breaks, judge: promises::noticed, bounds: SMALL }
}

/// All mutants.
pub(crate) const ALL: [Mutant; 15] = [
    mutant(
        "the undo of a step that failed or is overdue begins with the step before",
        Rules { transition: unknown_step_not_undone, ..REAL },
        CANCELLED,
    ),
    mutant("an overdue undo counts as done", Rules { transition: overdue_undo_counts, ..REAL }, CANCELLED),
    mutant(
        "the late success of an undo is ignored",
        Rules { transition: late_undone_ignored, ..REAL },
        "a person was called although the undo has succeeded",
    ),
    Mutant {
        judge: promises::all,
        bounds: UNMERGED,
        ..mutant(
            "the failure of an earlier undo counts",
            Rules { transition: stale_failure_counts, ..REAL },
            "a person was called although the latest undo neither failed nor is overdue",
        )
    },
    Mutant {
        bounds: ONE_EACH,
        ..mutant("a settled saga ends as cancelled", Rules { transition: settled_is_forgotten, ..REAL }, CANCELLED)
    },
    mutant(
        "an undo trusts an empty record",
        Rules { first_look: empty_record_trusted, decide: empty_record_undone, ..REAL },
        CANCELLED,
    ),
    mutant("a refused undo is written down as an outcome", Rules { decide: refusal_recorded, ..REAL }, CANCELLED),
    Mutant {
        judge: promises::all,
        bounds: UNMERGED,
        ..mutant(
            "a reply is written down whatever the record says by now",
            Rules { decide: reply_decides, ..REAL },
            "cancelled, but a participant's record says otherwise",
        )
    },
    mutant("a release without a reservation leaves no tombstone", Rules { reserve: no_tombstone, ..REAL }, CANCELLED),
    mutant("a refused reservation is not written down", Rules { reserve: rejection_not_recorded, ..REAL }, CANCELLED),
    mutant(
        "a repeated release gives the pieces back again",
        Rules { reserve: release_repeats, ..REAL },
        "stock was created or lost",
    ),
    mutant(
        "nothing ends the reservation of a shipped order",
        Rules { reserve: shipped_is_nothing, ..REAL },
        "completed, and the stock stays reserved for ever",
    ),
    mutant(
        "the third party's cancel of nothing leaves the key usable",
        Rules { cancel: cancel_does_not_block, ..REAL },
        CANCELLED,
    ),
    Mutant {
        bounds: UNMERGED,
        ..mutant(
            "the third party gives back with every cancel",
            Rules { cancel: cancel_repeats, ..REAL },
            "the third party gave back twice",
        )
    },
    Mutant {
        bounds: UNMERGED,
        ..mutant("the third party does not keep that it declined", Rules { take: decline_not_kept, ..REAL }, CANCELLED)
    },
];

fn unknown_step_not_undone(saga: Saga, event: Event) -> Option<Transition> {
    match event {
        Event::Failed(step) | Event::DoDeadline(step) => (REAL.transition)(saga, Event::Rejected(step)),
        _ => (REAL.transition)(saga, event),
    }
}

fn overdue_undo_counts(saga: Saga, event: Event) -> Option<Transition> {
    match event {
        Event::UndoDeadline(step, Attempt::Latest) => (REAL.transition)(saga, Event::Undone(step)),
        _ => (REAL.transition)(saga, event),
    }
}

fn late_undone_ignored(saga: Saga, event: Event) -> Option<Transition> {
    match (saga.state, event) {
        (State::NeedsAttention(_), Event::Undone(_)) => None,
        _ => (REAL.transition)(saga, event),
    }
}

fn stale_failure_counts(saga: Saga, event: Event) -> Option<Transition> {
    match event {
        Event::UndoFailed(step, Attempt::Stale) => (REAL.transition)(saga, Event::UndoFailed(step, Attempt::Latest)),
        _ => (REAL.transition)(saga, event),
    }
}

fn settled_is_forgotten(saga: Saga, event: Event) -> Option<Transition> {
    match (saga.state, event) {
        (State::NeedsAttention(at), Event::Settle) => (REAL.transition)(saga, Event::Undone(at)),
        _ => (REAL.transition)(saga, event),
    }
}

fn empty_record_trusted(record: Record, direction: Direction) -> FirstLook {
    match (record, direction) {
        (Record::None, Direction::Undo) => FirstLook::Settled,
        _ => (REAL.first_look)(record, direction),
    }
}

fn empty_record_undone(record: Record, direction: Direction, reply: Option<Reply>, is_last: bool) -> Decision {
    match (record, direction, reply) {
        (Record::None, Direction::Undo, None) => (REAL.decide)(record, direction, Some(Reply::GaveBack), is_last),
        _ => (REAL.decide)(record, direction, reply, is_last),
    }
}

fn refusal_recorded(record: Record, direction: Direction, reply: Option<Reply>, is_last: bool) -> Decision {
    let decision = (REAL.decide)(record, direction, reply, is_last);
    match decision.answer {
        Some(Answer::UndoFailed) => Decision { record: Record::Undone, ..decision },
        _ => decision,
    }
}

fn reply_decides(record: Record, direction: Direction, reply: Option<Reply>, is_last: bool) -> Decision {
    match (direction, reply) {
        (Direction::Do, Some(Reply::Took | Reply::Declined)) => (REAL.decide)(Record::None, direction, reply, is_last),
        _ => (REAL.decide)(record, direction, reply, is_last),
    }
}

fn no_tombstone(status: Option<Status>, request: Request, shortage: Option<Rejection>) -> Reserving {
    let decision = (REAL.reserve)(status, request, shortage)?;
    match (status, request) {
        (None, Request::Release) => Ok(StockDecision { status: None, ..decision }),
        _ => Ok(decision),
    }
}

fn rejection_not_recorded(status: Option<Status>, request: Request, shortage: Option<Rejection>) -> Reserving {
    let decision = (REAL.reserve)(status, request, shortage)?;
    match decision.status {
        Some(Status::Rejected) => Ok(StockDecision { status: None, ..decision }),
        _ => Ok(decision),
    }
}

fn release_repeats(status: Option<Status>, request: Request, shortage: Option<Rejection>) -> Reserving {
    let decision = (REAL.reserve)(status, request, shortage)?;
    match (status, request) {
        (Some(Status::Released), Request::Release) => Ok(StockDecision { movement: Movement::Release, ..decision }),
        _ => Ok(decision),
    }
}

fn shipped_is_nothing(status: Option<Status>, request: Request, shortage: Option<Rejection>) -> Reserving {
    match request {
        Request::Shipped => Ok(StockDecision { status, movement: Movement::Nothing, answer: None }),
        Request::Reserve | Request::Release => (REAL.reserve)(status, request, shortage),
    }
}

fn cancel_does_not_block(kept: Option<Kept>, stance: Stance) -> Outcome<CancelAnswer> {
    let outcome = (REAL.cancel)(kept, stance);
    if kept.is_none() { Outcome { decision: None, ..outcome } } else { outcome }
}

fn cancel_repeats(kept: Option<Kept>, stance: Stance) -> Outcome<CancelAnswer> {
    let outcome = (REAL.cancel)(kept, stance);
    if kept == Some(Kept::GivenBack) { Outcome { effect: Some(Effect::GiveBack), ..outcome } } else { outcome }
}

fn decline_not_kept(kept: Option<Kept>, verdict: Verdict) -> Outcome<TakeAnswer> {
    let outcome = (REAL.take)(kept, verdict);
    if outcome.decision == Some(Kept::Declined) { Outcome { decision: None, ..outcome } } else { outcome }
}
