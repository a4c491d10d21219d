//! How to reach a run's servers: what `saga test` hands to the tests.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context as _;
use migrations::{AUDITOR, Passwords, SCHEMAS};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use sqlx::postgres::{PgConnectOptions, PgSslMode};

/// Every listener of ours is here and nowhere else.
pub(crate) const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// The variable that names the file with the coordinates.
pub const VARIABLE: &str = "SAGA_SERVERS";

/// One server and its administrator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Endpoint {
    pub host: Ipv4Addr,
    pub port: u16,
    pub user: String,
    pub password: String,
}

impl Endpoint {
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((self.host, self.port))
    }
}

/// Where a run's servers are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Coordinates {
    /// The state directory: what its owner starts carries its path.
    pub directory: PathBuf,
    pub postgres: Endpoint,
    /// AMQP; the same user administrates.
    pub broker: Endpoint,
    pub management_port: u16,
    /// What every password is derived from.
    pub secret: String,
}

impl Coordinates {
    /// The coordinates of the servers that `saga test` started for this run.
    ///
    /// # Errors
    /// It did not.
    pub fn of_this_run() -> anyhow::Result<Self> {
        let path = env::var_os(VARIABLE).context("no servers to test on: run `cargo saga test`")?;
        let text = fs::read_to_string(&path).context("the servers of this run are gone: run `cargo saga test`")?;
        serde_json::from_str(&text).context("reading the servers' coordinates")
    }

    /// The password of a role or user: each has its own.
    pub fn password_of(&self, name: &str) -> String {
        derive(&self.secret, name)
    }

    /// Connects as superuser to a database.
    pub fn superuser(&self, database: &str) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .host(&self.postgres.host.to_string())
            .port(self.postgres.port)
            .username(&self.postgres.user)
            .password(&self.postgres.password)
            .database(database)
            .ssl_mode(PgSslMode::Disable)
    }

    /// Connects as the role of a schema, through whatever listens at `at`.
    pub fn database_url(&self, schema: &str, database: &str, at: SocketAddr) -> String {
        self.url_of(&format!("{schema}_service"), database, at)
    }

    /// Connects as the role that may only read.
    pub fn auditor_url(&self, database: &str) -> String {
        self.url_of(AUDITOR, database, self.postgres.address())
    }

    fn url_of(&self, role: &str, database: &str, at: SocketAddr) -> String {
        format!("postgres://{role}:{}@{at}/{database}?sslmode=disable", self.password_of(role))
    }

    /// RabbitMQ's page, with the administrator's name and password in it.
    pub fn broker_page(&self) -> String {
        let Endpoint { host, user, password, .. } = &self.broker;
        format!("http://{user}:{password}@{host}:{}", self.management_port)
    }

    /// A URL of RabbitMQ's management API.
    pub fn management(&self, path: &str) -> String {
        format!("http://{}:{}/api/{path}", self.broker.host, self.management_port)
    }
}

/// Brings a database to the state that the services need.
///
/// # Errors
/// The server is away, or a migration fails.
pub async fn migrate(coordinates: &Coordinates, database: &str) -> anyhow::Result<()> {
    let roles = SCHEMAS.iter().map(|schema| schema.role).chain([AUDITOR]);
    let passwords = Passwords(roles.map(|role| (role.to_owned(), coordinates.password_of(role))).collect());
    migrations::migrate(&coordinates.superuser(database), &passwords).await
}

/// Passwords that stay the same as long as the data does, without keeping each.
pub(crate) fn derive(secret: &str, name: &str) -> String {
    hex::encode(&Sha256::digest(format!("{secret}/{name}"))[..16])
}
