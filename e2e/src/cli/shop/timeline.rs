//! `saga timeline`: what happened to an order, in order.

use std::process::ExitCode;

use clap::Args;
use e2e::Shop;
use e2e::stack::Service;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::show::{BAD, GOOD, QUIET, TITLE, columns, show, show_json, styled};
use super::{Exit, On, Several, resolve};

/// Shows what happened to an order: its steps with their attempts and answers, every message that was written,
/// published and received, what operators did, and its trace.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The id of the order, or its correlation id.
    id: String,
    #[command(flatten)]
    on: On,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let shop = Shop::find(arguments.on.on).await?;
    let id = resolve(&shop, &arguments.id, Several::Newest).await?;
    let order = shop.get(Service::Order, &format!("/orders/{id}")).await?.body;
    let timeline = shop.get(Service::Order, &format!("/orders/{id}/timeline")).await?.body;
    if arguments.on.json {
        show_json(&json!({"order": order, "timeline": timeline}))?;
    } else {
        tell(&order, &timeline);
    }
    Ok(Exit::Good.into())
}

fn tell(order: &Value, timeline: &Value) {
    let reason = order["reason"]["code"].as_str().map(|code| format!(" ({code})")).unwrap_or_default();
    let mut head = vec![
        ["order".to_owned(), text(order, "orderId")],
        ["status".to_owned(), format!("{}{reason}", styled(TITLE, text(order, "status")))],
        ["saga".to_owned(), text(order, "sagaId")],
        ["correlation id".to_owned(), text(order, "correlationId")],
        ["trace id".to_owned(), text(order, "traceId")],
    ];
    if let Some(trace) = order["links"]["trace"].as_str() {
        head.push(["trace".to_owned(), trace.to_owned()]);
    }
    columns(head);
    show("");
    let title = |names: [&str; 6]| names.map(|name| styled(QUIET, name));
    let mut steps = vec![title(["step", "direction", "status", "attempts", "took", "error"])];
    let rows = order["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    for row in rows {
        let took = at(row, "askedAt").zip(at(row, "answeredAt")).map(|(asked, answered)| seconds(answered - asked));
        let attempts = row["handlerAttempts"].as_i64().or(row["attempts"].as_i64()).unwrap_or_default();
        steps.push([
            text(row, "step"),
            text(row, "direction"),
            status(&text(row, "status")),
            attempts.to_string(),
            took.unwrap_or_default(),
            text(row, "error"),
        ]);
    }
    columns(steps);
    show("");
    let entries = timeline["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
    let begin = entries.first().and_then(|entry| at(entry, "at"));
    let mut happened = vec![["after", "what", "", "", "event id"].map(|name| styled(QUIET, name))];
    for entry in entries {
        let after = at(entry, "at").zip(begin).map(|(at, begin)| seconds(at - begin));
        happened.push([
            after.unwrap_or_default(),
            text(entry, "kind"),
            text(entry, "what"),
            text(entry, "detail"),
            styled(QUIET, text(entry, "eventId")),
        ]);
    }
    columns(happened);
    show("");
    let legend = "as the order service knows it: asked, answered: the saga's steps; written, published: its own messages; \
                  received: those of others";
    show(styled(QUIET, format!(" {legend}")));
}

fn status(name: &str) -> String {
    match name {
        "done" => styled(GOOD, name),
        "rejected" | "failed" | "overdue" => styled(BAD, name),
        _ => name.to_owned(),
    }
}

fn seconds(duration: time::Duration) -> String {
    format!("{:.3} s", duration.as_seconds_f64())
}

fn at(value: &Value, field: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(value[field].as_str()?, &Rfc3339).ok()
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}
