//! What is forgotten, and when: history by whole days, the inbox row by row in small batches. Both may run in every
//! instance at once, and under load: a row that somebody works on is left for the next time.

use std::time::Duration;

use sqlx::PgConnection;

use crate::error::Failure;

/// Partitions that are there before they are needed, in days.
const DAYS_AHEAD: i32 = 3;

/// What changed in the history's partitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Maintained {
    /// Days made ahead.
    pub made: i32,
    /// Days dropped.
    pub dropped: i32,
}

/// Makes the partitions of the coming days, and drops those whose last row is older than `retention`. Does nothing while
/// another instance does it.
///
/// # Errors
/// As the database says.
pub async fn maintain_history(connection: &mut PgConnection, retention: Duration) -> Result<Maintained, Failure> {
    let query = sqlx::query_as!(
        Maintained,
        r#"select made as "made!", dropped as "dropped!"
           from maintain_outbox_history($1 * interval '1 second', $2)"#,
        retention.as_secs_f64(),
        DAYS_AHEAD
    );
    Ok(query.fetch_one(connection).await?)
}

/// Forgets at most `limit` messages that are done or discarded and came longer ago than `age`, and tells how many it
/// forgot. What came again is forgotten no later: a message that comes after that has its effect once more, unless the
/// business key stops it. So `age` is longer than any message can be on its way.
///
/// # Errors
/// As the database says.
pub async fn purge_inbox(connection: &mut PgConnection, age: Duration, limit: i64) -> Result<u64, Failure> {
    let deleted = sqlx::query!(
        "delete from inbox where ctid = any(array(
             select ctid from inbox
             where received_at < now() - $1 * interval '1 second' and status in ('done', 'discarded')
             limit $2 for update skip locked))",
        age.as_secs_f64(),
        limit
    )
    .execute(connection)
    .await?;
    Ok(deleted.rows_affected())
}
