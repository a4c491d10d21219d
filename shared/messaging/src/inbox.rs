//! Every statement on the inbox: what a consumer has seen, and the messages that it keeps because they are not done.
//! Kept messages run again by [`claims`].

use std::collections::HashSet;
use std::time::Duration;

use sqlx::PgConnection;

use crate::consumer::raw::{Raw, text};
use crate::error::{Class, Failure};

pub(crate) mod claims;

/// What is kept of a message that is not done, and why.
pub(crate) struct Kept<'a> {
    pub(crate) raw: &'a Raw,
    pub(crate) status: &'static str,
    pub(crate) attempts: u32,
    pub(crate) wait: Duration,
    pub(crate) failure: Option<&'a Failure>,
}

/// Which of these messages the consumer has seen. One look into the index for each: as one condition over all of them
/// it is planned, while there are no statistics yet, as a walk through everything that the consumer has ever seen.
pub(crate) async fn list_known(
    connection: &mut PgConnection,
    consumer: &str,
    message_ids: &[String],
) -> Result<HashSet<String>, Failure> {
    let query = sqlx::query_scalar!(
        r#"select m.message_id as "message_id!" from unnest($2::text[]) as m(message_id)
           where exists (select from inbox i where i.consumer = $1 and i.message_id = m.message_id offset 0)"#,
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

/// Keeps fresh messages as they came. One that is known already stays as it is.
pub(crate) async fn keep(connection: &mut PgConnection, consumer: &str, kept: &[Kept<'_>]) -> Result<(), Failure> {
    sqlx::query!(
        r#"insert into inbox (consumer, message_id, key, message_type, correlation_id, status, attempts,
                              next_attempt_at, error_class, error_code, last_error, failures, body, properties,
                              exchange, routing_key)
           select $1, message_id, key, message_type, correlation_id, status, attempts,
                  now() + wait * interval '1 second', error_class, error_code, last_error,
                  case when error_code is not null then jsonb_build_array(jsonb_build_object(
                      'attempt', attempts, 'at', now(), 'class', error_class, 'code', error_code)) end,
                  body, properties, exchange, routing_key
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

/// Counts that known messages came again, each as often as it stands here. For the record only: a row that somebody
/// works on just now is left out.
pub(crate) async fn count_repeats(
    connection: &mut PgConnection,
    consumer: &str,
    message_ids: &[String],
) -> Result<(), Failure> {
    if message_ids.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        r#"with again as (select message_id, count(*)::int as times from unnest($2::text[]) as m(message_id) group by 1),
           free as materialized (
               select message_id from inbox where consumer = $1 and message_id = any($2) for update skip locked)
           update inbox i set repeats = i.repeats + again.times, repeated_at = now()
           from free join again using (message_id) where i.consumer = $1 and i.message_id = free.message_id"#,
        consumer,
        message_ids
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

fn as_int(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
