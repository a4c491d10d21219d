//! One request, one transaction, with its key locked: look at what is kept, decide, write the decision and the ledger,
//! commit. Two requests of one key wait for each other; a crash leaves either everything or nothing of one.

use std::collections::BTreeMap;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use chassis::Together;
use futures::future::join_all;
use messaging::{Class, Classify as _, Failure, hold};
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgPool};

use crate::domain::{self, CancelAnswer, Stance, TakeAnswer};
use crate::fault::{self, Behaviour, Lands, Plan, Refusal};
use crate::store::decisions::{self, First, Kept, Locked, Subject};
use crate::store::{late_effects, switches};
use crate::switch::{self, Interference, Kind, Party, SWITCHES};

/// Where requests are decided.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) pool: PgPool,
    pub(crate) late_after: Duration,
    pub(crate) firsts: Arc<Firsts>,
}

/// Where first decisions meet: those of a party that come at the same time are kept in one transaction.
pub(crate) struct Firsts {
    provider: Together<First, Result<bool, Failure>>,
    carrier: Together<First, Result<bool, Failure>>,
}

impl Firsts {
    pub(crate) fn new() -> Firsts {
        Firsts { provider: Together::new(1, KEPT_TOGETHER), carrier: Together::new(1, KEPT_TOGETHER) }
    }

    fn of(&self, party: Party) -> &Together<First, Result<bool, Failure>> {
        match party {
            Party::Provider => &self.provider,
            Party::Carrier => &self.carrier,
        }
    }
}

/// Decisions of one transaction.
const KEPT_TOGETHER: usize = 64;

/// A capture or a shipment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Take {
    pub(crate) key: String,
    pub(crate) subject: Subject,
}

/// What becomes of a request.
#[derive(Clone, Debug)]
pub(crate) enum Handled<A> {
    /// It was decided.
    Answered(A, Subject),
    /// It is refused for now.
    Refused(Refusal),
    /// No answer.
    Silent,
}

/// What a request wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// A capture, a shipment.
    Take,
    /// A cancel.
    Cancel,
}

impl Desk {
    /// What the switches do to a request. It counts as met also if it then fails.
    pub(crate) async fn interfere(&self, party: Party, wish: Wish) -> Result<Interference, Failure> {
        let met = switches::meet(&mut *self.pool.acquire().await?, &switches_of(party, wish)).await?;
        Ok(switch::interfere(&met))
    }

    /// A capture or a shipment that is seen for the first time, while nothing disturbs it. `None`: it must go the long
    /// way, [`Desk::interfere`] and [`Desk::take`]; nothing has happened yet.
    pub(crate) async fn take_undisturbed(
        &self,
        party: Party,
        take: &Take,
        behaviour: Behaviour,
    ) -> Result<Option<Handled<TakeAnswer>>, Failure> {
        if fault::plan(behaviour.fault, None, 1) != Plan::Answer {
            return Ok(None);
        }
        let (outcome, subject) = decide_first(party, take, behaviour);
        let Some(decision) = outcome.decision else { return Ok(None) };
        let (answer, key) = (outcome.answer, take.key.clone());
        let first = First { key, decision, effect: outcome.effect, subject: subject.clone() };
        let group = |group| keep_first(self.pool.clone(), party, group);
        hold::point("decision.before_commit").await;
        // A crash before this statement: the request never was. After it: as in `take`.
        let is_first = self.firsts.of(party).run(first, group).await??;
        if is_first {
            hold::point("decision.committed").await;
        }
        Ok(is_first.then_some(Handled::Answered(answer, subject)))
    }

    /// A capture or a shipment.
    pub(crate) async fn take(
        &self,
        party: Party,
        take: &Take,
        behaviour: Behaviour,
    ) -> Result<Handled<TakeAnswer>, Failure> {
        let mut transaction = self.pool.begin().await?;
        let Locked { attempts, kept } = decisions::lock(&mut transaction, party, &take.key, 1).await?;

        let plan = fault::plan(behaviour.fault, kept.as_ref().map(|kept| kept.decision), attempts);
        let handled = match plan {
            Plan::Answer => {
                let (answer, subject) = settle(&mut transaction, party, take, kept, behaviour).await?;
                Handled::Answered(answer, subject)
            }
            Plan::Refuse(refusal) => Handled::Refused(refusal),
            Plan::Hold(Lands::Never) => Handled::Silent,
            Plan::Hold(Lands::AtOnce) => {
                settle(&mut transaction, party, take, kept, behaviour).await?;
                Handled::Silent
            }
            Plan::Hold(Lands::Late) => {
                let request = serde_json::to_value(take).permanent("sandbox.late_effect")?;
                late_effects::append(&mut transaction, party, &take.key, &request, self.late_after).await?;
                Handled::Silent
            }
        };
        hold::point("decision.before_commit").await;
        // A crash before this line: the request never was. After it: the caller's next attempt gets this decision.
        transaction.commit().await?;
        hold::point("decision.committed").await;
        Ok(handled)
    }

    /// A cancel, by key alone.
    pub(crate) async fn cancel(
        &self,
        party: Party,
        key: &str,
        stance: Option<Stance>,
    ) -> Result<(CancelAnswer, Subject), Failure> {
        let mut transaction = self.pool.begin().await?;
        let (decision, subject) = split(decisions::lock(&mut transaction, party, key, 0).await?.kept);
        let stance = stance.unwrap_or_else(|| behaviour(party, subject.method.as_deref()).stance);
        let outcome = domain::cancel(decision, stance);
        if outcome.decision != decision
            && let Some(decision) = outcome.decision
        {
            decisions::keep(&mut transaction, party, key, decision, outcome.effect, &subject).await?;
        }
        hold::point("decision.before_commit").await;
        // A crash before this line: the caller cancels again. After it: it gets the same answer.
        transaction.commit().await?;
        hold::point("decision.committed").await;
        Ok((outcome.answer, subject))
    }

    /// Lets the first late request take effect whose time has come; tells whether there was one.
    pub(crate) async fn land_one(&self) -> Result<bool, Failure> {
        let mut transaction = self.pool.begin().await?;
        let Some(late) = late_effects::take_due(&mut transaction).await? else {
            return Ok(false);
        };
        let take: Take = serde_json::from_value(late.request).permanent("sandbox.late_effect")?;
        let party = Party::named(&late.party)
            .ok_or_else(|| Failure::permanent("sandbox.late_effect", "a late effect of nobody"))?;
        let Locked { kept, .. } = decisions::lock(&mut transaction, party, &late.key, 0).await?;
        let behaviour = behaviour(party, take.subject.method.as_deref());
        let (answer, subject) = settle(&mut transaction, party, &take, kept, behaviour).await?;
        hold::point("late_effect.before_commit").await;
        // A crash before this line: it lands after the restart. After it: it has landed, once.
        transaction.commit().await?;
        hold::point("late_effect.committed").await;
        let order_id = subject.order_id.unwrap_or_default();
        tracing::info!(
            order.id = order_id,
            late.id = late.id,
            "a late request of the {} landed: {answer:?}",
            late.party
        );
        Ok(true)
    }
}

/// How the requests of a test value go.
pub(crate) fn behaviour(party: Party, method: Option<&str>) -> Behaviour {
    let method = method.unwrap_or_default();
    match party {
        Party::Provider => fault::payment_method(method),
        Party::Carrier => fault::shipping_service(method),
    }
}

/// Keeps first decisions together, or, where that fails, each by itself. Tells of each whether it was kept.
async fn keep_first(pool: PgPool, party: Party, firsts: Vec<First>) -> Vec<Result<bool, Failure>> {
    match keep_together(&pool, party, &firsts).await {
        Ok(kept) => kept.into_iter().map(Ok).collect(),
        Err(failure) if firsts.len() == 1 || failure.class() == Class::Unavailable => {
            firsts.iter().map(|_| Err(failure.share())).collect()
        }
        Err(_) => join_all(firsts.iter().map(|first| keep_alone(&pool, party, first))).await,
    }
}

async fn keep_alone(pool: &PgPool, party: Party, first: &First) -> Result<bool, Failure> {
    keep_together(pool, party, slice::from_ref(first)).await.map(|kept| kept == [true])
}

async fn keep_together(pool: &PgPool, party: Party, firsts: &[First]) -> Result<Vec<bool>, Failure> {
    // Everybody locks keys in their order. A key that comes twice at once is left to the long way, where it waits.
    let mut distinct = BTreeMap::new();
    for first in firsts {
        distinct.entry(first.key.as_str()).or_insert(first);
    }
    let distinct: Vec<&First> = distinct.into_values().collect();
    let mut connection = pool.acquire().await?;
    let mut kept = decisions::keep_first(&mut connection, party, &distinct, &switches_of(party, Wish::Take)).await?;
    Ok(firsts.iter().map(|first| kept.remove(&first.key)).collect())
}

/// Decides with the key locked, and writes what is new.
async fn settle(
    connection: &mut PgConnection,
    party: Party,
    take: &Take,
    kept: Option<Kept>,
    behaviour: Behaviour,
) -> Result<(TakeAnswer, Subject), Failure> {
    if let (Some(decision), kept) = split(kept) {
        return Ok((domain::take(Some(decision), behaviour.verdict).answer, kept));
    }
    let (outcome, subject) = decide_first(party, take, behaviour);
    if let Some(decision) = outcome.decision {
        decisions::keep(connection, party, &take.key, decision, outcome.effect, &subject).await?;
    }
    Ok((outcome.answer, subject))
}

/// What becomes of a request under a new key, and what is kept about it.
fn decide_first(party: Party, take: &Take, behaviour: Behaviour) -> (domain::Outcome<TakeAnswer>, Subject) {
    let outcome = domain::take(None, behaviour.verdict);
    let mut subject = take.subject.clone();
    subject.code = behaviour.code.map(str::to_owned);
    subject.reference = outcome.effect.map(|_| reference(party));
    (outcome, subject)
}

/// The names of the switches that such a request can meet.
fn switches_of(party: Party, wish: Wish) -> Vec<&'static str> {
    let meets = |of: Party, kind: Kind| of == party && (wish == Wish::Cancel || kind != Kind::Refuse);
    SWITCHES.iter().filter(|(_, of, kind)| meets(*of, *kind)).map(|(name, ..)| *name).collect()
}

fn split(kept: Option<Kept>) -> (Option<domain::Decision>, Subject) {
    kept.map_or((None, Subject::default()), |kept| (Some(kept.decision), kept.subject))
}

fn reference(party: Party) -> String {
    let prefix = match party {
        Party::Provider => "ch",
        Party::Carrier => "parcel",
    };
    format!("{prefix}_{}", uuid::Uuid::now_v7().simple())
}
