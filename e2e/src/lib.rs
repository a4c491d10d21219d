//! The stack as a whole, driven from outside: what the `saga` command line and the end-to-end tests stand on.
//!
//! [`Servers`] starts a private PostgreSQL and RabbitMQ, [`Stack`] a database, a vhost and the five services on them.
//! [`Proxy`] and [`Holds`] break things at a chosen place and moment, [`Collector`] and [`Jaeger`] show the traces,
//! [`Prometheus`] the alerts, and [`eventually`] waits for a named state.

#[cfg(feature = "stack")]
pub mod audit;
#[cfg(feature = "stack")]
pub mod bench;
#[cfg(feature = "stack")]
pub mod chaos;
mod child;
#[cfg(feature = "stack")]
pub mod drill;
mod eventually;
mod holds;
pub mod jaeger;
pub mod otlp;
mod path;
pub mod prometheus;
mod proxy;
#[cfg(feature = "stack")]
pub mod scenario;
pub mod servers;
#[cfg(feature = "stack")]
pub mod shop;
#[cfg(feature = "stack")]
pub mod stack;

use std::path::Path;

pub use child::{Child, Launch};
pub use eventually::{State, eventually};
pub use holds::{Action, Holds};
pub use jaeger::Jaeger;
pub use otlp::{Collector, Span};
pub use prometheus::Prometheus;
pub use proxy::Proxy;
pub use servers::{Coordinates, Servers};
#[cfg(feature = "stack")]
pub use shop::Shop;
#[cfg(feature = "stack")]
pub use stack::{Service, Settings, Stack};

/// The workspace that this program was built from.
pub fn workspace() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}
