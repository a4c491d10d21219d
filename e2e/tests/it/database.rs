//! Each stack has a database of its own, with the services' rights and no more.

use e2e::{Servers, Settings, Stack};
use serde_json::json;
use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, Executor as _};

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
