//! Lists of what outbox, history and inbox hold, page by page, and one message whole. A page goes on after the last
//! row of the one before by a number that never changes, so no row that was there at the beginning is passed over.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::Failure;

/// Which messages of the inbox. What is not named does not matter.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// The message's id.
    pub message_id: Option<String>,
    /// The consumer that keeps it: the name of its queue.
    pub consumer: Option<String>,
    /// `waiting`, `retrying`, `parked`, `skipped`, `discarded` or `done`; all that are open if none is named.
    pub statuses: Vec<String>,
    /// Its type.
    pub message_type: Option<String>,
    /// The code of its last failure.
    pub error_code: Option<String>,
    /// What its caller named the business transaction.
    pub correlation_id: Option<String>,
    /// What it is ordered by: in a saga, the saga's id.
    pub key: Option<String>,
    /// Only what came longer ago than this.
    pub older_than: Option<Duration>,
    /// Only what comes after this `seq`.
    pub after: Option<i64>,
}

/// The statuses of messages that nobody is done with.
pub const OPEN: [&str; 4] = ["waiting", "retrying", "parked", "skipped"];

/// A message in the inbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptLine {
    /// In which order they came; the next page begins after it.
    pub seq: i64,
    /// The consumer that keeps it.
    pub consumer: String,
    /// Its id.
    pub message_id: String,
    /// Its type.
    #[serde(rename = "type")]
    pub message_type: String,
    /// What it is ordered by.
    pub key: String,
    /// What its caller named the business transaction.
    pub correlation_id: Option<String>,
    /// How it stands.
    pub status: String,
    /// Runs that have begun.
    pub attempts: i32,
    /// Whether one of them runs now.
    pub is_running: bool,
    /// When it came.
    #[serde(with = "time::serde::rfc3339")]
    pub received_at: OffsetDateTime,
    /// When it is tried next, if it is.
    #[serde(with = "time::serde::rfc3339::option")]
    pub next_attempt_at: Option<OffsetDateTime>,
    /// Why its last run failed.
    pub error_code: Option<String>,
    /// The same in words.
    pub last_error: Option<String>,
    /// The message that it waits behind.
    pub held_by: Option<String>,
}

/// Lists messages of the inbox in the order in which they came.
///
/// # Errors
/// As the database says.
pub async fn list_kept(connection: &mut PgConnection, which: &Kept, limit: i64) -> Result<Vec<KeptLine>, Failure> {
    let query = sqlx::query_as!(
        KeptLine,
        r#"select i.seq as "seq!", i.consumer, i.message_id, i.message_type, i.key, i.correlation_id, i.status, i.attempts,
                  i.status = 'retrying' and i.unfinished > 0 and i.next_attempt_at > now() as "is_running!",
                  i.received_at, case when i.status = 'retrying' then i.next_attempt_at end as next_attempt_at,
                  i.error_code, i.last_error,
                  (select b.message_id from inbox b
                   where i.status = 'waiting' and b.consumer = i.consumer and b.key = i.key and b.seq < i.seq
                     and b.status in ('waiting', 'retrying', 'parked') order by b.seq limit 1) as held_by
           from inbox i
           where ($1::text is null or i.message_id = $1) and ($2::text is null or i.consumer = $2)
             and i.status = any($3) and ($4::text is null or i.message_type = $4)
             and ($5::text is null or i.error_code = $5) and ($6::text is null or i.correlation_id = $6)
             and ($7::text is null or i.key = $7)
             and ($8::float8 is null or i.received_at < now() - $8 * interval '1 second')
             and i.seq > coalesce($9::bigint, 0)
           order by i.seq limit $10"#,
        which.message_id.as_deref(),
        which.consumer.as_deref(),
        &statuses(which),
        which.message_type.as_deref(),
        which.error_code.as_deref(),
        which.correlation_id.as_deref(),
        which.key.as_deref(),
        which.older_than.map(|age| age.as_secs_f64()),
        which.after,
        limit
    );
    Ok(query.fetch_all(connection).await?)
}

fn statuses(which: &Kept) -> Vec<String> {
    match (&which.message_id, which.statuses.as_slice()) {
        // Who names a message wants to hear of it however it stands.
        (Some(_), []) => OPEN.iter().chain(&["discarded", "done"]).map(|status| (*status).to_owned()).collect(),
        (None, []) => OPEN.iter().map(|status| (*status).to_owned()).collect(),
        (_, named) => named.to_vec(),
    }
}

/// Which rows of the outbox, or of its history. What is not named does not matter.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    /// The message's id.
    pub event_id: Option<Uuid>,
    /// Its type.
    pub message_type: Option<String>,
    /// Its saga.
    pub saga_id: Option<Uuid>,
    /// What its caller named the business transaction.
    pub correlation_id: Option<String>,
    /// Only what the broker has refused already, or what waits behind such a row.
    pub is_put_off: bool,
    /// Only what was made longer ago than this.
    pub older_than: Option<Duration>,
    /// First published at this time or later; of the history only.
    pub since: Option<OffsetDateTime>,
    /// First published before this time; of the history only.
    pub until: Option<OffsetDateTime>,
    /// Only what comes after this `id`.
    pub after: Option<i64>,
}

/// A row of the outbox or of its history.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SentLine {
    /// In which order they were made; the next page begins after it.
    pub id: i64,
    /// The message's id.
    pub message_id: Uuid,
    /// Its type.
    #[serde(rename = "type")]
    pub message_type: String,
    /// What it is about.
    pub aggregate: String,
    /// Its saga.
    pub saga_id: Option<Uuid>,
    /// What its caller named the business transaction.
    pub correlation_id: String,
    /// Where it goes.
    pub exchange: String,
    /// Where it goes there.
    pub routing_key: String,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it was published first, if it was.
    #[serde(with = "time::serde::rfc3339::option")]
    pub published_at: Option<OffsetDateTime>,
    /// How often the broker refused it.
    pub attempts: i32,
    /// When it is tried next, if it was put off.
    #[serde(with = "time::serde::rfc3339::option")]
    pub next_attempt_at: Option<OffsetDateTime>,
    /// Why it was refused.
    pub last_error: Option<String>,
}

/// Lists rows of the outbox: what is not published yet.
///
/// # Errors
/// As the database says.
pub async fn list_pending(connection: &mut PgConnection, which: &Sent, limit: i64) -> Result<Vec<SentLine>, Failure> {
    let query = sqlx::query_as!(
        SentLine,
        r#"select id, event_id as message_id, event_type as message_type,
                  aggregate_type || ' ' || aggregate_id as "aggregate!", saga_id, correlation_id, exchange, routing_key,
                  created_at, null::timestamptz as published_at, attempts,
                  nullif(next_attempt_at, '-infinity') as next_attempt_at, last_error
           from outbox
           where ($1::uuid is null or event_id = $1) and ($2::text is null or event_type = $2)
             and ($3::uuid is null or saga_id = $3) and ($4::text is null or correlation_id = $4)
             and (not $5 or next_attempt_at > '-infinity')
             and ($6::float8 is null or created_at < now() - $6 * interval '1 second') and id > coalesce($7::bigint, 0)
           order by id limit $8"#,
        which.event_id,
        which.message_type.as_deref(),
        which.saga_id,
        which.correlation_id.as_deref(),
        which.is_put_off,
        which.older_than.map(|age| age.as_secs_f64()),
        which.after,
        limit
    );
    Ok(query.fetch_all(connection).await?)
}

/// Lists what was published and is still in the history.
///
/// # Errors
/// As the database says.
pub async fn list_published(connection: &mut PgConnection, which: &Sent, limit: i64) -> Result<Vec<SentLine>, Failure> {
    let query = sqlx::query_as!(
        SentLine,
        r#"select id, event_id as message_id, event_type as message_type,
                  aggregate_type || ' ' || aggregate_id as "aggregate!", saga_id, correlation_id, exchange, routing_key,
                  created_at, coalesce(first_published_at, published_at) as published_at, attempts,
                  null::timestamptz as next_attempt_at, last_error
           from outbox_history
           where ($1::uuid is null or event_id = $1) and ($2::text is null or event_type = $2)
             and ($3::uuid is null or saga_id = $3) and ($4::text is null or correlation_id = $4)
             and coalesce(first_published_at, published_at) >= coalesce($5::timestamptz, '-infinity')
             and coalesce(first_published_at, published_at) < coalesce($6::timestamptz, 'infinity')
             and ($7::float8 is null or created_at < now() - $7 * interval '1 second') and id > coalesce($8::bigint, 0)
           order by id limit $9"#,
        which.event_id,
        which.message_type.as_deref(),
        which.saga_id,
        which.correlation_id.as_deref(),
        which.since,
        which.until,
        which.older_than.map(|age| age.as_secs_f64()),
        which.after,
        limit
    );
    Ok(query.fetch_all(connection).await?)
}

/// A message whole, wherever this schema has it: its row in the outbox or the history, and its rows in the inbox, as
/// they stand in the tables. A body that is no text is told in hexadecimal
/// digits.
///
/// # Errors
/// As the database says.
pub async fn show(connection: &mut PgConnection, message_id: &str) -> Result<Vec<Value>, Failure> {
    let event_id = Uuid::parse_str(message_id).ok();
    let mut found = sqlx::query_scalar!(
        r#"select jsonb_build_object('table', 'outbox', 'row', to_jsonb(o)) as "row!" from outbox o where event_id = $1
           union all
           select jsonb_build_object('table', 'outbox_history', 'row', to_jsonb(h)) from outbox_history h where event_id = $1"#,
        event_id
    )
    .fetch_all(&mut *connection)
    .await?;
    let kept = sqlx::query!(
        r#"select to_jsonb(i) - 'body' as "row!", body from inbox i where message_id = $1 order by seq"#,
        message_id
    )
    .fetch_all(connection)
    .await?;
    found.extend(kept.into_iter().map(|mut kept| {
        kept.row["body"] = kept.body.map(told).unwrap_or_default();
        json!({"table": "inbox", "row": kept.row})
    }));
    Ok(found)
}

fn told(body: Vec<u8>) -> Value {
    match String::from_utf8(body) {
        Ok(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        Err(error) => json!({"hex": hex::encode(error.as_bytes())}),
    }
}
