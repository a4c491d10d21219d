//! One file for each verb, and what they share.

mod cargo;
mod ensure;
pub(crate) mod prepare;
pub(crate) mod say;
pub(crate) mod servers;
pub(crate) mod test;
#[cfg(feature = "stack")]
pub(crate) mod up;

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

pub(crate) use ensure::ensure_servers;
use say::say;

/// What a shell reports for a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Does the work, or drops it when someone asks us to end: what it started ends with it.
pub(crate) async fn until_interrupted(
    work: impl Future<Output = anyhow::Result<ExitCode>>,
) -> anyhow::Result<ExitCode> {
    tokio::select! {
        done = work => done,
        asked = interrupted() => {
            asked?;
            say("interrupted, everything is being stopped");
            Ok(ExitCode::from(INTERRUPTED))
        }
    }
}

/// Waits for Ctrl-C, or for whoever ends us in another way.
pub(crate) async fn interrupted() -> anyhow::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}
