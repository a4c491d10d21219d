//! What every service starts with, so that a service's own code is only about its domain.
//!
//! **What it promises.** Every service has the same settings, answers errors in the same form, can be watched and
//! asked in the same way, and ends in the same order. A request that has begun is finished although its client left:
//! nothing here ever drops a transaction half-way.
//!
//! The tour, in the order in which a process meets it:
//!
//! 1. [`run()`] reads the command line ([`settings`]), starts [`telemetry`] and the runtime, and calls the service's
//!    own `start` with a [`Base`].
//! 2. `start` puts its parts into a [`Service`]: relay, consumers, loops, routes.
//! 3. Two listeners open: one for everybody ([`http`]), one for operators ([`ops`]: health, metrics, verbs).
//! 4. A request gets a span and a correlation id, is read by [`Json`], [`Query`] or [`Path`], remembered by
//!    [`idempotency`], and answered; what goes wrong is a [`Problem`]. [`ThirdParty`] calls others, [`Peer`] asks
//!    the services of the same shop.
//! 5. On SIGTERM the listeners close, requests and loops finish, the pool and the tracer close.

#![warn(missing_docs)]

pub mod base;
pub mod correlation;
pub mod health;
pub mod http;
pub mod idempotency;
pub mod json;
pub mod messages;
pub mod metrics;
pub mod ops;
pub mod peer;
pub mod problem;
pub mod service;
pub mod settings;
pub mod story;
pub mod telemetry;
pub mod third_party;
pub mod together;

mod cleaning;
mod logs;
mod pool;
mod run;
mod shutdown;

pub use base::Base;
pub use correlation::Correlation;
pub use health::{LoopNow, Readiness};
pub use json::{Json, Path, Query, printable};
pub use messages::Acting;
pub use peer::Peer;
pub use problem::Problem;
pub use run::run;
pub use service::Service;
pub use settings::Identity;
pub use telemetry::trace_id;
pub use third_party::ThirdParty;
pub use together::Together;
