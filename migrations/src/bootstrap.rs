//! The database, and one role and one schema for each service: what must be there before the first table.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};

use crate::schema::{AUDITOR, SCHEMAS, Schema};

/// The password of each role, by its name: nobody knows another's.
#[derive(Clone, Debug, Default)]
pub struct Passwords(pub BTreeMap<String, String>);

impl Passwords {
    fn of(&self, role: &str) -> anyhow::Result<&str> {
        self.0.get(role).map(String::as_str).with_context(|| format!("no password for the role {role}"))
    }
}

/// The oldest PostgreSQL that has everything the tables and sessions use.
const OLDEST_POSTGRES: i32 = 150_000;

/// How many sessions the auditor may open: one for each audit, and few people audit at once.
const AUDITS: u16 = 5;

/// Creates a login role and a schema for each service, and the auditor's role.
///
/// # Errors
/// The server is unreachable or older than PostgreSQL 15, the role may not create databases and roles, or a password
/// is missing.
pub(crate) async fn bootstrap(database: &PgConnectOptions, passwords: &Passwords) -> anyhow::Result<()> {
    let mut connection = database.connect().await.context("connecting to the database")?;
    let version: i32 =
        sqlx::query_scalar("select current_setting('server_version_num')::int").fetch_one(&mut connection).await?;
    if version < OLDEST_POSTGRES {
        bail!("PostgreSQL 15 or newer is needed, this server is {}.{}", version / 10_000, version % 10_000);
    }
    // Roles belong to the whole server, but a lock to one database: two runs for two databases meet in a third.
    let mut server = database.clone().database("postgres").connect().await.context("connecting to the server")?;
    sqlx::query("select pg_advisory_lock(hashtext('saga.bootstrap'))").execute(&mut server).await?;
    let mut transaction = connection.begin().await?;
    let name = database.get_database().unwrap_or("saga");
    run(&mut transaction, format!("revoke all on database {} from public", quoted(name))).await?;
    run(&mut transaction, "revoke all on schema public from public".to_owned()).await?;
    create_role(&mut transaction, AUDITOR, AUDITS, name, passwords.of(AUDITOR)?).await?;
    // Who has left a transaction open, and who waits for whom: no more than what the server says about its sessions.
    run(&mut transaction, format!("grant pg_read_all_stats to {AUDITOR}")).await?;
    set(&mut transaction, AUDITOR, "default_transaction_read_only", "on").await?;
    // It reads whole tables, and nobody waits for it.
    set(&mut transaction, AUDITOR, "statement_timeout", "60s").await?;
    for schema in SCHEMAS {
        let Schema { role, connection_limit, .. } = schema;
        create_role(&mut transaction, role, *connection_limit, name, passwords.of(role)?).await?;
        set(&mut transaction, role, "search_path", schema.name).await?;
        create_schema(&mut transaction, schema).await?;
    }
    transaction.commit().await?;
    connection.close().await?;
    server.close().await?;
    Ok(())
}

/// Creates the database if it is missing.
pub(crate) async fn create_database(database: &PgConnectOptions) -> anyhow::Result<()> {
    let name = database.get_database().unwrap_or("saga");
    let mut server = database.clone().database("postgres").connect().await.context("connecting to the server")?;
    let exists: bool = sqlx::query_scalar("select exists (select 1 from pg_database where datname = $1)")
        .bind(name)
        .fetch_one(&mut server)
        .await?;
    if !exists {
        let created = run(&mut server, format!("create database {}", quoted(name))).await;
        // 42P04 and 23505: another run was faster.
        let code = created.as_ref().err().and_then(|error| error.as_database_error()?.code().map(|c| c.to_string()));
        if !matches!(code.as_deref(), None | Some("42P04" | "23505")) {
            created.context("creating the database")?;
        }
    }
    server.close().await?;
    Ok(())
}

async fn create_role(
    connection: &mut PgConnection,
    role: &str,
    limit: u16,
    database: &str,
    password: &str,
) -> Result<(), sqlx::Error> {
    let exists: bool = sqlx::query_scalar("select exists (select 1 from pg_roles where rolname = $1)")
        .bind(role)
        .fetch_one(&mut *connection)
        .await?;
    let verb = if exists { "alter" } else { "create" };
    let secret = password.replace('\'', "''");
    run(
        connection,
        format!(
            "{verb} role {role} login nosuperuser nocreatedb nocreaterole nobypassrls \
        connection limit {limit} password '{secret}'"
        ),
    )
    .await?;
    run(connection, format!("grant connect on database {} to {role}", quoted(database))).await?;
    // A statement that waits for ever would hold a loop for ever. Consumers shorten the lock's time-out themselves.
    for (setting, value) in
        [("statement_timeout", "15s"), ("lock_timeout", "5s"), ("idle_in_transaction_session_timeout", "20s")]
    {
        set(connection, role, setting, value).await?;
    }
    Ok(())
}

async fn set(connection: &mut PgConnection, role: &str, setting: &str, value: &str) -> Result<(), sqlx::Error> {
    run(connection, format!("alter role {role} set {setting} = '{value}'")).await
}

async fn create_schema(connection: &mut PgConnection, schema: &Schema) -> Result<(), sqlx::Error> {
    let Schema { name, role, .. } = schema;
    for statement in [
        format!("create schema if not exists {name}"),
        format!("grant usage on schema {name} to {role}"),
        // What the owner creates here later is usable by the service at once, so no migration names a role.
        format!("alter default privileges in schema {name} grant select, insert, update, delete on tables to {role}"),
        format!("alter default privileges in schema {name} grant usage on sequences to {role}"),
        format!("alter default privileges in schema {name} grant execute on functions to {role}"),
        format!("grant usage on schema {name} to {AUDITOR}"),
        format!("alter default privileges in schema {name} grant select on tables to {AUDITOR}"),
        // Those of a database that is older than the auditor.
        format!("grant select on all tables in schema {name} to {AUDITOR}"),
    ] {
        run(connection, statement).await?;
    }
    Ok(())
}

/// Runs a statement that names roles and schemas, which cannot be parameters. Every name in it is a constant of this
/// crate or quoted.
async fn run(connection: &mut PgConnection, statement: String) -> Result<(), sqlx::Error> {
    connection.execute(AssertSqlSafe(statement)).await.map(drop)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
