//! One file for each verb, and what they share.

#[cfg(feature = "stack")]
pub(crate) mod bench;
mod cargo;
#[cfg(feature = "stack")]
pub(crate) mod chaos;
mod ensure;
pub(crate) mod prepare;
pub(crate) mod say;
pub(crate) mod servers;
#[cfg(feature = "stack")]
pub(crate) mod shop;
pub(crate) mod test;

use std::env;
use std::io::{self, Write as _};
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

pub(crate) use ensure::ensure_servers;
use say::say;

/// What a shell reports for a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// What a shell reports when there is nothing that a command could work on.
#[cfg(feature = "stack")]
const NOT_RUNNING: u8 = 3;

/// What a shell reports for words that mean nothing here, as for those that the parser refuses.
const USAGE: u8 = 2;

/// A word that means nothing here.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// Says what went wrong, and how that ends a command.
pub(crate) fn failed(error: &anyhow::Error) -> ExitCode {
    say(format!("{error:#}"));
    // A program that asked for JSON gets a document, whatever happened.
    if env::args_os().any(|argument| argument == "--json") {
        let _ = writeln!(io::stdout(), "{:#}", serde_json::json!({"error": format!("{error:#}")}));
    }
    if error.is::<Usage>() {
        return ExitCode::from(USAGE);
    }
    #[cfg(feature = "stack")]
    if error.is::<e2e::shop::NotRunning>() {
        return ExitCode::from(NOT_RUNNING);
    }
    ExitCode::FAILURE
}

/// Does the work, or drops it when someone asks us to end: what it started ends with it.
pub(crate) async fn until_interrupted(
    work: impl Future<Output = anyhow::Result<ExitCode>>,
) -> anyhow::Result<ExitCode> {
    tokio::select! {
        done = work => done,
        asked = interrupted() => {
            asked?;
            say("interrupted");
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
