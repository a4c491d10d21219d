//! One file for each verb, and what they share.

#[cfg(feature = "stack")]
pub(crate) mod bench;
mod cargo;
pub(crate) mod prepare;
pub(crate) mod say;
pub(crate) mod servers;
pub(crate) mod test;
#[cfg(feature = "stack")]
pub(crate) mod up;

use std::env;
use std::process::ExitCode;

use e2e::servers::{Missing, Programs, install};
use tokio::signal::unix::{SignalKind, signal};

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

/// Sees to it that both servers are on this machine. Installs them only as root, and only when told to or in CI.
pub(crate) async fn ensure_servers(yes: bool) -> anyhow::Result<()> {
    let Err(error) = Programs::find() else { return Ok(()) };
    let Some(missing) = error.downcast_ref::<Missing>() else { return Err(error) };
    let may = yes || env::var("CI").is_ok_and(|ci| ci == "true");
    if !may || !nix::unistd::geteuid().is_root() {
        return Err(error.context("run it again as root with --yes to have them installed, or install them yourself"));
    }
    say(format!(
        "installing {} with apt-get, without a cluster and without starting services",
        missing.packages.join(" ")
    ));
    install(&missing.packages).await?;
    Programs::find().map(drop)
}
