//! The loop that forgets: history by days, inbox and idempotency keys by age, in small batches, so that tables keep to
//! a bound. Each instance runs it; what one of them works on the others pass over.

use std::time::Duration;

use messaging::{Failure, Pulse, State, retention, supervise};
use sqlx::PgPool;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::idempotency;

/// The loop's name.
pub(crate) const LOOP: &str = "cleaning";
/// Rows of one transaction: it takes milliseconds, and holds nobody up.
const BATCH: i64 = 1_000;
/// Between two batches, so that a purge of millions takes a tenth of the database and not all of it.
const BREATH: Duration = Duration::from_millis(50);
/// A loop beats at least so often.
const BEAT: Duration = Duration::from_secs(10);

/// What is kept how long, and how often is looked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Retention {
    pub(crate) history: Duration,
    /// The dedup window.
    pub(crate) inbox: Duration,
    pub(crate) keys: Duration,
    pub(crate) every: Duration,
}

/// What a service has to clean.
pub(crate) struct Cleaning {
    pub(crate) pool: PgPool,
    pub(crate) retention: Retention,
    /// Whether the schema remembers requests by their key.
    pub(crate) has_keys: bool,
}

impl Cleaning {
    /// Works until `stop`.
    pub(crate) async fn run(self, pulse: Pulse, stop: CancellationToken) {
        supervise::supervise(&pulse, &stop, || async {
            while !stop.is_cancelled() {
                pulse.beat(State::Working);
                self.clean(&pulse, &stop).await?;
                let next = Instant::now() + self.retention.every;
                while Instant::now() < next && !stop.is_cancelled() {
                    pulse.beat(State::Working);
                    let rest = BEAT.min(next - Instant::now());
                    drop(timeout(rest, stop.cancelled()).await);
                }
            }
            Ok(())
        })
        .await;
    }

    async fn clean(&self, pulse: &Pulse, stop: &CancellationToken) -> Result<(), Failure> {
        let history = self.retention.history;
        let days = retention::maintain_history(&mut *self.pool.acquire().await?, history).await?;
        if days.made + days.dropped > 0 {
            tracing::info!(
                loop.name = LOOP,
                "the history has {} days more and {} days less",
                days.made,
                days.dropped
            );
        }
        for table in Table::ALL {
            if table != Table::Keys || self.has_keys {
                self.purge(table, pulse, stop).await?;
            }
        }
        Ok(())
    }

    /// Batch after batch until nothing is left that is old enough.
    async fn purge(&self, table: Table, pulse: &Pulse, stop: &CancellationToken) -> Result<(), Failure> {
        let Retention { inbox, keys, .. } = self.retention;
        let mut total = 0;
        while !stop.is_cancelled() {
            let mut connection = self.pool.acquire().await?;
            let gone = match table {
                Table::Inbox => retention::purge_inbox(&mut connection, inbox, BATCH).await?,
                Table::Keys => idempotency::purge(&mut connection, keys, BATCH).await?,
            };
            drop(connection);
            metrics::counter!("retention_purged_rows_total", "table" => table.name()).increment(gone);
            total += gone;
            if gone < BATCH.unsigned_abs() {
                break;
            }
            pulse.beat(State::Working);
            sleep(BREATH).await;
        }
        if total > 0 {
            tracing::info!(
                loop.name = LOOP,
                "{total} rows of {} were older than their time, and are gone",
                table.name()
            );
        }
        Ok(())
    }
}

/// What is purged row by row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Table {
    Inbox,
    Keys,
}

impl Table {
    const ALL: [Table; 2] = [Table::Inbox, Table::Keys];

    fn name(self) -> &'static str {
        match self {
            Table::Inbox => "inbox",
            Table::Keys => "idempotency_keys",
        }
    }
}
