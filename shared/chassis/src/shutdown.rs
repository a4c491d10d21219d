//! How a process is asked to end, and how long it may take.

use std::time::Duration;

use messaging::Failure;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// From the signal to the end of the process, all parts together.
pub(crate) const BUDGET: Duration = Duration::from_secs(20);
/// What of it requests and loops may use; the rest is for the pool and the tracer.
pub(crate) const DRAIN: Duration = Duration::from_secs(15);
/// How long the pool may take to close.
pub(crate) const POOL: Duration = Duration::from_secs(2);
/// How long the last spans may take.
pub(crate) const TRACER: Duration = Duration::from_secs(2);

/// SIGTERM and SIGINT.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn listen() -> Result<Signals, Failure> {
        let open = |kind| {
            signal(kind).map_err(|error| {
                Failure::permanent("process.signals", "signals cannot be listened to").caused_by(error)
            })
        };
        Ok(Signals { terminate: open(SignalKind::terminate())?, interrupt: open(SignalKind::interrupt())? })
    }

    /// Waits for the next one and tells its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// Whoever asks twice does not want to wait.
    pub(crate) fn exit_on_next(mut self) {
        tokio::spawn(async move {
            let name = self.next().await;
            tracing::warn!("{name} again: ends at once");
            std::process::exit(1);
        });
    }
}
