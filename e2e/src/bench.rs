//! How much the shop can do on this machine, and what holds it back: release builds on fresh servers whose data stands
//! on a disk, each figure beside a limit that is measured in the same run. A figure is shown only after the run was
//! checked: everything once, nothing twice, in order.

mod chain;
mod inbox;
mod relay;
mod report;
mod saga;
mod traffic;
mod usage;
mod wire;

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::sleep;

pub use inbox::{EFFECT, EFFECTS};
pub use report::{Floor, Latency, Machine, Report};

use crate::Servers;
use crate::stack::{Settings, Stack};

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Outbox to broker.
    Relay { rows: usize, timed: Duration },
    /// Queue to effect.
    Inbox { rows: usize },
    /// Order to parcel, through all five services.
    Saga {
        load: Duration,
        /// Orders a second while the times are taken; half of what is completed, if nothing is said.
        arrivals: Option<f64>,
    },
}

/// Where it is measured, and who is told how it goes.
pub struct Bench<'a> {
    servers: &'a Servers,
    say: &'a dyn Fn(String),
}

/// How often the progress of a run is told.
const TOLD: Duration = Duration::from_secs(1);
/// How often a run looks whether it is over.
const LOOK: Duration = Duration::from_millis(250);
/// Without any progress for so long a run has failed.
const PATIENCE: Duration = Duration::from_secs(20);

impl<'a> Bench<'a> {
    pub fn new(servers: &'a Servers, say: &'a dyn Fn(String)) -> Bench<'a> {
        Bench { servers, say }
    }

    /// Measures, checks, and reports.
    ///
    /// # Errors
    /// Something did not start or broke; or a check found a counter-example, which the error tells.
    pub async fn run(&self, kind: Kind) -> anyhow::Result<Report> {
        let settings = Settings::default().on(self.servers.coordinates());
        let stack = match kind {
            Kind::Relay { .. } | Kind::Inbox { .. } => Stack::start_empty(settings).await?,
            Kind::Saga { .. } => Stack::start(settings).await?,
        };
        let measured = match kind {
            Kind::Relay { rows, timed } => relay::run(self, &stack, rows, timed).await,
            Kind::Inbox { rows } => inbox::run(self, &stack, rows).await,
            Kind::Saga { load, arrivals } => saga::run(self, &stack, load, arrivals).await,
        };
        if measured.is_ok() {
            // Logs of thousands of orders; those of a failure are for whoever looks for its reason.
            fs::remove_dir_all(stack.directory())?;
        }
        measured
    }

    fn say(&self, line: impl Into<String>) {
        (self.say)(line.into());
    }

    fn administrator(&self) -> String {
        self.servers.broker.endpoint().user
    }

    /// Waits until nothing is left of what `left` counts, and tells how it goes.
    async fn wait_for_none(&self, what: &str, left: impl AsyncFn() -> anyhow::Result<u64>) -> anyhow::Result<()> {
        let (mut last, mut moved, mut told) = (u64::MAX, now(), now());
        loop {
            let left = left().await?;
            if left == 0 {
                return Ok(());
            }
            if left < last {
                (last, moved) = (left, now());
            }
            anyhow::ensure!(now() - moved < PATIENCE.as_secs_f64(), "{left} {what}, and nothing moves");
            if now() - told > TOLD.as_secs_f64() {
                told = now();
                self.say(format!("  {left} {what}"));
            }
            sleep(LOOK).await;
        }
    }
}

/// Seconds of the clock that PostgreSQL writes into its rows: it is on this machine.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
