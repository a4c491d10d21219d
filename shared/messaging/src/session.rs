//! A database connection that belongs to one loop. Its work is never cancelled half-way: when a step takes too long
//! the whole connection is dropped, and the server rolls back.

use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _};

use crate::error::Failure;

/// Longer than any statement may take (`statement_timeout`), so it only strikes where the network is silent.
const SILENCE: Duration = Duration::from_secs(20);

/// How statements are planned: with an index, and once for many executions, because planning costs more than most of
/// them.
const PLANNING: [(&str, &str); 3] =
    [("plan_cache_mode", "force_generic_plan"), ("enable_seqscan", "off"), ("jit", "off")];

/// How long a plan is kept. The planner knows how large a table is when it plans, and statistics come a minute later at
/// best: a plan that was made for an empty inbox reads all of it for each message.
const PLAN_LIVES: Duration = Duration::from_secs(1);

/// The age of a session's plans.
#[derive(Debug)]
pub(crate) struct Plans {
    renewed: Instant,
}

impl Plans {
    pub(crate) fn new() -> Plans {
        Plans { renewed: Instant::now() }
    }

    /// Drops plans that are too old. Called where work begins, so that an idle session has no round trip of it.
    pub(crate) async fn renew(&mut self, connection: &mut PgConnection) -> Result<(), Failure> {
        if self.renewed.elapsed() >= PLAN_LIVES {
            within(async { Ok(connection.execute("discard plans").await?) }).await?;
            self.renewed = Instant::now();
        }
        Ok(())
    }
}

/// How to open such a connection: with a name that an operator can see, and settings of its own.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    options: PgConnectOptions,
}

impl Session {
    pub(crate) fn new(database: &PgConnectOptions, name: &str, settings: &[(&str, &str)]) -> Session {
        let name: String = name.chars().take(63).collect();
        let options = database.clone().application_name(&name).options(PLANNING).options(settings.iter().copied());
        Session { options: options.disable_statement_logging() }
    }

    pub(crate) async fn open(&self) -> Result<PgConnection, Failure> {
        within(async { Ok(self.options.connect().await?) }).await
    }
}

/// Runs a step on a connection that the caller drops if this fails: a silent network is an absent database.
pub(crate) async fn within<T>(step: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    match tokio::time::timeout(SILENCE, step).await {
        Ok(result) => result,
        Err(_) => Err(Failure::unavailable("database.silent", "the database did not answer in time")),
    }
}

/// Says good-bye; a server that does not listen any more is no reason to fail.
pub(crate) async fn close(connection: PgConnection) {
    drop(tokio::time::timeout(Duration::from_secs(1), connection.close()).await);
}
