//! What a person can do with messages: look at what outbox and inbox hold, retry, skip or discard it, and publish once
//! more what was published. An act first says what it would do, needs a reason, and is written down in
//! `operator_actions` by the transaction that does it. Done twice it does nothing more.
//!
//! - [`look`]: lists, and one message whole
//! - [`kept`]: acts on messages that a consumer keeps in its inbox
//! - [`pending`]: acts on rows that wait in the outbox
//! - [`replay`]: publishing again

use std::collections::HashSet;

use opentelemetry::trace::TraceContextExt as _;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use time::OffsetDateTime;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use uuid::Uuid;

use crate::error::Failure;
use crate::trace::{MOST_LINKS, TraceContext};

pub mod kept;
pub mod look;
pub mod pending;
pub mod replay;

/// Messages that one act may touch.
pub const MOST: i64 = 10_000;

/// Who acts, and why.
#[derive(Clone, Debug)]
pub struct Act {
    /// Who.
    pub actor: String,
    /// Why: for those who ask later.
    pub reason: String,
    /// Only say what it would do.
    pub is_dry_run: bool,
}

/// What an act did, or would do.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Whether nothing was done.
    pub dry_run: bool,
    /// What it changed.
    pub changed: Vec<Touched>,
    /// What it left as it was, and why.
    pub unchanged: Vec<Left>,
    /// Whether there is more that was meant: [`MOST`] are touched at once.
    pub more: bool,
}

/// A message that an act changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Touched {
    /// Its id.
    pub message_id: String,
    /// Its type.
    #[serde(rename = "type")]
    pub message_type: String,
    /// The consumer that keeps it, or the exchange that it goes to.
    pub place: String,
    /// The saga that it belongs to, if it does.
    pub saga_id: Option<Uuid>,
    /// How it stood before.
    pub was: String,
    /// What comes of it.
    pub now: String,
}

/// A message that an act left as it was.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Left {
    /// Its id.
    pub message_id: String,
    /// Why nothing was done.
    pub why: String,
    /// Whether it is already as it was to become.
    pub already: bool,
}

/// An act that was done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Acted {
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// Who did it.
    pub actor: String,
    /// What.
    pub verb: String,
    /// The message's id, or the saga's.
    pub target: String,
    /// Why.
    pub reason: String,
    /// What came of it.
    pub outcome: serde_json::Value,
}

/// What an act did to one target.
#[derive(Debug)]
pub struct Entry {
    /// The message's id, or the saga's.
    pub target: String,
    /// The saga that it belongs to, if it does.
    pub saga_id: Option<Uuid>,
    /// What came of it.
    pub outcome: serde_json::Value,
}

/// Writes down what was done, in the transaction that does it.
///
/// # Errors
/// As the database says.
pub async fn record(connection: &mut PgConnection, verb: &str, act: &Act, entries: &[Entry]) -> Result<(), Failure> {
    sqlx::query!(
        r#"insert into operator_actions (actor, verb, reason, target, saga_id, outcome)
           select $1, $2, $3, target, saga_id, outcome
           from unnest($4::text[], $5::uuid[], $6::jsonb[]) as e(target, saga_id, outcome)"#,
        act.actor,
        verb,
        act.reason,
        &entries.iter().map(|entry| entry.target.clone()).collect::<Vec<_>>(),
        &entries.iter().map(|entry| entry.saga_id).collect::<Vec<_>>() as &[Option<Uuid>],
        &entries.iter().map(|entry| entry.outcome.clone()).collect::<Vec<_>>()
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// What was done to a saga and its messages in this schema, in order.
///
/// # Errors
/// As the database says.
pub async fn list_acts(connection: &mut PgConnection, saga_id: Uuid) -> Result<Vec<Acted>, Failure> {
    let query = sqlx::query_as!(
        Acted,
        "select at, actor, verb, target, reason, outcome from operator_actions where saga_id = $1 order by id",
        saga_id
    );
    Ok(query.fetch_all(connection).await?)
}

/// Whoever acts has a trace of his own: it links to those of the messages.
fn link(origins: impl Iterator<Item = TraceContext>) {
    let (span, mut seen) = (Span::current(), HashSet::new());
    let contexts = origins.map(|origin| origin.restore().span().span_context().clone());
    let each_trace_once = contexts.filter(|context| context.is_valid() && seen.insert(context.trace_id()));
    for context in each_trace_once.take(MOST_LINKS) {
        span.add_link(context);
    }
}

impl Outcome {
    fn of(act: &Act, limit: i64, found: usize) -> Outcome {
        let more = i64::try_from(found).is_ok_and(|found| found >= limit);
        Outcome { dry_run: act.is_dry_run, more, ..Outcome::default() }
    }

    /// One entry for each message that was changed.
    fn entries(&self) -> Vec<Entry> {
        let entry = |touched: &Touched| Entry {
            target: touched.message_id.clone(),
            saga_id: touched.saga_id,
            outcome: serde_json::json!({
                "type": touched.message_type, "place": touched.place, "was": touched.was, "now": touched.now
            }),
        };
        self.changed.iter().map(entry).collect()
    }
}
