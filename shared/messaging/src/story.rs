//! What outbox and inbox tell about one saga: the messages that this service has written for it, and what became here
//! of those that came. For whoever follows a saga through several services: each tells its own part.

use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::Failure;
use crate::operate::{Acted, list_acts};
use crate::outbox::RowHeaders;

/// Rows of each kind that are told, the oldest first: more than any saga has that is not being flooded.
const MOST: i64 = 1_000;

/// One service's part of a saga.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Story {
    /// What it has written, in order. With [`AfterPublish::Delete`](crate::AfterPublish::Delete) only what is not
    /// published yet.
    pub outbox: Vec<Written>,
    /// What came, in order.
    pub inbox: Vec<Received>,
    /// What people did with its messages here.
    #[serde(default)]
    pub acts: Vec<Acted>,
}

/// A message that a service has written.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Written {
    /// Its id.
    pub event_id: Uuid,
    /// Its type.
    pub message_type: String,
    /// Where it goes.
    pub exchange: String,
    /// Where it goes there.
    pub routing_key: String,
    /// The trace that it belongs to.
    pub trace_id: Option<String>,
    /// The message that it answers or follows.
    pub causation_id: Option<Uuid>,
    /// When it was written.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When the broker confirmed it; `None` while it is in the outbox.
    #[serde(with = "time::serde::rfc3339::option")]
    pub published_at: Option<OffsetDateTime>,
    /// When it was published first, if it was replayed.
    #[serde(default, with = "time::serde::rfc3339::option")]
    pub first_published_at: Option<OffsetDateTime>,
    /// How often the broker did not take it.
    pub attempts: i32,
    /// When it is tried next, if it was put off.
    #[serde(with = "time::serde::rfc3339::option")]
    pub next_attempt_at: Option<OffsetDateTime>,
    /// Why it was not taken.
    pub last_error: Option<String>,
}

/// A message that came to a service.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Received {
    /// The queue that it came from.
    pub consumer: String,
    /// Its id.
    pub message_id: String,
    /// Its type.
    pub message_type: String,
    /// `done`, `waiting`, `retrying`, `parked`, `skipped` or `discarded`.
    pub status: String,
    /// Runs that have begun.
    pub attempts: i32,
    /// Whether the last of them has not told its end: it runs now, or its process has died.
    pub is_running: bool,
    /// When it came.
    #[serde(with = "time::serde::rfc3339")]
    pub received_at: OffsetDateTime,
    /// When it was done.
    #[serde(with = "time::serde::rfc3339::option")]
    pub finished_at: Option<OffsetDateTime>,
    /// When it is tried again, if it is.
    #[serde(with = "time::serde::rfc3339::option")]
    pub next_attempt_at: Option<OffsetDateTime>,
    /// Why its last run failed, if it did.
    pub error_code: Option<String>,
    /// The same in words.
    pub last_error: Option<String>,
    /// How its runs failed; the last 20.
    pub failures: Vec<FailedRun>,
    /// How often it came again after it was known.
    pub repeats: i32,
    /// When it did so last.
    #[serde(with = "time::serde::rfc3339::option")]
    pub repeated_at: Option<OffsetDateTime>,
}

/// A run that failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FailedRun {
    /// Which one, counted from 1.
    pub attempt: i32,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// `Transient` or `Permanent`.
    pub class: String,
    /// The stable code.
    pub code: String,
}

/// Reads the story of a saga from the schema that the search path names.
///
/// # Errors
/// As the database says.
pub async fn read(connection: &mut PgConnection, saga_id: Uuid) -> Result<Story, Failure> {
    let written = sqlx::query!(
        r#"select event_id as "event_id!", event_type as "event_type!", exchange as "exchange!",
                  routing_key as "routing_key!", headers as "headers!: Json<RowHeaders>", created_at as "created_at!",
                  published_at, first_published_at, attempts as "attempts!", nullif(next_attempt_at, '-infinity') as next_attempt_at,
                  last_error
           from (select id, event_id, event_type, exchange, routing_key, headers, created_at,
                        null::timestamptz as published_at, first_published_at, attempts, next_attempt_at, last_error
                 from outbox where saga_id = $1
                 union all
                 select id, event_id, event_type, exchange, routing_key, headers, created_at, published_at,
                        first_published_at, attempts, null, last_error
                 from outbox_history where saga_id = $1) as log
           order by id limit $2"#,
        saga_id,
        MOST
    )
    .fetch_all(&mut *connection)
    .await?;
    let received = sqlx::query!(
        r#"select consumer, message_id, message_type, status, attempts, received_at, finished_at, next_attempt_at,
                  unfinished > 0 and status = 'retrying' as "is_running!", error_code, last_error,
                  failures as "failures: Json<Vec<FailedRun>>", repeats, repeated_at
           from inbox where key = $1 order by received_at, seq limit $2"#,
        saga_id.to_string(),
        MOST
    )
    .fetch_all(&mut *connection)
    .await?;
    let acts = list_acts(connection, saga_id).await?;
    let outbox = written.into_iter().map(|row| Written {
        event_id: row.event_id,
        message_type: row.event_type,
        exchange: row.exchange,
        routing_key: row.routing_key,
        trace_id: row.headers.trace.trace_id(),
        causation_id: row.headers.causation_id,
        created_at: row.created_at,
        published_at: row.published_at,
        first_published_at: row.first_published_at,
        attempts: row.attempts,
        next_attempt_at: row.next_attempt_at,
        last_error: row.last_error,
    });
    let inbox = received.into_iter().map(|row| Received {
        consumer: row.consumer,
        message_id: row.message_id,
        message_type: row.message_type,
        status: row.status,
        attempts: row.attempts,
        is_running: row.is_running,
        received_at: row.received_at,
        finished_at: row.finished_at,
        next_attempt_at: row.next_attempt_at,
        error_code: row.error_code,
        last_error: row.last_error,
        failures: row.failures.map(|failures| failures.0).unwrap_or_default(),
        repeats: row.repeats,
        repeated_at: row.repeated_at,
    });
    Ok(Story { outbox: outbox.collect(), inbox: inbox.collect(), acts })
}

/// The saga that a message belongs to, if this service wrote it and still has it.
///
/// # Errors
/// As the database says.
pub async fn find_saga(connection: &mut PgConnection, event_id: Uuid) -> Result<Option<Uuid>, Failure> {
    let query = sqlx::query_scalar!("select saga_id from outbox_log where event_id = $1 limit 1", event_id);
    Ok(query.fetch_optional(connection).await?.flatten())
}
