//! A database of one's own, copied from a template that is migrated once per server, and questions to it as superuser.

use anyhow::Context as _;
use migrations::{AUDITOR, SCHEMAS};
use serde_json::Value;
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};

use crate::servers::{Coordinates, migrate};

const TEMPLATE: &str = "saga_template";

/// One stack's database.
pub struct Database {
    name: String,
    url: String,
    pool: PgPool,
}

impl Database {
    /// Makes a fresh one of this name.
    ///
    /// # Errors
    /// The server is away, or has a database of this name.
    pub async fn create(coordinates: &Coordinates, name: &str) -> anyhow::Result<Self> {
        let mut server = coordinates.superuser("postgres").connect().await.context("connecting to the server")?;
        ensure_template(&mut server, coordinates).await?;
        run(&mut server, format!("create database {name} template {TEMPLATE}")).await?;
        // Rights on the database itself are not copied from the template.
        run(&mut server, format!("revoke all on database {name} from public")).await?;
        for role in roles() {
            run(&mut server, format!("grant connect on database {name} to {role}")).await?;
        }
        server.close().await?;
        let pool = PgPoolOptions::new().max_connections(4).connect_lazy_with(coordinates.superuser(name));
        let url = coordinates.superuser(name).to_url_lossy().to_string();
        Ok(Database { name: name.to_owned(), url, pool })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Connects as superuser.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// As superuser; tables are named with their schema.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// The rows of a query, each as a JSON object.
    ///
    /// # Errors
    /// The query is wrong or the server away.
    pub async fn rows(&self, sql: &str) -> anyhow::Result<Vec<Value>> {
        // A common table expression may also change rows and return them.
        let sql = format!("with asked as ({sql}) select to_jsonb(asked) from asked");
        Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&self.pool).await?)
    }

    /// The only value of a query, as JSON.
    ///
    /// # Errors
    /// As [`Database::rows`], or there is not exactly one row with one column.
    pub async fn value(&self, sql: &str) -> anyhow::Result<Value> {
        match self.rows(sql).await?.as_slice() {
            [Value::Object(row)] if row.len() == 1 => row.values().next().cloned().context("one column"),
            rows => anyhow::bail!("one row with one column was expected, not {rows:?}"),
        }
    }

    /// Runs statements.
    ///
    /// # Errors
    /// As [`Database::rows`].
    pub async fn execute(&self, sql: &str) -> anyhow::Result<()> {
        self.pool.execute(AssertSqlSafe(sql.to_owned())).await?;
        Ok(())
    }

    /// Removes a database with whoever is still connected.
    pub(crate) async fn drop_named(coordinates: &Coordinates, name: &str) -> anyhow::Result<()> {
        let mut server = coordinates.superuser("postgres").connect().await?;
        run(&mut server, format!("drop database if exists {name} with (force)")).await?;
        Ok(server.close().await?)
    }
}

fn roles() -> impl Iterator<Item = &'static str> {
    SCHEMAS.iter().map(|schema| schema.role).chain([AUDITOR])
}

/// Builds the template unless someone has; others who come meanwhile wait.
async fn ensure_template(server: &mut PgConnection, coordinates: &Coordinates) -> anyhow::Result<()> {
    if is_built(server).await? {
        return Ok(());
    }
    server.execute("select pg_advisory_lock(hashtext('saga.template'))").await?;
    if !is_built(server).await? {
        migrate(coordinates, TEMPLATE).await?;
        for role in roles() {
            // The limit is for one shop; here many stand side by side and share the roles.
            run(server, format!("alter role {role} connection limit -1")).await?;
        }
        // The mark that it is whole; and from here on nobody connects, which would make every copy wait.
        run(server, format!("alter database {TEMPLATE} is_template true allow_connections false")).await?;
    }
    server.execute("select pg_advisory_unlock(hashtext('saga.template'))").await?;
    Ok(())
}

async fn is_built(server: &mut PgConnection) -> anyhow::Result<bool> {
    let built = sqlx::query_scalar("select exists (select 1 from pg_database where datname = $1 and datistemplate)");
    Ok(built.bind(TEMPLATE).fetch_one(server).await?)
}

/// Runs a statement that names databases and roles, which cannot be parameters.
async fn run(connection: &mut PgConnection, statement: String) -> anyhow::Result<()> {
    connection.execute(AssertSqlSafe(statement.as_str())).await.map(drop).context(statement)
}
