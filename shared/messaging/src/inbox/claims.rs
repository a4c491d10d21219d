//! Kept messages that are due: claimed before they run, and written down afterwards. Whoever claims counts the attempt
//! and moves the next time on in the same statement, so a run that never ends is found out.

use std::collections::HashSet;
use std::time::Duration;

use sqlx::PgConnection;

use super::{Kept, as_int, class_name};
use crate::consumer::raw::{Raw, text};
use crate::error::Failure;

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

/// Puts a claimed message off, or parks it, if it still is this run's.
pub(crate) async fn keep_claimed(
    connection: &mut PgConnection,
    consumer: &str,
    kept: &Kept<'_>,
) -> Result<(), Failure> {
    sqlx::query!(
        r#"update inbox set status = $3, unfinished = 0, next_attempt_at = now() + $4 * interval '1 second',
                            error_class = $5, error_code = $6, last_error = $7,
                            failures = case when $6::text is null then failures else jsonb_path_query_array(
                                coalesce(failures, '[]') || jsonb_build_object(
                                    'attempt', attempts, 'at', now(), 'class', $5::text, 'code', $6::text),
                                '$[last - 19 to last]') end
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

/// Parks messages whose last runs never told their end. They are not run again, and can be replayed by a person.
pub(crate) async fn park_deadly(
    connection: &mut PgConnection,
    consumer: &str,
    deadly_after: u32,
) -> Result<Vec<String>, Failure> {
    let query = sqlx::query_scalar!(
        r#"update inbox set status = 'parked', error_class = 'Permanent', error_code = 'message.kills_the_process',
                  last_error = 'the process ended ' || unfinished || ' times in a row while this message ran',
                  failures = coalesce(failures, '[]') || jsonb_build_object(
                      'attempt', attempts, 'at', now(), 'class', 'Permanent', 'code', 'message.kills_the_process')
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
