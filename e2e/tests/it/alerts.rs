//! The alert rules: promtool's own unit tests, a runbook for each, and no figure that no service has.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use e2e::workspace;

fn read(path: &str) -> anyhow::Result<String> {
    Ok(fs::read_to_string(workspace().join(path))?)
}

/// What stands after `key:` in each line that has it.
pub(crate) fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix(key)).map(str::trim).collect()
}

#[test]
fn every_alert_has_a_test_and_a_runbook() -> anyhow::Result<()> {
    let (rules, tests, runbooks) = (
        read("services/prometheus/alerts.yml")?,
        read("services/prometheus/alerts.test.yml")?,
        read("docs/runbooks.md")?,
    );
    let alerts = values(&rules, "alert:");
    let books: Vec<&str> = values(&rules, "runbook:");
    assert!(alerts.len() >= 9 && books.len() == alerts.len(), "{alerts:?} {books:?}");
    for (alert, book) in alerts.iter().zip(books) {
        assert_eq!(book, format!("docs/runbooks.md#{}", alert.to_lowercase()));
    }
    let told: Vec<&str> = runbooks.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(told, alerts, "docs/runbooks.md has the alerts in their order");
    for alert in alerts {
        assert!(tests.contains(&format!("alertname: {alert}")), "{alert} has no test");
    }
    Ok(())
}

#[test]
fn alerts_look_at_figures_that_there_are() -> anyhow::Result<()> {
    let (rules, docs) = (read("services/prometheus/alerts.yml")?, read("docs/metrics.md")?);
    let cells = docs.lines().filter_map(|line| line.strip_prefix("| `"));
    let known: BTreeSet<&str> = cells.filter_map(|cell| cell.split(['{', '`']).next()).collect();
    let words = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let prefixes = ["outbox_", "inbox_", "messaging_", "saga_", "database_", "telemetry_", "http_"];
    let used: BTreeSet<&str> = words.filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix))).collect();
    assert!(used.len() >= 8, "{used:?}");
    for figure in used {
        let name = ["_sum", "_count"].iter().find_map(|end| figure.strip_suffix(end)).unwrap_or(figure);
        assert!(known.contains(name), "{figure} is no figure of docs/metrics.md");
    }
    Ok(())
}

#[test]
fn promtool_finds_every_alert_firing_when_it_must_and_not_before() -> anyhow::Result<()> {
    let on_path = || {
        env::split_paths(&env::var_os("PATH").unwrap_or_default())
            .map(|path| path.join("promtool"))
            .find(|path| path.is_file())
    };
    let Some(promtool) = env::var_os("PROMTOOL").map(PathBuf::from).or_else(on_path) else {
        anyhow::ensure!(env::var("CI").as_deref() != Ok("true"), "CI needs a promtool: none in PROMTOOL or on PATH");
        writeln!(std::io::stderr(), "DID NOT RUN: no promtool on this machine (name one with PROMTOOL=path)")?;
        return Ok(());
    };
    let tested = Command::new(promtool)
        .args(["test", "rules"])
        .arg(workspace().join("services/prometheus/alerts.test.yml"))
        .output()?;
    let said = [tested.stdout, tested.stderr].concat();
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&said));
    Ok(())
}
