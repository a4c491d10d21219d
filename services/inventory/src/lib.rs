//! The inventory service: sets goods aside for orders.
//!
//! - [`domain`]: what a reservation can be, and what each message does to it, pure
//! - `reserving`: applies a batch of messages to reservations and stock
//! - `commands`, `events`: the two queues; `api`: look at stock, take some in
//! - `store`: every statement

pub mod domain;

mod api;
mod commands;
mod events;
mod reserving;
mod store;

use chassis::{Base, Service};
use contracts::topology;
use messaging::{Failure, RetryPolicy};

use api::Api;
use commands::Commands;
use events::Events;

/// The inventory service's own settings.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// How often a message is tried before it is parked.
    #[arg(long, env = "MESSAGE_ATTEMPTS", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=100))]
    message_attempts: u32,
}

/// Puts the service together.
///
/// # Errors
/// A setting cannot be used.
pub fn start(settings: &Settings, base: Base) -> Result<Service, Failure> {
    let relay = base.relay(topology::EXCHANGES)?;
    let retry = RetryPolicy { attempts: Some(settings.message_attempts), ..RetryPolicy::default() };
    let commands = Commands { retry };
    let commands = base.consumer(topology::INVENTORY_COMMANDS, commands, relay.poke())?;
    let events = Events { retry };
    let events = base.consumer(topology::INVENTORY_EVENTS, events, relay.poke())?;
    let api = Api { pool: base.pool.clone() };
    Ok(Service::new(base).remembers_requests().relay(relay).consumer(commands).consumer(events).routes(api.routes()))
}
