//! Every statement on the inbox: what a consumer has seen, and the messages that it keeps because they are not done.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::Value;
use sqlx::PgConnection;

use crate::consumer::raw::Raw;
use crate::error::{Class, Failure};

/// What is kept of a message that is not done, and why.
pub(crate) struct Kept<'a> {
    pub(crate) raw: &'a Raw,
    pub(crate) status: &'static str,
    pub(crate) attempts: u32,
    pub(crate) wait: Duration,
    pub(crate) failure: Option<&'a Failure>,
}

/// A message that was kept and is due.
pub(crate) struct Claimed {
    pub(crate) raw: Raw,
    pub(crate) attempts: u32,
}

/// What is due, by how it has to be run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Due {
    /// Can be run together.
    pub(crate) ordinary: i64,
    /// A run of it began and never told its end: it must run alone.
    pub(crate) suspicious: i64,
    /// It must not run again.
    pub(crate) deadly: i64,
    /// First of their keys, with nothing before them any more (ordered consumers).
    pub(crate) released: i64,
}

/// Which of these messages the consumer has seen.
pub(crate) async fn list_known(
    connection: &mut PgConnection,
    consumer: &str,
    message_ids: &[String],
) -> Result<HashSet<String>, Failure> {
    let query = sqlx::query_scalar!(
        "select message_id from inbox where consumer = $1 and message_id = any($2)",
        consumer,
        message_ids
    );
    Ok(query.fetch_all(connection).await?.into_iter().collect())
}

/// Which of these keys wait behind a message that is not done.
pub(crate) async fn list_held_keys(
    connection: &mut PgConnection,
    consumer: &str,
    keys: &[String],
) -> Result<HashSet<String>, Failure> {
    let query = sqlx::query_scalar!(
        "select distinct key from inbox where consumer = $1 and key = any($2)
         and status in ('waiting', 'retrying', 'parked')",
        consumer,
        keys
    );
    Ok(query.fetch_all(connection).await?.into_iter().collect())
}

/// Remembers fresh messages as done and returns those that were new. A second transaction with the same message waits
/// here for the first. `raws` are sorted by message id: everybody locks in that order.
pub(crate) async fn remember(
    connection: &mut PgConnection,
    consumer: &str,
    raws: &[&Raw],
) -> Result<HashSet<String>, Failure> {
    let query = sqlx::query_scalar!(
        r#"insert into inbox (consumer, message_id, key, message_type, correlation_id, attempts, finished_at)
           select $1, message_id, key, message_type, correlation_id, 1, now()
           from unnest($2::text[], $3::text[], $4::text[], $5::text[]) as m(message_id, key, message_type, correlation_id)
           on conflict on constraint inbox_is_unique do nothing
           returning message_id"#,
        consumer,
        &raws.iter().map(|raw| raw.message_id.clone()).collect::<Vec<_>>(),
        &raws.iter().map(|raw| raw.key.clone()).collect::<Vec<_>>(),
        &raws.iter().map(|raw| raw.message_type.clone()).collect::<Vec<_>>(),
        &raws.iter().map(|raw| raw.correlation_id.clone()).collect::<Vec<_>>() as &[Option<String>]
    );
    Ok(query.fetch_all(connection).await?.into_iter().collect())
}

/// Marks claimed messages as done and returns those that still were this run's: another run may have taken over.
pub(crate) async fn finish(
    connection: &mut PgConnection,
    consumer: &str,
    claims: &[(String, u32)],
) -> Result<HashSet<String>, Failure> {
    let query = sqlx::query_scalar!(
        r#"update inbox i set status = 'done', finished_at = now(), unfinished = 0, next_attempt_at = null,
                              body = null, properties = null, exchange = null, routing_key = null
           from unnest($2::text[], $3::int[]) as c(message_id, attempts)
           where i.consumer = $1 and i.message_id = c.message_id and i.status = 'retrying' and i.attempts = c.attempts
           returning i.message_id"#,
        consumer,
        &claims.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>(),
        &claims.iter().map(|(_, attempts)| as_int(*attempts)).collect::<Vec<_>>()
    );
    Ok(query.fetch_all(connection).await?.into_iter().collect())
}

/// Keeps fresh messages as they came. One that is known already stays as it is.
pub(crate) async fn keep(connection: &mut PgConnection, consumer: &str, kept: &[Kept<'_>]) -> Result<(), Failure> {
    sqlx::query!(
        r#"insert into inbox (consumer, message_id, key, message_type, correlation_id, status, attempts,
                              next_attempt_at, error_class, error_code, last_error, body, properties, exchange,
                              routing_key)
           select $1, message_id, key, message_type, correlation_id, status, attempts,
                  now() + wait * interval '1 second', error_class, error_code, last_error, body, properties, exchange,
                  routing_key
           from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::int[], $8::float8[],
                       $9::text[], $10::text[], $11::text[], $12::bytea[], $13::jsonb[], $14::text[], $15::text[])
                as m(message_id, key, message_type, correlation_id, status, attempts, wait, error_class, error_code,
                     last_error, body, properties, exchange, routing_key)
           on conflict on constraint inbox_is_unique do nothing"#,
        consumer,
        &kept.iter().map(|k| k.raw.message_id.clone()).collect::<Vec<_>>(),
        &kept.iter().map(|k| k.raw.key.clone()).collect::<Vec<_>>(),
        &kept.iter().map(|k| k.raw.message_type.clone()).collect::<Vec<_>>(),
        &kept.iter().map(|k| k.raw.correlation_id.clone()).collect::<Vec<_>>() as &[Option<String>],
        &kept.iter().map(|k| k.status.to_owned()).collect::<Vec<_>>(),
        &kept.iter().map(|k| as_int(k.attempts)).collect::<Vec<_>>(),
        &kept.iter().map(|k| k.wait.as_secs_f64()).collect::<Vec<_>>(),
        &kept.iter().map(|k| k.failure.map(class_name)).collect::<Vec<_>>() as &[Option<String>],
        &kept.iter().map(|k| k.failure.map(|f| text(f.code()))).collect::<Vec<_>>() as &[Option<String>],
        &kept.iter().map(|k| k.failure.map(|f| text(&f.chain()))).collect::<Vec<_>>() as &[Option<String>],
        &kept.iter().map(|k| k.raw.body.clone()).collect::<Vec<_>>(),
        &kept.iter().map(|k| k.raw.properties.clone()).collect::<Vec<_>>(),
        &kept.iter().map(|k| k.raw.exchange.clone()).collect::<Vec<_>>(),
        &kept.iter().map(|k| k.raw.routing_key.clone()).collect::<Vec<_>>()
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Puts a claimed message off, or parks it, if it still is this run's.
pub(crate) async fn keep_claimed(
    connection: &mut PgConnection,
    consumer: &str,
    kept: &Kept<'_>,
) -> Result<(), Failure> {
    sqlx::query!(
        r#"update inbox set status = $3, unfinished = 0, next_attempt_at = now() + $4 * interval '1 second',
                            error_class = $5, error_code = $6, last_error = $7
           where consumer = $1 and message_id = $2 and status = 'retrying' and attempts = $8"#,
        consumer,
        kept.raw.message_id,
        kept.status,
        kept.wait.as_secs_f64(),
        kept.failure.map(class_name),
        kept.failure.map(|f| text(f.code())),
        kept.failure.map(|f| text(&f.chain())),
        as_int(kept.attempts)
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Takes the attempt of claimed messages back: they were not run, or not to their end, because the process stops.
pub(crate) async fn give_back(
    connection: &mut PgConnection,
    consumer: &str,
    claims: &[(String, u32)],
) -> Result<(), Failure> {
    sqlx::query!(
        r#"update inbox i set attempts = i.attempts - 1, unfinished = greatest(i.unfinished - 1, 0),
                              next_attempt_at = now()
           from unnest($2::text[], $3::int[]) as c(message_id, attempts)
           where i.consumer = $1 and i.message_id = c.message_id and i.status = 'retrying' and i.attempts = c.attempts"#,
        consumer,
        &claims.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>(),
        &claims.iter().map(|(_, attempts)| as_int(*attempts)).collect::<Vec<_>>()
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// How much is due. Reads only, so that an idle consumer writes nothing.
pub(crate) async fn look(
    connection: &mut PgConnection,
    consumer: &str,
    deadly_after: u32,
    is_ordered: bool,
) -> Result<Due, Failure> {
    let query = sqlx::query_as!(
        Due,
        r#"select count(*) filter (where unfinished = 0) as "ordinary!",
                  count(*) filter (where unfinished > 0 and unfinished < $2) as "suspicious!",
                  count(*) filter (where unfinished >= $2) as "deadly!",
                  case when $3 then (
                      select count(*) from inbox w where w.consumer = $1 and w.status = 'waiting' and not exists (
                          select 1 from inbox b where b.consumer = $1 and b.key = w.key and b.seq < w.seq
                          and b.status in ('waiting', 'retrying', 'parked')))
                  else 0 end as "released!"
           from inbox where consumer = $1 and status = 'retrying' and next_attempt_at <= now()"#,
        consumer,
        as_int(deadly_after),
        is_ordered
    );
    Ok(query.fetch_one(connection).await?)
}

/// Claims due messages: counts the attempt and moves the next time on, before any of them runs. Several that never
/// went wrong, or (`suspicious`) exactly one that may be deadly. Keys that run at the moment are left out.
/// Materialized: a plan that reads the limited rows once per row of a join would claim more than the limit.
pub(crate) async fn claim(
    connection: &mut PgConnection,
    consumer: &str,
    limit: i64,
    is_suspicious: bool,
    busy_keys: &[String],
    lease: Duration,
) -> Result<Vec<Claimed>, Failure> {
    let rows = sqlx::query!(
        r#"with due as materialized (
               select message_id from inbox
               where consumer = $1 and status = 'retrying' and next_attempt_at <= now()
                 and (unfinished > 0) = $3 and key <> all($4)
               order by next_attempt_at, seq limit $2 for update skip locked)
           update inbox i set attempts = i.attempts + 1, unfinished = i.unfinished + 1,
                              next_attempt_at = now() + $5 * interval '1 second'
           from due
           where i.consumer = $1 and i.message_id = due.message_id
           returning i.message_id, i.key, i.message_type, i.correlation_id, i.attempts, i.body as "body!",
                     i.properties as "properties!", i.exchange as "exchange!", i.routing_key as "routing_key!""#,
        consumer,
        limit,
        is_suspicious,
        busy_keys,
        lease.as_secs_f64()
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Claimed {
            attempts: row.attempts.unsigned_abs(),
            raw: Raw {
                message_id: row.message_id,
                key: row.key,
                message_type: row.message_type,
                correlation_id: row.correlation_id,
                body: row.body,
                properties: row.properties,
                exchange: row.exchange,
                routing_key: row.routing_key,
            },
        })
        .collect())
}

/// Parks messages whose last runs never told their end. They are not run again, and can be replayed by a person.
pub(crate) async fn park_deadly(
    connection: &mut PgConnection,
    consumer: &str,
    deadly_after: u32,
) -> Result<Vec<String>, Failure> {
    let query = sqlx::query_scalar!(
        r#"update inbox set status = 'parked', error_class = 'Permanent', error_code = 'message.kills_the_process',
                  last_error = 'the process ended ' || unfinished || ' times in a row while this message ran'
           where consumer = $1 and status = 'retrying' and next_attempt_at <= now() and unfinished >= $2
           returning message_id"#,
        consumer,
        as_int(deadly_after)
    );
    Ok(query.fetch_all(connection).await?)
}

/// Lets the first waiting message of each key run that nothing holds any more.
pub(crate) async fn release(connection: &mut PgConnection, consumer: &str) -> Result<(), Failure> {
    sqlx::query!(
        r#"update inbox w set status = 'retrying', next_attempt_at = now()
           where w.consumer = $1 and w.status = 'waiting' and not exists (
               select 1 from inbox b where b.consumer = $1 and b.key = w.key and b.seq < w.seq
               and b.status in ('waiting', 'retrying', 'parked'))"#,
        consumer
    )
    .execute(connection)
    .await?;
    Ok(())
}

fn class_name(failure: &Failure) -> String {
    match failure.class() {
        Class::Permanent => "Permanent".to_owned(),
        Class::Transient | Class::Conflict | Class::Unavailable => "Transient".to_owned(),
    }
}

/// PostgreSQL's text has no NUL; a message may.
pub(crate) fn text(value: &str) -> String {
    value.replace('\0', "\u{FFFD}").chars().take(2_000).collect()
}

fn as_int(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Properties as JSON never have a NUL either.
pub(crate) fn without_nul(value: Value) -> Value {
    match value {
        Value::String(string) => Value::String(string.replace('\0', "\u{FFFD}")),
        Value::Array(values) => Value::Array(values.into_iter().map(without_nul).collect()),
        Value::Object(entries) => Value::Object(
            entries.into_iter().map(|(name, value)| (name.replace('\0', "\u{FFFD}"), without_nul(value))).collect(),
        ),
        other => other,
    }
}
