//! Creates what the services find when they start: one role and one schema for each, and the tables inside; and the
//! role of the auditor, which only reads. Runs as the owner of the schemas; the services have no right to change a table. Running it twice, or twice at
//! once, is harmless: one waits for the other and finds nothing left to do.

mod bootstrap;
mod schema;

pub use bootstrap::Passwords;
pub use schema::{AUDITOR, MESSAGING, SCHEMAS, Schema};

use anyhow::Context as _;
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};

use bootstrap::{bootstrap, create_database};

/// Creates the database if it is missing, then roles, schemas and tables.
///
/// # Errors
/// The database is unreachable, the role may not create what is missing, or a migration fails.
pub async fn migrate(database: &PgConnectOptions, passwords: &Passwords) -> anyhow::Result<()> {
    create_database(database).await?;
    let turn = take_turn(database).await?;
    bootstrap(database, passwords).await?;
    for schema in SCHEMAS {
        apply(database, schema).await.with_context(|| format!("migrating schema {}", schema.name))?;
    }
    turn.close().await?;
    Ok(())
}

/// Waits until no other run is at work: rights on a table that somebody else is just making cannot be granted. Nor is
/// a session at work that a killed run has left behind in the middle of a statement.
async fn take_turn(database: &PgConnectOptions) -> anyhow::Result<PgConnection> {
    let mut turn = database.connect().await.context("connecting to the database")?;
    turn.execute("select pg_advisory_lock(hashtext('saga.migrations'), 1)").await?;
    turn.execute(
        "select pg_advisory_lock(hashtext('saga.migrations'), 2), pg_advisory_unlock(hashtext('saga.migrations'), 2)",
    )
    .await?;
    Ok(turn)
}

/// Applies what is missing in one schema, on a connection of its own: a migration that fails would leave its
/// advisory lock on a pooled session, and every later run would wait for it.
async fn apply(database: &PgConnectOptions, schema: &Schema) -> anyhow::Result<()> {
    let options = database.clone().options([
        ("search_path", schema.name),
        ("lock_timeout", "60s"),
        ("client_connection_check_interval", "1s"),
    ]);
    let mut connection = options.connect().await?;
    connection.execute("select pg_advisory_lock_shared(hashtext('saga.migrations'), 2)").await?;
    let migrations = schema.sources.iter().flat_map(|source| source.iter().cloned()).collect();
    let migrated = Migrator::with_migrations(migrations).run_direct(None, &mut connection, false).await;
    migrated.map_err(anyhow::Error::from)?;
    for right in schema.rights {
        connection.execute(*right).await.with_context(|| format!("granting `{right}`"))?;
    }
    // Everybody may call a function unless told otherwise, and those here do what their caller may not.
    let functions = format!("revoke execute on all functions in schema {} from public", schema.name);
    connection.execute(AssertSqlSafe(functions)).await?;
    connection.close().await?;
    Ok(())
}
