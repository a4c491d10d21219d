//! What a test may want different in its stack.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::servers::Coordinates;
use crate::stack::service::Service;

/// The default is five services on the servers of this run, with their own default settings.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub(crate) servers: Option<Coordinates>,
    pub(crate) otlp: Option<String>,
    pub(crate) variables: BTreeMap<Service, BTreeMap<String, String>>,
    pub(crate) postgres_at: BTreeMap<Service, SocketAddr>,
    pub(crate) broker_at: BTreeMap<Service, SocketAddr>,
}

impl Settings {
    /// On these servers: for a test that breaks them.
    #[must_use]
    pub fn on(mut self, servers: Coordinates) -> Self {
        self.servers = Some(servers);
        self
    }

    /// Sends spans there.
    #[must_use]
    pub fn otlp(mut self, endpoint: impl Into<String>) -> Self {
        self.otlp = Some(endpoint.into());
        self
    }

    /// Sets a variable in the environment of a service.
    #[must_use]
    pub fn set(mut self, service: Service, variable: &str, value: impl Into<String>) -> Self {
        self.variables.entry(service).or_default().insert(variable.to_owned(), value.into());
        self
    }

    /// Lets a service reach the database through a proxy.
    #[must_use]
    pub fn postgres_through(mut self, service: Service, proxy: SocketAddr) -> Self {
        self.postgres_at.insert(service, proxy);
        self
    }

    /// Lets a service reach the broker through a proxy.
    #[must_use]
    pub fn broker_through(mut self, service: Service, proxy: SocketAddr) -> Self {
        self.broker_at.insert(service, proxy);
        self
    }
}
