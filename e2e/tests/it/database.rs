//! Each stack has a database of its own, with the services' rights and no more.

use anyhow::{Context as _, ensure};
use e2e::{Servers, Service, Settings, Stack};
use serde_json::json;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

#[tokio::test]
async fn two_stacks_do_not_see_each_other_s_rows() -> anyhow::Result<()> {
    let (one, two) =
        tokio::try_join!(Stack::start_empty(Settings::default()), Stack::start_empty(Settings::default()))?;

    one.database
        .execute("insert into orders.operator_actions (actor, verb, target, reason) values ('a', 'b', 'c', 'd')")
        .await?;

    let count = "select count(*) from orders.operator_actions";
    assert_eq!(one.database.value(count).await?, json!(1));
    assert_eq!(two.database.value(count).await?, json!(0));
    Ok(())
}

#[tokio::test]
async fn a_service_reaches_its_own_schema_and_no_other() -> anyhow::Result<()> {
    let stack = Stack::start_empty(Settings::default()).await?;
    let servers = Servers::of_this_run()?;
    let url = servers.database_url("payments", stack.database.name(), servers.postgres.address());
    let mut payment = PgConnection::connect(&url).await?;

    payment.execute("select * from outbox").await?;
    let refused = payment.execute("select * from orders.outbox").await.unwrap_err();
    let code = refused.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned());
    assert_eq!(code.as_deref(), Some("42501"));
    Ok(())
}

#[tokio::test]
async fn the_auditor_reads_every_table_and_changes_nothing() -> anyhow::Result<()> {
    let stack = Stack::start_empty(Settings::default()).await?;
    let mut auditor = PgConnection::connect(&stack.auditor_url()).await?;
    let read_only: String = sqlx::query_scalar("show default_transaction_read_only").fetch_one(&mut auditor).await?;
    assert_eq!(read_only, "on");
    // It could take that back: its rights must do.
    auditor.execute("set default_transaction_read_only = off").await?;
    let ours = "not like all ('{pg\\_%,information\\_schema}')";
    let listed = format!("select schemaname || '.' || tablename from pg_tables where schemaname {ours}");
    let tables: Vec<String> = sqlx::query_scalar(AssertSqlSafe(listed)).fetch_all(stack.database.pool()).await?;
    assert!(tables.len() > 25, "{tables:?}");
    for table in &tables {
        auditor.execute(AssertSqlSafe(format!("select * from {table}"))).await?;
        for attempt in ["insert into {} default values", "delete from {}", "truncate {}", "drop table {}"] {
            refused(&mut auditor, &attempt.replace("{}", table)).await?;
        }
    }
    let listed = format!("select nspname::text from pg_namespace where nspname {ours}");
    let schemas: Vec<String> = sqlx::query_scalar(AssertSqlSafe(listed)).fetch_all(stack.database.pool()).await?;
    for schema in &schemas {
        refused(&mut auditor, &format!("create table {schema}.mine (id int)")).await?;
    }
    refused(&mut auditor, "create temporary table mine (id int)").await?;
    for service in Service::ALL.into_iter().filter(|service| service.has_broker()) {
        // It runs as the owner of the tables.
        let maintain = |schema: &str| format!("select {schema}.maintain_outbox_history(interval '1 day', 1)");
        let mut of_service = PgConnection::connect(&stack.database_url(service)).await?;
        of_service.execute(AssertSqlSafe(maintain(service.schema()))).await?;
        refused(&mut auditor, &maintain(service.schema())).await?;
    }
    Ok(())
}

async fn refused(session: &mut PgConnection, statement: &str) -> anyhow::Result<()> {
    let tried = session.execute(AssertSqlSafe(statement.to_owned())).await;
    let error = tried.err().with_context(|| format!("{statement} was done"))?;
    let code = error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned());
    ensure!(code.as_deref() == Some("42501"), "{statement}: {error}");
    Ok(())
}

#[tokio::test]
async fn a_dropped_stack_leaves_no_database_behind() -> anyhow::Result<()> {
    let stack = Stack::start_empty(Settings::default()).await?;
    let name = stack.database.name().to_owned();
    let other = Stack::start_empty(Settings::default()).await?;
    let count = format!("select count(*) from pg_database where datname = '{name}'");
    assert_eq!(other.database.value(&count).await?, json!(1));

    drop(stack);

    assert_eq!(other.database.value(&count).await?, json!(0));
    Ok(())
}
