//! Publishing once more what was published: for a broker that has lost it, or a receiver that has to hear it again. The
//! row goes back from the history into the outbox, with its id and its sequence, so every receiver whose inbox knows
//! the message skips it, and order within an aggregate is as it was. The message is shown in the trace of whoever
//! replays it, which links to the ones it came from. Poke the relay after the commit.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Json;
use time::format_description::well_known::Rfc3339;

use super::look::{Sent, list_published};
use super::{Act, Left, Outcome, Touched, link, record};
use crate::error::Failure;
use crate::trace::TraceContext;

/// Its name in `operator_actions`.
pub const VERB: &str = "replay message";

/// Publishes again every message that is meant, [`MOST`](super::MOST) at most. Refused is what was made longer ago than
/// `dedup_window`, the time for which inboxes remember: its receiver may have forgotten it, and would act again.
///
/// # Errors
/// As the database says; then nothing is done.
pub async fn act(
    transaction: &mut PgConnection,
    which: &Sent,
    dedup_window: Duration,
    act: &Act,
    limit: i64,
) -> Result<Outcome, Failure> {
    let meant = list_published(transaction, which, limit).await?;
    let mut outcome = Outcome::of(act, limit, meant.len());
    // By the clock that purges inboxes.
    let oldest =
        sqlx::query_scalar!(r#"select now() - $1 * interval '1 second' as "oldest!""#, dedup_window.as_secs_f64())
            .fetch_one(&mut *transaction)
            .await?;
    let mut ids = Vec::new();
    for line in meant {
        if line.created_at < oldest {
            let days = dedup_window.as_secs() / 86_400;
            let why =
                format!("it is older than the {days} days for which inboxes remember: its receiver would act again");
            outcome.unchanged.push(Left { message_id: line.message_id.to_string(), why, already: false });
            continue;
        }
        ids.push(line.id);
        let published =
            line.published_at.and_then(|at| at.format(&Rfc3339).ok()).map(|at| format!("published at {at}"));
        outcome.changed.push(Touched {
            message_id: line.message_id.to_string(),
            message_type: line.message_type,
            place: line.exchange,
            saga_id: line.saga_id,
            was: published.unwrap_or_default(),
            now: "published again".to_owned(),
        });
    }
    if act.is_dry_run || ids.is_empty() {
        return Ok(outcome);
    }
    let context = TraceContext::current();
    let trace = context.entries().map(|(name, value)| (name.to_owned(), Value::from(value))).collect();
    let moved = sqlx::query!(
        r#"with moved as (delete from outbox_history where id = any($1) returning *),
           again as (
               insert into outbox (id, event_id, aggregate_type, aggregate_id, event_type, schema_version, saga_id,
                                   correlation_id, exchange, routing_key, mandatory, payload, headers, created_at,
                                   replayed_at, first_published_at)
               overriding system value
               select id, event_id, aggregate_type, aggregate_id, event_type, schema_version, saga_id, correlation_id,
                      exchange, routing_key, mandatory, payload,
                      (headers - array['traceparent', 'tracestate']) || $2::jsonb, created_at, now(),
                      coalesce(first_published_at, published_at)
               from moved order by id
               returning id)
           select event_id as "event_id!", headers as "headers!: Json<TraceContext>" from moved"#,
        &ids,
        Value::Object(trace)
    )
    .fetch_all(&mut *transaction)
    .await?;
    // What somebody else has just replayed is not ours to tell of.
    let ours: HashSet<String> = moved.iter().map(|row| row.event_id.to_string()).collect();
    outcome.changed.retain(|touched| ours.contains(&touched.message_id));
    link(moved.into_iter().map(|row| row.headers.0));
    record(transaction, VERB, act, &outcome.entries()).await?;
    Ok(outcome)
}
