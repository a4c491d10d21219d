//! Every statement that the relay runs.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::value::RawValue;
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use super::AfterPublish;
use crate::error::Failure;
use crate::outbox::RowHeaders;
use crate::retry::Backoff;

/// A row that is due.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) id: i64,
    pub(super) event_id: Uuid,
    pub(super) aggregate_type: String,
    pub(super) aggregate_id: String,
    pub(super) event_type: String,
    pub(super) schema_version: i16,
    pub(super) saga_id: Option<Uuid>,
    pub(super) correlation_id: String,
    pub(super) exchange: String,
    pub(super) routing_key: String,
    pub(super) mandatory: bool,
    pub(super) payload: Json<Box<RawValue>>,
    pub(super) headers: Json<RowHeaders>,
    pub(super) created_at: OffsetDateTime,
    /// Since when it waits, if it was published before.
    pub(super) replayed_at: Option<OffsetDateTime>,
    pub(super) attempts: i32,
    pub(super) is_fresh: bool,
}

/// A row that the broker did not take, and why.
pub(super) struct Failed {
    pub(super) id: i64,
    pub(super) attempts: u32,
    pub(super) reason: String,
}

/// Takes the lock that makes this session the schema's only relay, if it is free.
pub(super) async fn try_lock(connection: &mut PgConnection) -> Result<bool, Failure> {
    let query = sqlx::query_scalar!(
        r#"select pg_try_advisory_lock(hashtext('relay'), hashtext(current_schema())) as "locked!""#
    );
    Ok(query.fetch_one(connection).await?)
}

/// Everything that is due: fresh rows by id, then the ones whose time has come.
pub(super) async fn due(connection: &mut PgConnection, limit: i64) -> Result<Vec<Row>, Failure> {
    let query = sqlx::query_as!(
        Row,
        r#"select id, event_id, aggregate_type, aggregate_id, event_type, schema_version, saga_id, correlation_id,
                  exchange, routing_key, mandatory, payload as "payload: Json<Box<RawValue>>",
                  headers as "headers: Json<RowHeaders>", created_at, replayed_at,
                  attempts, next_attempt_at = '-infinity' as "is_fresh!"
           from outbox where next_attempt_at <= now() order by next_attempt_at, id limit $1"#,
        limit
    );
    Ok(query.fetch_all(connection).await?)
}

/// Rows that nobody has read yet, from an id on.
pub(super) async fn fresh(connection: &mut PgConnection, after: i64, limit: i64) -> Result<Vec<Row>, Failure> {
    let query = sqlx::query_as!(
        Row,
        r#"select id, event_id, aggregate_type, aggregate_id, event_type, schema_version, saga_id, correlation_id,
                  exchange, routing_key, mandatory, payload as "payload: Json<Box<RawValue>>",
                  headers as "headers: Json<RowHeaders>", created_at, replayed_at,
                  attempts, true as "is_fresh!"
           from outbox where next_attempt_at = '-infinity' and id > $1 order by id limit $2"#,
        after,
        limit
    );
    Ok(query.fetch_all(connection).await?)
}

/// The first failed row of each aggregate, and when it is tried again.
pub(super) async fn held(connection: &mut PgConnection) -> Result<Vec<(i64, String, String, OffsetDateTime)>, Failure> {
    let rows = sqlx::query!(
        r#"select distinct on (aggregate_type, aggregate_id) id, aggregate_type, aggregate_id, next_attempt_at
           from outbox where next_attempt_at > '-infinity' order by aggregate_type, aggregate_id, id"#
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.aggregate_type, row.aggregate_id, row.next_attempt_at)).collect())
}

/// Moves confirmed rows out of the outbox.
pub(super) async fn settle(
    connection: &mut PgConnection,
    taken: &BTreeSet<i64>,
    after_publish: AfterPublish,
) -> Result<(), Failure> {
    if taken.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = taken.iter().copied().collect();
    let moved = match after_publish {
        AfterPublish::Archive => {
            sqlx::query!(
                r#"with taken as (delete from outbox where id = any($1) returning *)
                   insert into outbox_history (id, event_id, aggregate_type, aggregate_id, event_type, schema_version,
                          saga_id, correlation_id, exchange, routing_key, mandatory, payload, headers, created_at,
                          replayed_at, first_published_at, attempts, last_error)
                   select id, event_id, aggregate_type, aggregate_id, event_type, schema_version, saga_id,
                          correlation_id, exchange, routing_key, mandatory, payload, headers, created_at,
                          replayed_at, first_published_at, attempts, last_error
                   from taken"#,
                &ids
            )
            .execute(connection)
            .await?
        }
        AfterPublish::Delete => sqlx::query!("delete from outbox where id = any($1)", &ids).execute(connection).await?,
    };
    let missing = ids.len() as u64 - moved.rows_affected();
    metrics::counter!("outbox_settled_elsewhere_total").increment(missing);
    Ok(())
}

/// Counts an attempt for each failed row and says when it is tried again; returns those times. What waits behind the
/// row moves with it: left at an earlier time it would be due first, and overtake.
pub(super) async fn fail(
    connection: &mut PgConnection,
    failed: &[Failed],
    backoff: Backoff,
) -> Result<Vec<(i64, OffsetDateTime)>, Failure> {
    if failed.is_empty() {
        return Ok(Vec::new());
    }
    let waits: Vec<f64> = failed.iter().map(|row| backoff.delay(row.attempts + 1)).map(as_seconds).collect();
    let rows = sqlx::query!(
        r#"with failed as (
               update outbox o
               set attempts = attempts + 1, last_error = f.reason,
                   next_attempt_at = now() + f.wait * interval '1 second'
               from unnest($1::bigint[], $2::text[], $3::float8[]) as f(id, reason, wait)
               where o.id = f.id
               returning o.id, o.aggregate_type, o.aggregate_id, o.next_attempt_at),
           moved as (
               update outbox o set next_attempt_at = f.next_attempt_at from failed f
               where o.aggregate_type = f.aggregate_type and o.aggregate_id = f.aggregate_id and o.id <> f.id
                 and o.next_attempt_at > '-infinity')
           select id as "id!", next_attempt_at as "next_attempt_at!" from failed"#,
        &failed.iter().map(|row| row.id).collect::<Vec<_>>(),
        &failed.iter().map(|row| row.reason.clone()).collect::<Vec<_>>(),
        &waits
    )
    .fetch_all(connection)
    .await?;
    metrics::counter!("outbox_publish_failures_total").increment(rows.len() as u64);
    Ok(rows.into_iter().map(|row| (row.id, row.next_attempt_at)).collect())
}

/// Moves rows behind the failed row of their aggregate, to its time.
pub(super) async fn put_off(connection: &mut PgConnection, rows: &[(i64, OffsetDateTime)]) -> Result<(), Failure> {
    if rows.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        r#"update outbox o set next_attempt_at = p.until
           from unnest($1::bigint[], $2::timestamptz[]) as p(id, until) where o.id = p.id"#,
        &rows.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
        &rows.iter().map(|(_, until)| *until).collect::<Vec<_>>()
    )
    .execute(connection)
    .await?;
    Ok(())
}

fn as_seconds(wait: Duration) -> f64 {
    wait.as_secs_f64()
}
