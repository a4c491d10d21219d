//! What customers see while a part is away, at fifty orders a second: they are answered, and what was accepted comes to
//! its end without anybody's help. The outages are shorter here than those of the README.

use std::collections::BTreeSet;

use anyhow::ensure;
use e2e::chaos::{Away, Plan, Report};

use crate::chaos::play;
use crate::shop::patient;

const RATE: f64 = 50.0;

/// Lets a part be away, and looks at what holds whichever it is.
async fn while_away(away: Away, seconds: u64, answers: &[&str]) -> anyhow::Result<Report> {
    // When it is back, hundreds of orders ask the third parties at once, who are slow on a busy machine.
    let report = play(patient(), &Plan::away(away, 1, seconds, RATE)).await?;
    ensure!(report.violations.is_empty() && report.void.is_empty(), "{report}");
    let seen: BTreeSet<&str> = report.answers.keys().map(String::as_str).collect();
    ensure!(seen == answers.iter().copied().collect(), "customers saw {seen:?}, not {answers:?}:\n{report}");
    ensure!(report.parked == 0, "an outage is no fault of a message:\n{report}");
    ensure!(report.recovery.retried == 0, "nobody is called because of an outage:\n{report}");
    Ok(report)
}

#[tokio::test]
async fn while_the_broker_is_away_every_order_is_accepted_and_all_are_shipped_afterwards() -> anyhow::Result<()> {
    let report = while_away(Away::Broker, 10, &["202"]).await?;
    ensure!(report.count("completed") as u64 == report.customers, "{report}");
    Ok(())
}

#[tokio::test]
async fn while_the_database_is_away_customers_are_told_when_to_come_again_and_all_are_served() -> anyhow::Result<()> {
    let report = while_away(Away::Database, 6, &["202", "503"]).await?;
    ensure!(report.count("completed") as u64 == report.customers, "{report}");
    Ok(())
}

#[tokio::test]
async fn while_the_third_parties_are_away_orders_are_undone_and_their_undos_wait() -> anyhow::Result<()> {
    let report = while_away(Away::ThirdParties, 8, &["202"]).await?;
    ensure!(report.count("completed") + report.count("cancelled") == report.customers as usize, "{report}");
    ensure!(report.count("cancelled") > 0, "{report}");
    ensure!(report.reasons.keys().all(|reason| reason == "step_failed"), "{report}");
    Ok(())
}
