//! `saga scenario`: plays a scenario on the running shop, and shows what was expected beside what was observed.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use e2e::Shop;
use e2e::scenario::{Report, Runner, Scenario, all_scenarios, find, names};
use e2e::servers::take_turn;
use serde_json::json;

use super::show::{BAD, GOOD, QUIET, TITLE, columns, show, show_json, styled};
use super::{Exit, On, nearest};
use crate::cli::Usage;
use crate::cli::say::say;
use crate::cli::until_interrupted;

/// Plays scenarios on the running shop; without a name, lists them.
///
/// Each breaks something on purpose, waits, and shows what was expected beside what was observed: statuses, money,
/// stock and parcels. What it has broken is whole again afterwards. Ends with 0 if everything was as expected, with 4
/// if not.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cargo saga scenario                       the list
  cargo saga scenario out-of-stock
  cargo saga scenario customer-cancel       those whose names begin so
  cargo saga scenario --all")]
pub(crate) struct Arguments {
    /// Which ones.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// All of them, one after the other; about two minutes.
    #[arg(long, conflicts_with = "names")]
    all: bool,
    #[command(flatten)]
    on: On,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    if arguments.names.is_empty() && !arguments.all {
        list(arguments.on.json)?;
        return Ok(Exit::Good.into());
    }
    let mut wanted: Vec<Scenario> = Vec::new();
    for name in &arguments.names {
        let found = find(name)?;
        if found.is_empty() {
            let nearest = nearest(name, names());
            bail!(Usage(format!("there is no scenario {name}{nearest}: `cargo saga scenario` lists them")));
        }
        wanted.extend(found);
    }
    if arguments.all {
        wanted = all_scenarios()?;
    }
    let shop = Shop::find(arguments.on.on).await?;
    let runner = Runner::new(&shop);
    let mut reports = Vec::new();
    let playing = until_interrupted(async {
        let _turn = turn().await?;
        for scenario in &wanted {
            match play(&runner, scenario, arguments.on.json).await {
                Ok(report) => reports.push(report),
                // What was found out before is not lost.
                Err(error) if arguments.on.json => {
                    reports.push(Report::failed(scenario, &error));
                    return Ok(Exit::Failed.into());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Exit::Good.into())
    });
    let played = playing.await;
    // Interrupted or not, nothing stays broken.
    runner.tidy().await?;
    let code = played?;
    if arguments.on.json && !reports.is_empty() {
        show_json(&reports)?;
    }
    if reports.len() < wanted.len() || code != Exit::Good.into() {
        return Ok(code);
    }
    let failed: Vec<&str> =
        reports.iter().filter(|report| !report.is_as_expected()).map(|report| &*report.scenario).collect();
    if !arguments.on.json && reports.len() > 1 {
        show(format!("{} of {} scenarios went as expected", reports.len() - failed.len(), reports.len()));
    }
    if failed.is_empty() {
        return Ok(Exit::Good.into());
    }
    if !arguments.on.json {
        show(styled(BAD, format!("not as expected: {}", failed.join(", "))));
    }
    Ok(Exit::Otherwise.into())
}

fn list(json: bool) -> anyhow::Result<()> {
    if json {
        let list = |scenario: Scenario| json!({"scenario": scenario.name, "about": scenario.about});
        return show_json(&all_scenarios()?.into_iter().map(list).collect::<Vec<_>>());
    }
    columns(all_scenarios()?.into_iter().map(|scenario| [styled(TITLE, scenario.name), scenario.about]));
    show(" Play one with `cargo saga scenario NAME`.");
    Ok(())
}

/// Two scenarios at once would see each other's faults.
pub(crate) async fn turn() -> anyhow::Result<impl Sized> {
    take_turn("scenario", || say("another scenario is being played: waiting for its end")).await
}

/// Plays one and shows how it went.
pub(crate) async fn play(runner: &Runner<'_>, scenario: &Scenario, json: bool) -> anyhow::Result<Report> {
    if json {
        return runner.run(scenario, drop).await;
    }
    show(format!("{}  {}", styled(TITLE, &scenario.name), scenario.about));
    let report = runner.run(scenario, |step| show(styled(QUIET, format!("  {step}")))).await?;
    if report.checks.is_empty() {
        bail!("{} has looked at nothing", scenario.name);
    }
    tell(&report);
    Ok(report)
}

fn tell(report: &Report) {
    let mut rows = vec![["", "", "expected", "observed"].map(|title| styled(QUIET, title))];
    let mut when = None;
    for check in &report.checks {
        let mark = if check.is_as_expected() { styled(GOOD, "ok") } else { styled(BAD, "NOT") };
        if check.when != when {
            when.clone_from(&check.when);
            rows.push([
                String::new(),
                styled(QUIET, when.as_deref().unwrap_or("in the end")),
                String::new(),
                String::new(),
            ]);
        }
        rows.push([mark, check.what.name().to_owned(), check.expected.clone(), check.observed.clone()]);
    }
    columns(rows);
    if report.others > 0 && !report.is_as_expected() {
        let note = "orders were placed meanwhile that are not the scenario's: stock and messages count them too";
        show(styled(BAD, format!("  {} {note}", report.others)));
    }
    if let Some(order) = report.orders.last() {
        let trace = order.trace.as_ref().map(|trace| format!("   trace  {trace}")).unwrap_or_default();
        show(format!("  next  cargo saga timeline {}{trace}", order.order_id));
    }
    show("");
}
