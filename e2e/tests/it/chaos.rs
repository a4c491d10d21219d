//! Whatever fails, nothing is lost: three seeds of `cargo saga chaos`, shortened.

use std::io::Write as _;

use anyhow::ensure;
use e2e::chaos::{Plan, Report, Verdict, run};
use e2e::{Servers, Settings};

/// How long faults begin: with their ends, the healing and the audit it takes twice as long.
const SECONDS: u64 = 30;
/// Orders a second, beside the other tests.
const RATE: f64 = 4.0;

/// Plays a plan, and shows its figures.
pub(crate) async fn play(settings: Settings, plan: &Plan) -> anyhow::Result<Report> {
    let report = run(Servers::start().await?, settings, plan, &|_| {}).await?;
    writeln!(std::io::stderr(), "\n{report}")?;
    Ok(report)
}

async fn nothing_is_lost(seed: u64) -> anyhow::Result<()> {
    let report = play(Settings::default(), &Plan::of(seed, SECONDS, RATE)).await?;
    ensure!(report.verdict == Verdict::Green, "{report}");
    Ok(())
}

#[tokio::test]
async fn chaos_seed_1() -> anyhow::Result<()> {
    nothing_is_lost(1).await
}

#[tokio::test]
async fn chaos_seed_2() -> anyhow::Result<()> {
    nothing_is_lost(2).await
}

#[tokio::test]
async fn chaos_seed_3() -> anyhow::Result<()> {
    nothing_is_lost(3).await
}
