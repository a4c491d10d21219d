//! What is kept under each key, and the key's lock.

use messaging::Failure;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use crate::domain::{Decision, Effect};
use crate::store::ledger;
use crate::switch::Party;

/// What a capture or a shipment is about.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Subject {
    pub(crate) order_id: Option<String>,
    pub(crate) amount: i64,
    pub(crate) currency: Option<String>,
    /// The payment method or the shipping service.
    pub(crate) method: Option<String>,
    /// Our name for the effect.
    pub(crate) reference: Option<String>,
    /// Why it is declined.
    pub(crate) code: Option<String>,
}

/// A decision and what it is about.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) decision: Decision,
    pub(crate) subject: Subject,
}

/// A key under its lock.
pub(crate) struct Locked {
    /// How often it was tried.
    pub(crate) attempts: i32,
    /// Its first decision, and the last.
    pub(crate) kept: Option<Kept>,
}

/// Keeps the first decision under a key that nobody has seen before, with its effect, while none of these switches is
/// on. Returns whether it did: the usual case, in one round trip.
pub(crate) async fn keep_first(
    connection: &mut PgConnection,
    party: Party,
    key: &str,
    decision: Decision,
    effect: Option<Effect>,
    subject: &Subject,
    switches: &[&str],
) -> Result<bool, Failure> {
    let (effect, accounts, amounts) = ledger::lines(party, effect, subject.amount);
    let kept = sqlx::query_scalar!(
        r#"with kept as (
               insert into decisions (party, key, attempts, decision, order_id, amount, currency, method, reference, code)
               select $1, $2, 1, $3, $4, $5, $6, $7, $8, $9
               where not exists (select from switches where name = any($10))
               on conflict do nothing returning key),
           written as (
               insert into ledger (party, key, order_id, effect, account, amount, currency)
               select $1, $2, $4, $11, line.account, line.amount, $6
               from kept, unnest($12::text[], $13::bigint[]) as line(account, amount))
           select count(*) as "count!" from kept"#,
        party.name(),
        key,
        decision.name(),
        subject.order_id,
        subject.amount,
        subject.currency,
        subject.method,
        subject.reference,
        subject.code,
        switches as &[&str],
        effect,
        accounts as &[&str],
        &amounts
    );
    Ok(kept.fetch_one(connection).await? == 1)
}

/// Takes the key's lock until the transaction ends, and counts `tries`.
pub(crate) async fn lock(
    connection: &mut PgConnection,
    party: Party,
    key: &str,
    tries: i32,
) -> Result<Locked, Failure> {
    let row = sqlx::query!(
        "insert into decisions (party, key, attempts) values ($1, $2, $3)
         on conflict (party, key) do update set attempts = decisions.attempts + excluded.attempts
         returning attempts, decision, order_id, amount, currency, method, reference, code",
        party.name(),
        key,
        tries
    )
    .fetch_one(connection)
    .await?;
    let Some(decision) = row.decision else {
        return Ok(Locked { attempts: row.attempts, kept: None });
    };
    let decision = Decision::named(&decision)
        .ok_or_else(|| Failure::permanent("sandbox.unknown_decision", "the table has an unknown decision"))?;
    let subject = Subject {
        order_id: row.order_id,
        amount: row.amount,
        currency: row.currency,
        method: row.method,
        reference: row.reference,
        code: row.code,
    };
    Ok(Locked { attempts: row.attempts, kept: Some(Kept { decision, subject }) })
}

/// Keeps a decision under a locked key, and writes its effect into the ledger. What the key is about stays what it was
/// at its first decision.
pub(crate) async fn keep(
    connection: &mut PgConnection,
    party: Party,
    key: &str,
    decision: Decision,
    effect: Option<Effect>,
    subject: &Subject,
) -> Result<(), Failure> {
    let (effect, accounts, amounts) = ledger::lines(party, effect, subject.amount);
    sqlx::query!(
        "with kept as (
             update decisions
             set decision = $3, updated_at = now(),
                 order_id = case when decision is null then $4 else order_id end,
                 amount = case when decision is null then $5 else amount end,
                 currency = case when decision is null then $6 else currency end,
                 method = case when decision is null then $7 else method end,
                 reference = case when decision is null then $8 else reference end,
                 code = case when decision is null then $9 else code end
             where party = $1 and key = $2)
         insert into ledger (party, key, order_id, effect, account, amount, currency)
         select $1, $2, $4, $10, line.account, line.amount, $6
         from unnest($11::text[], $12::bigint[]) as line(account, amount)",
        party.name(),
        key,
        decision.name(),
        subject.order_id,
        subject.amount,
        subject.currency,
        subject.method,
        subject.reference,
        subject.code,
        effect,
        accounts as &[&str],
        &amounts
    )
    .execute(connection)
    .await?;
    Ok(())
}
