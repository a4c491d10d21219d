//! What is kept under each key, and the key's lock.

use std::collections::HashSet;

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

/// A first decision, under a key that perhaps nobody has seen before.
#[derive(Debug)]
pub(crate) struct First {
    pub(crate) key: String,
    pub(crate) decision: Decision,
    pub(crate) effect: Option<Effect>,
    pub(crate) subject: Subject,
}

/// Keeps first decisions, with their effects, under those of the keys that nobody has seen before, while none of these
/// switches is on. Returns these keys. The usual case, in one round trip; the keys differ.
pub(crate) async fn keep_first(
    connection: &mut PgConnection,
    party: Party,
    firsts: &[&First],
    switches: &[&str],
) -> Result<HashSet<String>, Failure> {
    let lines: Vec<_> = firsts
        .iter()
        .flat_map(|first| {
            let (effect, accounts, amounts) = ledger::lines(party, first.effect, first.subject.amount);
            accounts.iter().zip(amounts).map(move |(account, amount)| (first, effect, *account, amount))
        })
        .collect();
    let subjects = || firsts.iter().map(|first| &first.subject);
    let kept = sqlx::query_scalar!(
        r#"with kept as (
               insert into decisions (party, key, attempts, decision, order_id, amount, currency, method, reference, code)
               select $1, key, 1, decision, order_id, amount, currency, method, reference, code
               from unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::text[],
                           $9::text[]) as f(key, decision, order_id, amount, currency, method, reference, code)
               where not exists (select from switches where name = any($10))
               on conflict do nothing returning key),
           written as (
               insert into ledger (party, key, order_id, effect, account, amount, currency)
               select $1, key, order_id, effect, account, amount, currency
               from unnest($11::text[], $12::text[], $13::text[], $14::text[], $15::bigint[], $16::text[])
                    as l(key, order_id, effect, account, amount, currency)
               join kept using (key))
           select key as "key!" from kept"#,
        party.name(),
        &firsts.iter().map(|first| first.key.clone()).collect::<Vec<_>>(),
        &firsts.iter().map(|first| first.decision.name().to_owned()).collect::<Vec<_>>(),
        &subjects().map(|subject| subject.order_id.clone()).collect::<Vec<_>>() as &[Option<String>],
        &subjects().map(|subject| subject.amount).collect::<Vec<_>>(),
        &subjects().map(|subject| subject.currency.clone()).collect::<Vec<_>>() as &[Option<String>],
        &subjects().map(|subject| subject.method.clone()).collect::<Vec<_>>() as &[Option<String>],
        &subjects().map(|subject| subject.reference.clone()).collect::<Vec<_>>() as &[Option<String>],
        &subjects().map(|subject| subject.code.clone()).collect::<Vec<_>>() as &[Option<String>],
        switches as &[&str],
        &lines.iter().map(|(first, ..)| first.key.clone()).collect::<Vec<_>>(),
        &lines.iter().map(|(first, ..)| first.subject.order_id.clone()).collect::<Vec<_>>() as &[Option<String>],
        &lines.iter().map(|(_, effect, ..)| (*effect).to_owned()).collect::<Vec<_>>(),
        &lines.iter().map(|(_, _, account, _)| (*account).to_owned()).collect::<Vec<_>>(),
        &lines.iter().map(|(_, _, _, amount)| *amount).collect::<Vec<_>>(),
        &lines.iter().map(|(first, ..)| first.subject.currency.clone()).collect::<Vec<_>>() as &[Option<String>]
    );
    Ok(kept.fetch_all(connection).await?.into_iter().collect())
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
