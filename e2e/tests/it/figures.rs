//! What the services tell Prometheus.

use std::collections::BTreeSet;
use std::fs;

use e2e::stack::Service;
use e2e::{Action, Settings, Stack, State, eventually, workspace};

use crate::shop::{SOON, comes_to, order, place};

/// The value of a figure whose line has all these parts.
pub(crate) fn value(text: &str, parts: &[&str]) -> Option<f64> {
    let line = text.lines().find(|line| !line.starts_with('#') && parts.iter().all(|part| line.contains(part)))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

/// The names after `# HELP` or `# TYPE`.
fn named(text: &str, what: &str) -> BTreeSet<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(what));
    lines.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

#[tokio::test]
async fn every_figure_has_a_help_text_and_its_line_in_the_docs() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let end = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &end, "completed").await?;
    let docs = fs::read_to_string(workspace().join("docs/metrics.md"))?;
    let cells = docs.lines().filter_map(|line| line.strip_prefix("| `"));
    let told: BTreeSet<String> = cells.filter_map(|cell| cell.split(['{', '`']).next().map(str::to_owned)).collect();
    let mut seen = BTreeSet::new();
    for service in Service::ALL {
        let text = stack.process(service).client()?.ops_get("/metrics").await?.text;
        let types = named(&text, "# TYPE ");
        assert_eq!(types, &types & &named(&text, "# HELP "), "{service:?}: figures without a help text");
        seen.extend(types);
    }
    // Nothing came late in this run.
    seen.insert("saga_answers_ignored_total".to_owned());
    assert_eq!(seen, told, "what the services tell, and what docs/metrics.md lists");
    Ok(())
}

#[tokio::test]
async fn figures_tell_where_rows_and_sagas_stand() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let figure = async |parts: &[&str], expected: f64| {
        eventually(SOON, &format!("{parts:?} is {expected}"), async || {
            let text = stack.order().client()?.ops_get("/metrics").await?.text;
            let found = value(&text, parts);
            Ok(if found == Some(expected) { State::Reached(()) } else { State::pending(found) })
        })
        .await
    };
    stack.order().holds().arm("relay.read", Action::Hold)?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    // The command, and the event that there is an order.
    figure(&["outbox_pending"], 2.0).await?;
    figure(&["saga_open", "running", "payment"], 1.0).await?;
    figure(&["messaging_loop_working", "relay"], 1.0).await?;
    stack.order().holds().release("relay.read")?;
    comes_to(&stack, &placed, "completed").await?;
    figure(&["outbox_pending"], 0.0).await?;
    figure(&["saga_open", "running", "payment"], 0.0).await?;
    figure(&["saga_duration_seconds_count", "completed"], 1.0).await?;
    let text = stack.order().client()?.ops_get("/metrics").await?.text;
    for size in ["outbox_size_bytes", "inbox_size_bytes"] {
        assert!(value(&text, &[size]).is_some_and(|bytes| bytes > 0.0), "{size}: {text}");
    }
    let connections = |state| value(&text, &["database_pool_connections", state]).unwrap_or(-1.0);
    let (idle, in_use) = (connections("idle"), connections("in_use"));
    assert!(idle >= 0.0 && in_use >= 0.0 && idle + in_use > 0.0, "{idle} idle, {in_use} in use: {text}");
    Ok(())
}
