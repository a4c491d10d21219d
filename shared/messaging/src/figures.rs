//! What the core tells Prometheus. Counters and times are recorded where things happen; what stands in the tables is
//! read when somebody scrapes, in one statement. No label is ever an id.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge};
use sqlx::PgConnection;

use crate::error::Failure;

/// A longer table is not counted to its end: the alarm has long gone off.
const COUNTED: i64 = 100_000;

/// Names the figures for a reader who meets them for the first time. Once in a process, after its recorder is there.
pub fn describe() {
    describe_gauge!("outbox_pending", "Rows that wait to be published; counted up to 100,000.");
    describe_gauge!("outbox_oldest_seconds", Unit::Seconds, "Age of the oldest row that waits to be published.");
    describe_gauge!("outbox_size_bytes", Unit::Bytes, "Size of the outbox, its history and their indexes.");
    describe_gauge!("outbox_dead_tuples", "Rows of the outbox that are gone and not vacuumed yet.");
    describe_counter!("outbox_published_total", "Messages that the broker has confirmed, by type.");
    describe_counter!("outbox_publish_failures_total", "Rows that the broker did not take and that are tried again.");
    describe_counter!("outbox_confirms_overdue_total", "Batches of which some confirms did not come in time.");
    describe_counter!("outbox_settled_elsewhere_total", "Confirmed rows that somebody else had taken away.");
    describe_histogram!(
        "outbox_publish_latency_seconds",
        Unit::Seconds,
        "From the making of a row to the broker's confirm of its message."
    );
    describe_gauge!(
        "inbox_open_messages",
        "Messages kept in the inbox, by status: waiting, retrying or parked; counted up to 100,000. What is skipped is not counted."
    );
    describe_gauge!("inbox_size_bytes", Unit::Bytes, "Size of the inbox with its indexes.");
    describe_gauge!("inbox_dead_tuples", "Rows of the inbox that are gone and not vacuumed yet.");
    describe_counter!(
        "messaging_handled_total",
        "Messages by consumer and outcome: done, duplicate, retrying, parked, waiting."
    );
    describe_gauge!(
        "messaging_loop_last_beat_timestamp_seconds",
        Unit::Seconds,
        "When a loop last went round, as Unix time."
    );
    describe_gauge!(
        "messaging_loop_working",
        "1 while a loop works or stands by, 0 while it starts, waits or has ended."
    );
    describe_gauge!(
        "database_oldest_transaction_seconds",
        Unit::Seconds,
        "Age of the oldest transaction of this service's role."
    );
    // A counter that has counted nothing yet is 0, not absent: alerts can tell.
    for name in ["outbox_publish_failures_total", "outbox_confirms_overdue_total", "outbox_settled_elsewhere_total"] {
        counter!(name).increment(0);
    }
}

/// The outbox as it is now.
#[derive(Clone, Copy, Debug)]
pub struct Backlog {
    /// Rows that wait; counted up to 100,000.
    pub pending: i64,
    /// The age of the oldest one.
    pub oldest: Duration,
}

/// Looks at the outbox that the search path names.
///
/// # Errors
/// As the database says.
pub async fn read_backlog(connection: &mut PgConnection) -> Result<Backlog, Failure> {
    let row = sqlx::query!(
        r#"select (select count(*) from (select from outbox limit $1) as counted) as "pending!",
                  coalesce((select extract(epoch from clock_timestamp() - min(since))::float8 from (
                      (select coalesce(replayed_at, created_at) as since from outbox order by id limit 1)
                      union all
                      (select created_at from outbox where replayed_at is null order by id limit 1)) as first), 0)
                      as "oldest!""#,
        COUNTED
    )
    .fetch_one(connection)
    .await?;
    Ok(Backlog { pending: row.pending, oldest: Duration::try_from_secs_f64(row.oldest).unwrap_or_default() })
}

/// Reads outbox and inbox and records their figures.
///
/// # Errors
/// As the database says; the gauges keep their last values.
pub async fn read(connection: &mut PgConnection) -> Result<(), Failure> {
    let row = sqlx::query!(
        r#"select (select count(*) from (select from outbox limit $1) as counted) as "pending!",
                  coalesce((select extract(epoch from clock_timestamp() - min(since))::float8 from (
                      (select coalesce(replayed_at, created_at) as since from outbox order by id limit 1)
                      union all
                      (select created_at from outbox where replayed_at is null order by id limit 1)) as first), 0)
                      as "oldest!",
                  open.waiting as "waiting!", open.retrying as "retrying!", open.parked as "parked!",
                  (pg_total_relation_size('outbox')
                   + (select sum(pg_total_relation_size(relid)) from pg_partition_tree('outbox_history')))::float8
                      as "outbox_size!",
                  pg_total_relation_size('inbox')::float8 as "inbox_size!",
                  pg_stat_get_dead_tuples('outbox'::regclass)::float8 as "outbox_dead!",
                  pg_stat_get_dead_tuples('inbox'::regclass)::float8 as "inbox_dead!",
                  coalesce((select extract(epoch from max(clock_timestamp() - xact_start))::float8
                            from pg_stat_activity
                            where usename = current_user and pid <> pg_backend_pid()), 0) as "oldest_transaction!"
           from (select (select count(*) from (select from inbox where status = 'waiting' limit $1) as a) as waiting,
                        (select count(*) from (select from inbox where status = 'retrying' limit $1) as b) as retrying,
                        (select count(*) from (select from inbox where status = 'parked' limit $1) as c) as parked
                ) as open"#,
        COUNTED
    )
    .fetch_one(connection)
    .await?;
    gauge!("outbox_pending").set(as_f64(row.pending));
    gauge!("outbox_oldest_seconds").set(row.oldest);
    gauge!("outbox_size_bytes").set(row.outbox_size);
    gauge!("outbox_dead_tuples").set(row.outbox_dead);
    for (status, count) in [("waiting", row.waiting), ("retrying", row.retrying), ("parked", row.parked)] {
        gauge!("inbox_open_messages", "status" => status).set(as_f64(count));
    }
    gauge!("inbox_size_bytes").set(row.inbox_size);
    gauge!("inbox_dead_tuples").set(row.inbox_dead);
    gauge!("database_oldest_transaction_seconds").set(row.oldest_transaction);
    Ok(())
}

fn as_f64(count: i64) -> f64 {
    i32::try_from(count).map_or(f64::from(i32::MAX), f64::from)
}
