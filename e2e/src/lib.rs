//! The stack as a whole, driven from outside: what the `saga` command line and the end-to-end tests stand on.
//!
//! [`Servers`] starts a private PostgreSQL and RabbitMQ, [`Stack`] a database, a vhost and the five services on them.
//! [`Proxy`] and [`Holds`] break things at a chosen place and moment, [`Collector`] and [`Jaeger`] show the traces,
//! and [`eventually`] waits for a named state.

#[cfg(feature = "stack")]
pub mod bench;
mod child;
mod eventually;
mod holds;
pub mod jaeger;
mod otlp;
mod proxy;
pub mod servers;
#[cfg(feature = "stack")]
pub mod stack;

pub use child::{Child, Launch};
pub use eventually::{State, eventually};
pub use holds::{Action, Holds};
pub use jaeger::Jaeger;
pub use otlp::{Collector, Span};
pub use proxy::Proxy;
pub use servers::{Coordinates, Servers};
#[cfg(feature = "stack")]
pub use stack::{Service, Settings, Stack};
