//! The servers of this run, as `cargo saga test` hands them over.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::OnceLock;

use serde::Deserialize;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

#[derive(Deserialize)]
pub(super) struct Servers {
    postgres: Endpoint,
    broker: Endpoint,
    management_port: u16,
}

#[derive(Deserialize)]
struct Endpoint {
    host: Ipv4Addr,
    port: u16,
    user: String,
    password: String,
}

impl Servers {
    /// Panics where there are none: a test that cannot run must not be green.
    pub(super) fn of_this_run() -> &'static Servers {
        static SERVERS: OnceLock<Servers> = OnceLock::new();
        SERVERS.get_or_init(|| {
            let path = std::env::var_os("SAGA_SERVERS").expect("no servers to test on: run `cargo saga test`");
            let text = std::fs::read_to_string(path).expect("the servers are gone: run `cargo saga test`");
            serde_json::from_str(&text).expect("the servers' coordinates can be read")
        })
    }

    pub(super) fn database(&self, name: &str) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .host(&self.postgres.host.to_string())
            .port(self.postgres.port)
            .username(&self.postgres.user)
            .password(&self.postgres.password)
            .database(name)
            .ssl_mode(PgSslMode::Disable)
    }

    pub(super) fn database_url(&self, name: &str) -> String {
        let Endpoint { host, port, user, password } = &self.postgres;
        format!(
            "postgres://{user}:{password}@{host}:{port}/{name}?sslmode=disable&options[search_path]={}",
            super::site::SCHEMA
        )
    }

    pub(super) fn broker_address(&self) -> SocketAddr {
        SocketAddr::from((self.broker.host, self.broker.port))
    }

    /// The vhost, through whatever listens at `at`.
    pub(super) fn broker_url(&self, vhost: &str, at: SocketAddr) -> String {
        format!("amqp://{}:{}@{at}/{vhost}", self.broker.user, self.broker.password)
    }

    pub(super) fn broker_user(&self) -> &str {
        &self.broker.user
    }

    /// A call of RabbitMQ's management API. Each part of the path is escaped: names of connections have spaces.
    pub(super) fn management(&self, method: reqwest::Method, path: &[&str]) -> reqwest::RequestBuilder {
        let base = format!("http://{}:{}/api", self.broker.host, self.management_port);
        let mut url = reqwest::Url::parse(&base).expect("the management API has a URL");
        url.path_segments_mut().expect("http has paths").extend(path);
        let client = reqwest::Client::builder().no_proxy().build().expect("an HTTP client");
        client.request(method, url).basic_auth(&self.broker.user, Some(&self.broker.password))
    }
}
