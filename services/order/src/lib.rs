//! The order service: takes orders and leads their sagas.
//!
//! - [`domain`]: the rules, pure: the saga's table, the cart's total
//! - `definition`: which command each step is, and how long it may take
//! - `progress`: moves sagas on, whoever caused it
//! - `replies`, `deadlines`, `api`: who causes it: participants, time, customers and operators
//! - `figures`: what it tells Prometheus
//! - `store`: every statement

pub mod domain;

mod api;
mod deadlines;
mod definition;
mod figures;
mod progress;
mod replies;
mod store;

use std::time::Duration;

use chassis::{Base, Service};
use contracts::topology;
use messaging::{Failure, Pulse};

use api::Api;
use deadlines::Sweep;
use definition::Deadlines;
use replies::Replies;

/// The order service's own settings.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// How long a step may take before it is undone, in milliseconds.
    #[arg(long, env = "STEP_DEADLINE_MS", default_value_t = 60_000)]
    step_deadline_ms: u64,
    /// How long an undo may take before a person is called, in milliseconds.
    #[arg(long, env = "UNDO_DEADLINE_MS", default_value_t = 180_000)]
    undo_deadline_ms: u64,
}

/// Puts the service together.
///
/// # Errors
/// A setting cannot be used.
pub fn start(settings: &Settings, base: Base) -> Result<Service, Failure> {
    let deadlines = Deadlines {
        step: Duration::from_millis(settings.step_deadline_ms),
        undo: Duration::from_millis(settings.undo_deadline_ms),
    };
    figures::describe();
    let relay = base.relay(topology::EXCHANGES)?;
    let poke = relay.poke();
    let replies = Replies { deadlines };
    let consumer = base.consumer(topology::ORDER_REPLIES, replies, poke.clone())?;
    let sweep = Sweep {
        pool: base.pool.clone(),
        replies: consumer.pulse(),
        deadlines,
        later: base.later(),
        poke: poke.clone(),
    };
    let pulse = Pulse::new("deadlines");
    let api = Api::new(base.clone(), poke, deadlines);
    Ok(Service::new(base)
        .relay(relay)
        .consumer(consumer)
        .task(pulse.clone(), |stop| sweep.run(pulse, stop))
        .routes(api.clone().routes())
        .ops(api.verbs())
        .figures(figures::read))
}
