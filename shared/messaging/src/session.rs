//! A database connection that belongs to one loop. Its work is never cancelled half-way: when a step takes too long
//! the whole connection is dropped, and the server rolls back.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _};

use crate::error::Failure;

/// Longer than any statement may take (`statement_timeout`), so it only strikes where the network is silent.
const SILENCE: Duration = Duration::from_secs(20);

/// How to open such a connection: with a name that an operator can see, and settings of its own.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    options: PgConnectOptions,
}

impl Session {
    pub(crate) fn new(database: &PgConnectOptions, name: &str, settings: &[(&str, &str)]) -> Session {
        let name: String = name.chars().take(63).collect();
        let options = database.clone().application_name(&name).options(settings.iter().copied());
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
