//! The five services, and what each is given to start.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::servers::Coordinates;

/// One of the five.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Service {
    Order,
    Payment,
    Inventory,
    Shipping,
    Sandbox,
}

impl Service {
    /// Third parties first: payment and shipping are told where they are.
    pub const ALL: [Service; 5] =
        [Service::Sandbox, Service::Order, Service::Payment, Service::Inventory, Service::Shipping];

    /// The name of its program and of its user at the broker.
    pub fn name(self) -> &'static str {
        match self {
            Service::Order => "order",
            Service::Payment => "payment",
            Service::Inventory => "inventory",
            Service::Shipping => "shipping",
            Service::Sandbox => "sandbox",
        }
    }

    /// Its schema.
    pub fn schema(self) -> &'static str {
        match self {
            Service::Order => "orders",
            Service::Payment => "payments",
            Service::Inventory => "inventory",
            Service::Shipping => "shipping",
            Service::Sandbox => "sandbox",
        }
    }

    /// Whether it talks to the broker.
    pub fn has_broker(self) -> bool {
        self != Service::Sandbox
    }

    /// Whether it does a step of the saga.
    pub fn is_participant(self) -> bool {
        matches!(self, Service::Payment | Service::Inventory | Service::Shipping)
    }

    /// The variable that tells it where its third party is.
    pub fn third_party(self) -> Option<&'static str> {
        match self {
            Service::Payment => Some("PROVIDER_URL"),
            Service::Shipping => Some("CARRIER_URL"),
            Service::Order | Service::Inventory | Service::Sandbox => None,
        }
    }
}

/// What a service talks to.
pub struct Surroundings<'a> {
    pub coordinates: &'a Coordinates,
    pub database: &'a str,
    pub vhost: &'a str,
    /// Where the database is, when not where the coordinates say.
    pub postgres_at: Option<SocketAddr>,
    /// The same for the broker.
    pub broker_at: Option<SocketAddr>,
    pub ops_token: &'a str,
    pub otlp: Option<&'a str>,
    pub sandbox: Option<String>,
    /// Where the operators' listeners are: the order service asks the participants there.
    pub ops: BTreeMap<Service, SocketAddr>,
}

impl Surroundings<'_> {
    /// The environment of a service that listens on these addresses.
    pub fn environment(&self, service: Service, http: SocketAddr, ops: SocketAddr) -> BTreeMap<String, String> {
        let Coordinates { postgres, broker, .. } = self.coordinates;
        let at = self.postgres_at.unwrap_or(postgres.address());
        let mut environment = BTreeMap::from([
            ("DATABASE_URL", self.coordinates.database_url(service.schema(), self.database, at)),
            ("HTTP_ADDRESS", http.to_string()),
            ("OPS_ADDRESS", ops.to_string()),
            ("OPS_TOKEN", self.ops_token.to_owned()),
            ("SAGA_LOG", "json".to_owned()),
            // For the AMQP client's thread: it reads headers as deep as they are nested.
            ("RUST_MIN_STACK", "268435456".to_owned()),
        ]);
        if service.has_broker() {
            let name = service.name();
            let password = self.coordinates.password_of(name);
            let at = self.broker_at.unwrap_or(broker.address());
            environment.insert("AMQP_URL", format!("amqp://{name}:{password}@{at}/{}", self.vhost));
        }
        if let Some(endpoint) = self.otlp {
            environment.insert("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.to_owned());
        }
        if let (Some(variable), Some(url)) = (service.third_party(), &self.sandbox) {
            environment.insert(variable, url.clone());
        }
        if service == Service::Order {
            let peers = self.ops.iter().filter(|(peer, _)| peer.is_participant());
            let peers: Vec<String> = peers.map(|(peer, at)| format!("{}=http://{at}", peer.name())).collect();
            environment.insert("OPS_PEERS", peers.join(","));
        }
        environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
