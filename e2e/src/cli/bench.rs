//! `saga bench`: how fast, how soon, at what cost, on this machine.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use e2e::Servers;
use e2e::bench::{Bench, Kind};

use crate::cli::cargo::release;
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

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    if !release::is_here() {
        return release::hand_over().await;
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
