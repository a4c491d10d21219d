//! The shipping service: hands parcels to the carrier and calls them back.
//!
//! - [`domain`]: what a shipment can be; the rules are those of every participant, [`messaging::participant`]
//! - `commands`: the queue; `carrier`: whom it calls; `api`: who may look
//! - `store`: every statement

pub mod domain;

mod api;
mod carrier;
mod commands;
mod store;

use std::time::Duration;

use chassis::{Base, Service, ThirdParty};
use contracts::topology;
use messaging::{Backoff, Failure, RetryPolicy};

use api::Api;
use carrier::Carrier;
use commands::{Commands, Looks};

/// The longest wait between two attempts of an undo, which has no last one.
const LONGEST_UNDO_WAIT: Duration = Duration::from_secs(30);
/// The longest wait between two attempts of a do.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Records that one look finds.
const LOOKED_AT_TOGETHER: usize = 128;

/// The shipping service's own settings.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// Where the carrier is.
    #[arg(long, env = "CARRIER_URL", default_value = "http://127.0.0.1:8005")]
    carrier_url: String,
    /// How long one call may take, in milliseconds; less than a claimed message belongs to its run.
    #[arg(long, env = "CALL_TIMEOUT_MS", default_value_t = 1_000,
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    call_timeout_ms: u64,
    /// How often a do is tried before it is answered as failed.
    #[arg(long, env = "CALL_ATTEMPTS", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    call_attempts: u32,
    /// The wait after the first attempt, in milliseconds; each further one is twice as long.
    #[arg(long, env = "CALL_BACKOFF_MS", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    call_backoff_ms: u64,
}

/// Puts the service together.
///
/// # Errors
/// A setting cannot be used.
pub fn start(settings: &Settings, base: Base) -> Result<Service, Failure> {
    let relay = base.relay(topology::EXCHANGES)?;
    let first = Duration::from_millis(settings.call_backoff_ms);
    let backoff = Backoff { first, factor: 2, longest: LONGEST_WAIT.max(first) };
    let retry = RetryPolicy { attempts: Some(settings.call_attempts), backoff };
    let timeout = Duration::from_millis(settings.call_timeout_ms);
    let carrier = Carrier(ThirdParty::new("carrier", &settings.carrier_url, timeout)?);
    let undo_retry = retry.without_limit(LONGEST_UNDO_WAIT);
    let commands =
        Commands { pool: base.pool.clone(), looks: Looks::new(1, LOOKED_AT_TOGETHER), carrier, retry, undo_retry };
    let consumer = base.consumer(topology::SHIPPING_COMMANDS, commands, relay.poke())?;
    let api = Api { pool: base.pool.clone() };
    Ok(Service::new(base).relay(relay).consumer(consumer).routes(api.routes()))
}
