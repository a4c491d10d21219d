//! Acts on rows that wait in the outbox because the broker has refused them, or one before them. Poke the relay after
//! the commit. A row that is on the wire at that moment may arrive all the same.

use serde_json::Value;
use sqlx::PgConnection;

use super::look::{Sent, list_pending};
use super::{Act, Entry, Left, Outcome, Touched, link, record};
use crate::error::Failure;

/// What to do with a row that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Try it now, and all that waits behind it.
    Retry,
    /// Throw it away: what waits behind it goes on. The whole row is kept in `operator_actions`.
    Discard,
}

impl Verb {
    /// Its name in `operator_actions`.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Retry => "retry publishing",
            Verb::Discard => "discard unpublished",
        }
    }
}

/// Does this to every row that is meant, [`MOST`](super::MOST) at most.
///
/// # Errors
/// As the database says; then nothing is done.
pub async fn act(
    transaction: &mut PgConnection,
    verb: Verb,
    which: &Sent,
    act: &Act,
    limit: i64,
) -> Result<Outcome, Failure> {
    let meant = list_pending(transaction, which, limit).await?;
    let ids: Vec<i64> = meant.iter().map(|line| line.id).collect();
    let locked = sqlx::query!(
        r#"select id, event_id, event_type, saga_id, exchange, next_attempt_at > now() as "is_put_off!",
                  attempts, to_jsonb(o) as "row!: Value"
           from outbox o where id = any($1) order by id for update"#,
        &ids
    )
    .fetch_all(&mut *transaction)
    .await?;
    let mut outcome = Outcome::of(act, limit, meant.len());
    let mut entries = Vec::new();
    let mut changed: Vec<i64> = Vec::new();
    let mut origins = Vec::new();
    for row in locked {
        if verb == Verb::Retry && !row.is_put_off {
            let why = "it is not put off: the relay has it next".to_owned();
            outcome.unchanged.push(Left { message_id: row.event_id.to_string(), why, already: true });
            continue;
        }
        let now = match verb {
            Verb::Retry => "due now",
            Verb::Discard => "thrown away",
        };
        changed.push(row.id);
        origins.extend(serde_json::from_value(row.row["headers"].clone()));
        // Thrown away, and not lost.
        let kept = (verb == Verb::Discard).then_some(row.row);
        let told = serde_json::json!({"type": row.event_type, "now": now, "row": kept});
        entries.push(Entry { target: row.event_id.to_string(), saga_id: row.saga_id, outcome: told });
        outcome.changed.push(Touched {
            message_id: row.event_id.to_string(),
            message_type: row.event_type,
            place: row.exchange,
            saga_id: row.saga_id,
            was: if row.is_put_off { format!("put off after {} attempts", row.attempts) } else { "due".to_owned() },
            now: now.to_owned(),
        });
    }
    if act.is_dry_run || changed.is_empty() {
        return Ok(outcome);
    }
    // Rows of one aggregate wait together, so they go together.
    sqlx::query!(
        r#"update outbox o set next_attempt_at = now()
           from (select distinct aggregate_type, aggregate_id from outbox where id = any($1)) as m
           where o.aggregate_type = m.aggregate_type and o.aggregate_id = m.aggregate_id and o.next_attempt_at > now()"#,
        &changed
    )
    .execute(&mut *transaction)
    .await?;
    if verb == Verb::Discard {
        sqlx::query!("delete from outbox where id = any($1)", &changed).execute(&mut *transaction).await?;
    }
    link(origins.into_iter());
    record(transaction, verb.name(), act, &entries).await?;
    Ok(outcome)
}
