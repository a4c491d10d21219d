//! The third parties: a payment provider and a carrier. They keep the first decision under an idempotency key, can be
//! cancelled by that key for good, and fail in every way that is asked of them. They know nothing of the shop.
//!
//! - [`domain`]: what they promise, as two functions
//! - [`fault`]: faults by test values; [`switch`]: faults that are switched on for a share of all requests
//! - `desk`: one request, one transaction; `late`: what takes effect after its caller has given up
//! - `api`: the provider, the carrier, the ledger, the switches; `store`: every statement

pub mod domain;
pub mod fault;
pub mod switch;

mod api;
mod desk;
mod late;
mod store;

use std::sync::Arc;
use std::time::Duration;

use chassis::{Base, Service};
use messaging::{Failure, Pulse};

use api::Api;
use desk::{Desk, Firsts};

/// The sandbox's own settings.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// How long a request that times out is held, in milliseconds: longer than any caller waits
    #[arg(long, env = "TIMEOUT_MS", default_value_t = 3_000, value_parser = clap::value_parser!(u64).range(..=60_000))]
    timeout_ms: u64,
    /// When a late request takes effect, in milliseconds after it came: by default after all attempts of its caller
    #[arg(long, env = "LATE_MS", default_value_t = 15_000, value_parser = clap::value_parser!(u64).range(..=3_600_000))]
    late_ms: u64,
}

/// Puts the service together.
///
/// # Errors
/// None so far; the signature is that of every service.
pub fn start(settings: &Settings, base: Base) -> Result<Service, Failure> {
    let late_after = Duration::from_millis(settings.late_ms);
    let desk = Desk { pool: base.pool.clone(), late_after, firsts: Arc::new(Firsts::new()) };
    let api = Api { desk: desk.clone(), hold: Duration::from_millis(settings.timeout_ms) };
    let pulse = Pulse::new("late_effects");
    let late = {
        let pulse = pulse.clone();
        |stop| late::run(desk, pulse, stop)
    };
    Ok(Service::new(base).routes(api.clone().routes()).ops(api.verbs()).task(pulse, late))
}
