//! `saga bench`: how fast, how soon, at what cost, on this machine.

use std::env;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use e2e::Servers;
use e2e::bench::{Bench, Kind};
use e2e::stack::programs;
use e2e::workspace;
use tokio::process::Command;

use crate::cli::cargo::{cargo, run as run_command, run_well};
use crate::cli::ensure_servers;
use crate::cli::say::{say, timed};

/// Measures the shop: release builds, on a fresh PostgreSQL and RabbitMQ of their own, with default durability on a disk.
///
/// relay: a full outbox drained by `order relay`, in rows/s; and the time from a commit to the delivery of its message.
/// inbox: a full queue consumed by a service that makes one insert for each message, in effects/s.
/// saga: orders through all five services, as many as they can complete; and the time from the acceptance of an order
/// to its completion, alone and at half that rate.
///
/// Each figure comes with a limit that is measured in the same run, with the processor time that it took, and only
/// after the run was checked: everything once, nothing twice, in order. A check that fails tells its counter-example,
/// and the exit code is 1. Nothing else should run on the machine meanwhile; the report tells if something did.
#[derive(Args)]
pub(crate) struct Arguments {
    /// What to measure; without it everything, one after another.
    which: Vec<Which>,
    /// Rows of `relay` and messages of `inbox`.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    rows: u64,
    /// Seconds of each load of `saga`, and of the timed deliveries of `relay`.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(3..=3_600))]
    seconds: u64,
    /// Orders a second while `saga` takes times; half of what is completed, if nothing is said.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    arrivals: Option<u16>,
    /// Print one JSON object on standard output.
    #[arg(long)]
    json: bool,
    /// Fetch missing servers without asking, into a private folder; nothing is installed. `CI=true` does the same.
    #[arg(long)]
    yes: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    Relay,
    Inbox,
    Saga,
}

/// Set for the release build, which does the work.
const BUILT: &str = "SAGA_BENCH_BUILT";

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    if env::var_os(BUILT).is_none() {
        return run_release().await;
    }
    ensure_servers(arguments.yes).await?;
    let servers = timed("PostgreSQL and RabbitMQ are ready, on a disk", Servers::start_on_disk()).await?;
    let bench = Bench::new(&servers, &|line| say(line));
    let time = Duration::from_secs(arguments.seconds);
    let rows = usize::try_from(arguments.rows)?;
    let all = [Which::Relay, Which::Inbox, Which::Saga];
    let mut reports = Vec::new();
    for which in if arguments.which.is_empty() { &all[..] } else { &arguments.which } {
        let kind = match which {
            Which::Relay => Kind::Relay { rows, timed: time },
            Which::Inbox => Kind::Inbox { rows },
            Which::Saga => Kind::Saga { load: time, arrivals: arguments.arrivals.map(f64::from) },
        };
        let report = bench.run(kind).await?;
        if !arguments.json {
            write!(std::io::stdout(), "\n{report}\n")?;
        }
        reports.push(report);
    }
    if arguments.json {
        let reports = serde_json::json!({ "reports": reports });
        writeln!(std::io::stdout(), "{reports:#}")?;
    }
    servers.stop().await?;
    Ok(ExitCode::SUCCESS)
}

/// Builds everything with optimizations and hands over to the `saga` among it.
async fn run_release() -> anyhow::Result<ExitCode> {
    timed("the release build is there", run_well(cargo(&["build", "--release", "--workspace", "--bins"]))).await?;
    let built = programs()?;
    let target: PathBuf = built.parent().context("the target directory")?.join("release");
    let mut command = Command::new(target.join("saga"));
    command.args(env::args_os().skip(1)).env(BUILT, "1").current_dir(workspace()).process_group(0);
    let status = run_command(command).await?;
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) => Ok(ExitCode::from(code)),
        None => bail!("the bench ended with {status}"),
    }
}
