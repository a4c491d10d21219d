//! The order service: takes orders and leads their sagas.
//!
//! - [`domain`]: the rules, pure: the saga's table, the cart's total
//! - `definition`: which command each step is, and how long it may take
//! - `progress`: moves sagas on, whoever caused it
//! - `replies`, `deadlines`, `api`: who causes it: participants, time, customers and operators
//! - `follow`: where each message of a saga is, and why it is there
//! - `figures`: what it tells Prometheus
//! - `store`: every statement

pub mod domain;

mod api;
mod deadlines;
mod definition;
mod figures;
mod follow;
mod progress;
mod replies;
mod store;

use std::sync::Arc;
use std::time::Duration;

use chassis::{Base, Peer, Service};
use contracts::topology;
use messaging::{Failure, Pulse};
use tokio::sync::Semaphore;

use api::Api;
use deadlines::Sweep;
use definition::Deadlines;
use follow::{Follow, TURNS};
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
    /// Where the operators' listeners of the participants are, for timelines and causes.
    #[arg(
        long,
        env = "OPS_PEERS",
        value_name = "NAME=URL,...",
        value_delimiter = ',',
        default_value = "payment=http://127.0.0.1:9002,inventory=http://127.0.0.1:9003,shipping=http://127.0.0.1:9004"
    )]
    ops_peers: Vec<String>,
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
    let peers = settings.ops_peers.iter().filter(|peer| !peer.is_empty());
    let follow = Follow {
        pool: base.pool.clone(),
        broker: base.broker()?,
        peers: peers.map(|peer| Peer::new(&base, peer)).collect::<Result<_, _>>()?,
        pulses: [relay.pulse(), consumer.pulse(), pulse.clone()].into(),
        turns: Arc::new(Semaphore::new(TURNS)),
    };
    let api = Api::new(base.clone(), poke, deadlines, follow);
    Ok(Service::new(base)
        .remembers_requests()
        .relay(relay)
        .consumer(consumer)
        .task(pulse.clone(), |stop| sweep.run(pulse, stop))
        .routes(api.clone().routes())
        .ops(api.verbs())
        .figures(figures::read))
}
