//! The pool for requests and small loops.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgPool};

/// Relay and consumers have connections of their own, so the edge can never starve them.
const CONNECTIONS: u32 = 6;
/// A request that cannot have a connection by then is answered 503: the client knows soon.
const ACQUIRE: Duration = Duration::from_secs(2);
/// A connection that was idle for so long is asked whether it still lives. Asking each time costs a round trip; never
/// asking makes the first request after a restart of the server fail.
const ASK_AFTER: Duration = Duration::from_millis(500);

/// A plan lives as long as its connection. One that was made while a table was small would go on reading all of it.
const PLANNING: [(&str, &str); 1] = [("enable_seqscan", "off")];

/// Connects when first used: a service starts without its database and waits for it.
pub(crate) fn open(database: &PgConnectOptions) -> PgPool {
    sized(database, CONNECTIONS)
}

/// For those who watch: however busy the others are, health and figures are told.
pub(crate) fn watch(database: &PgConnectOptions) -> PgPool {
    sized(database, 1)
}

fn sized(database: &PgConnectOptions, connections: u32) -> PgPool {
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE)
        .test_before_acquire(false)
        .before_acquire(|connection, meta| {
            Box::pin(async move {
                if messaging::read_only_seen().is_some_and(|ago| ago <= meta.age) {
                    return Ok(false);
                }
                if meta.idle_for < ASK_AFTER {
                    return Ok(true);
                }
                Ok(connection.ping().await.is_ok())
            })
        })
        .connect_lazy_with(database.clone().options(PLANNING).disable_statement_logging())
}
