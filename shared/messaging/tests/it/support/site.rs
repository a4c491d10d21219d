//! One test's place: a database and a vhost of its own, gone with it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use messaging::{Broker, Message, outbox};
use migrations::MESSAGING;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, FromRow};
use tokio::sync::OnceCell;

use super::eventually::eventually;
use super::proxy::Proxy;
use super::servers::Servers;

pub(super) const SCHEMA: &str = "shop";

/// Where effects can be counted: nothing here is unique, so that what happens twice is seen twice.
const EFFECTS: &str = "create table effects (
    id bigint generated always as identity primary key, message_id uuid, key text, text text, attempt integer)";

pub(crate) struct Site {
    name: String,
    pub(crate) pool: PgPool,
    servers: &'static Servers,
    /// How the loops under test reach the broker.
    route: SocketAddr,
}

impl Site {
    pub(crate) async fn open() -> anyhow::Result<Site> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let servers = Servers::of_this_run();
        let name = format!("messaging_{}_{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let template = template(servers).await?;
        let mut server = servers.database("postgres").connect().await?;
        run(&mut server, format!("create database {name} template {template}")).await?;
        server.close().await?;
        let pool = PgPoolOptions::new().max_connections(8).connect_lazy_with(options(servers, &name));
        let site = Site { name, pool, servers, route: servers.broker_address() };
        site.manage(Method::PUT, &["vhosts", &site.name], Some(json!({}))).await?;
        Ok(site)
    }

    /// As a service would connect, with the settings that its role would have.
    pub(crate) fn database(&self) -> PgConnectOptions {
        options(self.servers, &self.name)
    }

    pub(crate) fn database_url(&self) -> String {
        self.servers.database_url(&self.name)
    }

    pub(crate) fn broker(&self, process: &str) -> Broker {
        let url = self.servers.broker_url(&self.name, self.route);
        Broker::new(&url, process).expect("the test's own URL")
    }

    /// The way past any proxy.
    pub(crate) fn broker_url(&self) -> String {
        self.servers.broker_url(&self.name, self.servers.broker_address())
    }

    /// From now on the loops reach the broker through a proxy.
    pub(crate) async fn through_proxy(&mut self) -> anyhow::Result<Proxy> {
        let proxy = Proxy::to(self.servers.broker_address()).await?;
        self.route = proxy.address();
        Ok(proxy)
    }

    /// Appends in a transaction of its own. Nobody is poked.
    pub(crate) async fn append(&self, messages: &[Message]) -> anyhow::Result<()> {
        let mut transaction = self.pool.begin().await?;
        outbox::append(&mut transaction, messages).await?;
        Ok(transaction.commit().await?)
    }

    /// A session of the test's own.
    pub(crate) async fn connection(&self) -> anyhow::Result<PgConnection> {
        Ok(self.database().connect().await?)
    }

    pub(crate) async fn execute(&self, sql: &str) -> anyhow::Result<u64> {
        Ok(self.pool.execute(AssertSqlSafe(sql)).await?.rows_affected())
    }

    pub(crate) async fn rows<T>(&self, sql: &str) -> anyhow::Result<Vec<T>>
    where
        T: Send + Unpin + for<'r> FromRow<'r, PgRow>,
    {
        Ok(sqlx::query_as(AssertSqlSafe(sql)).fetch_all(&self.pool).await?)
    }

    pub(crate) async fn row<T>(&self, sql: &str) -> anyhow::Result<T>
    where
        T: Send + Unpin + for<'r> FromRow<'r, PgRow>,
    {
        Ok(sqlx::query_as(AssertSqlSafe(sql)).fetch_one(&self.pool).await?)
    }

    /// How many rows `from` has, for example `inbox where status = 'parked'`.
    pub(crate) async fn count(&self, from: &str) -> anyhow::Result<i64> {
        Ok(self.row::<(i64,)>(&format!("select count(*) from {from}")).await?.0)
    }

    /// Waits until `from` has so many rows.
    pub(crate) async fn counted(&self, from: &str, expected: i64) -> anyhow::Result<()> {
        let what = format!("{expected} rows in {from}");
        eventually(&what, async || self.count(from).await, |count| *count == expected).await.map(drop)
    }

    /// Ends the database sessions of this name; waits until there is one.
    pub(crate) async fn kill_session(&self, name: &str) -> anyhow::Result<()> {
        let sql = format!(
            "select pg_terminate_backend(pid) from pg_stat_activity
             where datname = current_database() and application_name = '{name}'"
        );
        let what = format!("a session {name} to kill");
        eventually(&what, async || self.rows::<(bool,)>(&sql).await, |killed| !killed.is_empty()).await.map(drop)
    }

    /// Asks RabbitMQ's management.
    pub(crate) async fn manage(&self, method: Method, path: &[&str], body: Option<Value>) -> anyhow::Result<Value> {
        let mut request = self.servers.management(method, path);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await?.error_for_status()?;
        let text = answer.text().await?;
        Ok(if text.is_empty() { Value::Null } else { serde_json::from_str(&text)? })
    }

    /// Closes the broker connections of this name, as an operator would; waits until there is one.
    pub(crate) async fn close_connection(&self, name: &str) -> anyhow::Result<()> {
        let close = async || {
            let list = self.manage(Method::GET, &["vhosts", &self.name, "connections"], None).await?;
            let of_name = |connection: &&Value| connection["user_provided_name"] == name;
            let mut closed = 0;
            for connection in list.as_array().into_iter().flatten().filter(of_name) {
                let id = connection["name"].as_str().unwrap_or_default();
                // One that is gone already was closed as well.
                closed += u32::from(self.manage(Method::DELETE, &["connections", id], None).await.is_ok());
            }
            Ok(closed)
        };
        eventually(&format!("a connection {name} to close"), close, |closed| *closed > 0).await.map(drop)
    }

    /// Nobody can connect to the vhost any more; who is connected stays.
    pub(crate) async fn shut_broker(&self) -> anyhow::Result<()> {
        let path = ["permissions", &self.name, self.servers.broker_user()];
        self.manage(Method::DELETE, &path, None).await.map(drop)
    }

    pub(crate) async fn open_broker(&self) -> anyhow::Result<()> {
        let path = ["permissions", &self.name, self.servers.broker_user()];
        let all = json!({"configure": ".*", "write": ".*", "read": ".*"});
        self.manage(Method::PUT, &path, Some(all)).await.map(drop)
    }

    /// Deletes an exchange, a queue or a binding.
    pub(crate) async fn delete(&self, kind: &str, name: &[&str]) -> anyhow::Result<()> {
        let path: Vec<&str> = [kind, &self.name].into_iter().chain(name.iter().copied()).collect();
        self.manage(Method::DELETE, &path, None).await.map(drop)
    }
}

#[allow(clippy::print_stderr, reason = "a test cannot fail any more when it cleans up, but it can tell")]
impl Drop for Site {
    /// On a thread of its own: this one is inside a runtime, or panics. The runtime's other threads work on, and let
    /// the loops that are left end well.
    fn drop(&mut self) {
        let (name, servers) = (self.name.clone(), self.servers);
        let clean = async move {
            let gone = servers.management(Method::DELETE, &["vhosts", &name]).send().await;
            let mut server = servers.database("postgres").connect().await?;
            run(&mut server, format!("drop database if exists {name} with (force)")).await?;
            gone.map(drop).map_err(anyhow::Error::from)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let cleaned = std::thread::spawn(move || runtime.map(|runtime| runtime.block_on(clean))).join();
        if !matches!(cleaned, Ok(Ok(Ok(())))) {
            eprintln!("left behind: {}", self.name);
        }
    }
}

fn options(servers: &Servers, name: &str) -> PgConnectOptions {
    let settings = [("search_path", SCHEMA), ("statement_timeout", "15s"), ("lock_timeout", "5s")];
    servers.database(name).options(settings)
}

/// The migrated database that every other is a copy of. Its name tells what it was made from, so that a server which
/// outlives the run never serves an old one.
async fn template(servers: &'static Servers) -> anyhow::Result<&'static str> {
    static TEMPLATE: OnceCell<String> = OnceCell::const_new();
    let build = async || {
        let sum = MESSAGING.iter().flat_map(|m| m.checksum.iter().copied().chain(EFFECTS.bytes()));
        let sum = sum.fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let name = format!("messaging_template_{sum:016x}");
        let mut server = servers.database("postgres").connect().await?;
        server.execute("select pg_advisory_lock(hashtext('messaging.template'))").await?;
        let is_there =
            sqlx::query_scalar("select exists (select 1 from pg_database where datname = $1 and datistemplate)");
        if !is_there.bind(&name).fetch_one(&mut server).await? {
            run(&mut server, format!("drop database if exists {name} with (force)")).await?;
            run(&mut server, format!("create database {name}")).await?;
            let mut connection = options(servers, &name).connect().await?;
            run(&mut connection, format!("create schema {SCHEMA}")).await?;
            MESSAGING.run_direct(None, &mut connection, false).await?;
            connection.execute(EFFECTS).await?;
            connection.close().await?;
            run(&mut server, format!("alter database {name} is_template true allow_connections false")).await?;
        }
        server.close().await?;
        anyhow::Ok(name)
    };
    Ok(TEMPLATE.get_or_try_init(build).await?)
}

async fn run(connection: &mut PgConnection, statement: String) -> anyhow::Result<()> {
    connection.execute(AssertSqlSafe(statement)).await?;
    Ok(())
}
