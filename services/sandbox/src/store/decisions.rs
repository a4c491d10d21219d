//! What is kept under each key, and the key's lock.

use messaging::Failure;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use crate::domain::Decision;
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

/// Takes the key's lock until the transaction ends, and counts `tries`; tells how many there were.
pub(crate) async fn lock_key(
    connection: &mut PgConnection,
    party: Party,
    key: &str,
    tries: i32,
) -> Result<i32, Failure> {
    let attempts = sqlx::query_scalar!(
        "insert into attempts (party, key, attempts) values ($1, $2, $3)
         on conflict (party, key) do update set attempts = attempts.attempts + excluded.attempts
         returning attempts",
        party.name(),
        key,
        tries
    );
    Ok(attempts.fetch_one(connection).await?)
}

/// What is kept under a key.
pub(crate) async fn find(connection: &mut PgConnection, party: Party, key: &str) -> Result<Option<Kept>, Failure> {
    let row = sqlx::query!(
        "select decision, order_id, amount, currency, method, reference, code from decisions
         where party = $1 and key = $2",
        party.name(),
        key
    );
    let Some(row) = row.fetch_optional(connection).await? else {
        return Ok(None);
    };
    let decision = Decision::named(&row.decision)
        .ok_or_else(|| Failure::permanent("sandbox.unknown_decision", "the table has an unknown decision"))?;
    let subject = Subject {
        order_id: row.order_id,
        amount: row.amount,
        currency: row.currency,
        method: row.method,
        reference: row.reference,
        code: row.code,
    };
    Ok(Some(Kept { decision, subject }))
}

/// Keeps a decision. What it is about stays what it was at first.
pub(crate) async fn keep(
    connection: &mut PgConnection,
    party: Party,
    key: &str,
    decision: Decision,
    subject: &Subject,
) -> Result<(), Failure> {
    sqlx::query!(
        "insert into decisions (party, key, decision, order_id, amount, currency, method, reference, code)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         on conflict (party, key) do update set decision = excluded.decision, updated_at = now()",
        party.name(),
        key,
        decision.name(),
        subject.order_id,
        subject.amount,
        subject.currency,
        subject.method,
        subject.reference,
        subject.code
    )
    .execute(connection)
    .await?;
    Ok(())
}
