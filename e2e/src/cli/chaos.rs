//! `saga chaos`: whatever fails, nothing is lost; or a counter-example, and the command that repeats it.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use e2e::chaos::{Away, Plan, Report, Verdict, run as play};
use e2e::{Servers, Settings};

use crate::cli::cargo::{cargo, release, run_well};
use crate::cli::ensure_servers;
use crate::cli::say::{say, timed};

/// Too little happened to prove anything.
const VOID: u8 = 5;
const OTHERWISE: u8 = 4;

/// Breaks a shop at random under load, heals it, and audits it: whatever fails, nothing is lost.
///
/// It starts a PostgreSQL, a RabbitMQ and the five services of its own, and touches no shop that runs. While customers
/// place orders of all kinds at a steady rate, three things go on side by side: the broker and the database are killed,
/// stopped, frozen, put into alarm, made read-only, their connections ended; the services are killed and frozen, and
/// their lines delayed, silenced and cut; messages are sent again and change places, and the third parties fail. What
/// happens, and when, follows from the seed alone; `--plan` prints it.
///
/// Then everything is healed and comes to its end, and is judged: the whole audit (`cargo saga audit --help`); every
/// answer that a customer got; every message that was sent, against what a queue that hears everything has heard; and
/// whether each fault left a trace of its own. A run that fails names the folder with its logs and its history, and the
/// command that repeats it. The moments differ from run to run, so repeat it a few times.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cargo saga chaos                             a minute, another one each time
  cargo saga chaos --seed 7 --seconds 600      ten minutes, and the same again
  cargo saga chaos --seed 7 --plan             what would happen, and when
  cargo saga chaos --away broker --rate 50     one part is away for a minute, and nothing else happens

Ends with: 0 nothing is lost and everything agrees; 1 it could not be played to its end; 2 wrong usage; 4 something
does not hold; 5 void: nothing is violated, but too little happened to prove it; 130 interrupted.")]
pub(crate) struct Arguments {
    /// Which faults and which customers; without it, random ones.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How long faults begin. The last ones, healing and judging take half a minute to three minutes more.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(5..=86_400))]
    seconds: u64,
    /// Orders a second.
    #[arg(long, value_name = "R", default_value_t = 10.0, value_parser = rate)]
    rate: f64,
    /// One part is away for all the time, in place of a random plan; customers order what can be shipped.
    #[arg(long, value_name = "PART")]
    away: Option<Away>,
    /// Print the plan, and do nothing.
    #[arg(long)]
    plan: bool,
    /// Build with optimizations: for rates that the development build cannot serve.
    #[arg(long)]
    release: bool,
    /// Take the programs as they were built last.
    #[arg(long)]
    no_build: bool,
    /// Print one JSON object on standard output.
    #[arg(long)]
    json: bool,
    /// Fetch missing servers without asking, into a private folder; nothing is installed. `CI=true` does the same.
    #[arg(long)]
    yes: bool,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (0.1..=1_000.0).contains(&rate) { Ok(rate) } else { Err("between 0.1 and 1000".to_owned()) }
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { seed, seconds, rate, away, release: is_release, .. } = arguments;
    let seed = seed.unwrap_or_else(|| rand::random::<u16>().into());
    let plan = match away {
        Some(away) => Plan::away(away, seed, seconds, rate),
        None => Plan::of(seed, seconds, rate),
    };
    if arguments.plan {
        show(&plan, arguments.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    if is_release && !release::is_here() {
        return release::hand_over().await;
    }
    if !is_release && !arguments.no_build {
        timed("the services are built", run_well(cargo(&["build", "--workspace", "--bins"]))).await?;
    }
    ensure_servers(arguments.yes).await?;
    let servers = timed("PostgreSQL and RabbitMQ are ready", Servers::start()).await?;
    say(format!("seed {seed}: faults begin for {seconds} s, then it is healed and judged"));
    let mut report = play(servers, Settings::default(), &plan, &|line| say(line)).await?;
    if is_release {
        report.again += " --release";
    }
    tell(&report, arguments.json)?;
    Ok(match report.verdict {
        Verdict::Green => ExitCode::SUCCESS,
        Verdict::Red => ExitCode::from(OTHERWISE),
        Verdict::Void => ExitCode::from(VOID),
    })
}

fn show(plan: &Plan, json: bool) -> anyhow::Result<()> {
    let mut out = anstream::stdout();
    if json {
        writeln!(out, "{:#}", serde_json::to_value(plan)?)?;
        return Ok(());
    }
    let mut all: Vec<_> = plan.faults().collect();
    all.sort_by_key(|one| one.at);
    for one in all {
        writeln!(out, "{one}")?;
    }
    let orders = if plan.away.is_none() { "of all kinds" } else { "that can be shipped" };
    writeln!(out, "{} faults in {} s; {} orders a second, {orders}", plan.faults().count(), plan.seconds, plan.rate)?;
    Ok(())
}

fn tell(report: &Report, json: bool) -> anyhow::Result<()> {
    let mut out = anstream::stdout();
    match json {
        true => writeln!(out, "{:#}", serde_json::to_value(report)?)?,
        false => writeln!(out, "\n{report}")?,
    }
    Ok(())
}
