//! The migrations die in the middle of one, and two run at once: half a migration is never there, and the services
//! start on what they find.

use std::collections::BTreeMap;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use e2e::servers::Coordinates;
use e2e::{Settings, Stack, State, eventually};
use migrations::{AUDITOR, SCHEMAS};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};
use tokio::process::{Child, Command};

use super::death::Death;
use super::table::{How, SEAMS};
use crate::shop::SOON;

/// Stops the migration that makes this table, before the statement ends, while somebody has the lock.
const TRAP: &str = "
    create function public.trap() returns event_trigger language plpgsql as $$
    begin
        if exists (select from pg_event_trigger_ddl_commands() where object_identity = 'orders.saga_steps') then
            perform pg_advisory_xact_lock(4711);
        end if;
    end $$;
    create event trigger trap on ddl_command_end when tag in ('CREATE TABLE') execute function public.trap();
    select pg_advisory_lock(4711)";

/// One death in the middle of a migration, then two at once.
pub(crate) async fn migrating() -> anyhow::Result<Vec<Death>> {
    let servers = Coordinates::of_this_run()?;
    let name = format!("saga_{:08x}", rand::random::<u32>());
    let mut server = servers.superuser("postgres").connect().await?;
    server.execute(AssertSqlSafe(format!("create database {name}"))).await?;
    let seen = kill_one_and_run_two(&servers, &name).await;
    server.execute(AssertSqlSafe(format!("drop database {name} with (force)"))).await?;
    seen?;
    let end = "tables made once";
    let seams = SEAMS.iter().filter(|seam| seam.how == How::Migrating);
    Ok(seams
        .map(|seam| Death { seam, direction: seam.directions[0], service: None, deaths: 1, recognised: 0, end })
        .collect())
}

async fn kill_one_and_run_two(servers: &Coordinates, name: &str) -> anyhow::Result<()> {
    let mut database = servers.superuser(name).connect().await?;
    database.execute(TRAP).await?;
    let mut dies = migrate(servers, name)?;
    let trapped = "select count(*) from pg_locks where locktype = 'advisory' and not granted and objid = 4711
                   and database = (select oid from pg_database where datname = current_database())";
    let looking = tokio::sync::Mutex::new(&mut database);
    eventually(SOON, "the migration is in the middle", async || {
        let waiting: i64 = sqlx::query_scalar(trapped).fetch_one(&mut **looking.lock().await).await?;
        Ok(if waiting == 1 { State::Reached(()) } else { State::pending(waiting) })
    })
    .await?;
    dies.kill().await?;
    // Its session learns of that only now.
    database.execute("drop event trigger trap; select pg_advisory_unlock(4711)").await?;
    let gone = servers.superuser(name).connect().await?;
    gone.close().await?;

    let (one, other) = (migrate(servers, name)?, migrate(servers, name)?);
    for run in [one, other] {
        let output = run.wait_with_output().await?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let twice = "select count(*) from (
                     select version from orders._sqlx_migrations group by version having count(*) > 1 or not bool_and(success)) v";
    let twice: i64 = sqlx::query_scalar(twice).fetch_one(&mut database).await?;
    ensure!(twice == 0, "{twice} migrations ran twice, or half");
    compare(servers, &mut database).await?;
    database.close().await?;
    Ok(())
}

/// Everything that is in a database of the tests is here too.
async fn compare(servers: &Coordinates, database: &mut PgConnection) -> anyhow::Result<()> {
    let columns = "select string_agg(concat_ws('.', table_schema, table_name, column_name), ' '
                                     order by table_schema, table_name, ordinal_position)
                   from information_schema.columns
                   where table_schema in ('orders', 'payments', 'inventory', 'shipping', 'sandbox')";
    let here: String = sqlx::query_scalar(columns).fetch_one(database).await?;
    let whole = Stack::start_empty(Settings::default().on(servers.clone())).await?;
    let there = whole.database.value(columns).await?;
    let there = there.as_str().unwrap_or_default();
    let differing = there.split(' ').filter(|column| !here.split(' ').any(|other| other == *column));
    ensure!(here == there, "missing: {:?}", differing.collect::<Vec<_>>());
    Ok(())
}

/// The program, as a deployment runs it.
fn migrate(servers: &Coordinates, name: &str) -> anyhow::Result<Child> {
    let mut environment: BTreeMap<String, String> = SCHEMAS
        .iter()
        .map(|schema| (format!("{}_DATABASE_PASSWORD", schema.name.to_uppercase()), servers.password_of(schema.role)))
        .collect();
    environment.insert("AUDITOR_DATABASE_PASSWORD".to_owned(), servers.password_of(AUDITOR));
    environment.insert("DATABASE_URL".to_owned(), servers.superuser(name).to_url_lossy().to_string());
    let mut command = Command::new(e2e::stack::programs()?.join("migrations"));
    command.env_clear().envs(environment).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.kill_on_drop(true).spawn().context("starting the migrations")
}
