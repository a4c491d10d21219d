//! `saga audit`: whether everything agrees that must agree.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use e2e::Shop;
use e2e::audit::{Finding, PATIENCE, Report, Sources, Verdict, Violation, audit};
use time::OffsetDateTime;
use tokio::time::sleep;

use super::show::{BAD, GOOD, QUIET, TITLE, WARNING, columns, show, show_json, styled};
use super::{Exit, On};
use crate::cli::say::{patiently, say};

/// Of the violations of an invariant, so many are shown; all are in the JSON.
const SHOWN: usize = 5;

/// Looks whether everything agrees that must agree: money, stock, parcels, sagas, every message and every answer.
///
/// It changes nothing: it reads the tables of all services in one snapshot, as a database role that can only read, and
/// asks the broker, the order service, Jaeger and the logs. Some of it holds only when nothing is under way: that is
/// waited for, a minute at most.
#[derive(Args)]
#[command(after_help = "\
ok        holds
violated  does not hold: each violation names the order, what should hold, and the rows that show that it does not
partly    what always holds does; something is under way, so the rest was not looked at
skipped   there is nothing to look at, and why
unknown   it could not be looked at, and why

Ends with: 0 everything holds; 1 not everything could be looked at; 3 no shop is running; 4 something is violated.
`cargo saga timeline ORDER` shows what happened to an order that is named.")]
pub(crate) struct Arguments {
    /// Wait for nothing, and look only at what always holds.
    #[arg(long)]
    now: bool,
    /// Look again and again at what always holds, and show what has changed, until Ctrl-C.
    #[arg(long, conflicts_with_all = ["now", "json"])]
    watch: bool,
    /// Of a watched shop: how many seconds between two looks.
    #[arg(long, value_name = "SECONDS", requires = "watch", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=3_600))]
    every: u64,
    #[command(flatten)]
    on: On,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let shop = Shop::find(arguments.on.on).await?;
    let sources = Sources::of(&shop);
    if arguments.watch {
        return watch(&sources, Duration::from_secs(arguments.every)).await;
    }
    let patience = (!arguments.now).then_some(PATIENCE);
    let report = patiently("nothing is under way", audit(&sources, patience)).await?;
    if arguments.on.json {
        show_json(&report)?;
    } else {
        tell(&report, arguments.now);
    }
    Ok(match () {
        () if report.has(Verdict::Violated) => Exit::Otherwise,
        () if report.has(Verdict::Unknown) || (!arguments.now && report.has(Verdict::Partly)) => Exit::Failed,
        () => Exit::Good,
    }
    .into())
}

fn tell(report: &Report, is_now: bool) {
    columns(report.invariants.iter().map(|finding| {
        let told = finding.note.as_ref().map(|note| format!("({note})"));
        let told = told.map(|note| styled(QUIET, note)).unwrap_or_default();
        [finding.id.to_owned(), finding.name.to_owned(), verdict(finding), format!("{} {told}", finding.says)]
    }));
    for finding in &report.invariants {
        for violation in finding.violations.iter().take(SHOWN) {
            show("");
            show_violation(finding.id, violation);
        }
        if finding.violations.len() > SHOWN {
            show(styled(QUIET, format!(" {} more of {}: see --json", finding.violations.len() - SHOWN, finding.id)));
        }
    }
    show("");
    let count = |state: &str| report.orders.get(state).copied().unwrap_or(0);
    let open = count("running") + count("compensating");
    let (completed, undone) = (count("completed"), count("cancelled") + count("settled"));
    let waiting = count("needs_attention");
    show(format!(" orders: {completed} completed, {undone} undone, {waiting} waiting for a person, {open} under way"));
    if !is_now && !report.under_way.is_empty() {
        show(styled(WARNING, format!(" still under way after {} s:", PATIENCE.as_secs())));
        for what in &report.under_way {
            show(format!("   {what}"));
        }
    }
}

fn verdict(finding: &Finding) -> String {
    match finding.verdict {
        Verdict::Ok => styled(GOOD, "ok"),
        Verdict::Violated => styled(BAD, format!("violated ({})", finding.violations.len())),
        Verdict::Partly => styled(GOOD, "partly"),
        Verdict::Skipped => styled(QUIET, "skipped"),
        Verdict::Unknown => styled(WARNING, "unknown"),
    }
}

fn show_violation(id: &str, violation: &Violation) {
    let order = violation.order.as_deref().map(|order| format!("order {order}: ")).unwrap_or_default();
    show(format!(" {} {order}not so: {}", styled(BAD, id), styled(TITLE, &violation.what)));
    for (name, value) in violation.rows.as_object().into_iter().flatten() {
        let rows = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        rows.iter().for_each(|row| show(format!("   {name}: {row}")));
    }
}

/// Shows what begins to be violated, and what ends to be.
async fn watch(sources: &Sources<'_>, every: Duration) -> anyhow::Result<ExitCode> {
    say(format!(
        "looking every {} s at what always holds, until Ctrl-C; shows what begins or ends to be violated",
        every.as_secs()
    ));
    let mut known: Vec<(&str, Violation)> = Vec::new();
    loop {
        let report = audit(sources, None).await?;
        let all = report.invariants.iter().flat_map(|finding| finding.violations.iter().map(|one| (finding.id, one)));
        let now: Vec<(&str, Violation)> = all.map(|(id, violation)| (id, violation.clone())).collect();
        for (id, violation) in now.iter().filter(|one| !known.contains(one)) {
            show(styled(QUIET, clock()));
            show_violation(id, violation);
        }
        for (id, violation) in known.iter().filter(|one| !now.contains(one)) {
            let order = violation.order.as_deref().unwrap_or_default();
            show(format!("{} {} {order} so again: {}", styled(QUIET, clock()), styled(GOOD, id), violation.what));
        }
        known = now;
        sleep(every).await;
    }
}

fn clock() -> String {
    let now = OffsetDateTime::now_utc();
    format!(" {:02}:{:02}:{:02} UTC", now.hour(), now.minute(), now.second())
}
