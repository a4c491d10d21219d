//! `saga servers`: only PostgreSQL and RabbitMQ, for whoever repeats one test many times.

use std::future::pending;
use std::process::ExitCode;

use clap::Args;
use e2e::Servers;
use e2e::servers::VARIABLE;

use crate::cli::ensure_servers;
use crate::cli::say::{say, timed};

/// Starts only a fresh PostgreSQL and RabbitMQ, until Ctrl-C.
///
/// Prints the variable with which `cargo test -p e2e` in another terminal uses them, again and again.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Fetch missing servers without asking, into a private folder; nothing is installed. `CI=true` does the same.
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    ensure_servers(arguments.yes).await?;
    let servers = timed("PostgreSQL and RabbitMQ are ready", Servers::start()).await?;
    say(format!("export {VARIABLE}={}", servers.export()?.display()));
    pending().await
}
