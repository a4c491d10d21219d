//! `saga timeline`: what happened to an order, in order.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use e2e::Shop;
use e2e::stack::Service;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::sleep;

use super::order::UNDER_WAY;
use super::show::{BAD, GOOD, QUIET, TITLE, WARNING, columns, show, show_json, styled};
use super::{Exit, On, Several, ops_get, resolve};

/// How often an order that is followed is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Shows what happened to an order, as all services tell it: its steps with their attempts and answers, every message
/// from outbox to inbox and where it is now, what operators did, and its traces.
#[derive(Args)]
#[command(after_help = "\
Steps happen to the saga: placed, asked, answered, overdue, ignored (an answer that changed nothing), cancelled, operator.
Messages are written and published by their sender, processed by their receiver; one that took more than one run
was received (kept in the inbox) and failed first; one that came again was repeated, and skipped.")]
pub(crate) struct Arguments {
    /// The id of the order, of its saga, of one of its messages, or its correlation id.
    id: String,
    /// Go on until the order has ended.
    #[arg(long, conflicts_with = "json")]
    follow: bool,
    #[command(flatten)]
    on: On,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let shop = Shop::find(arguments.on.on).await?;
    let id = resolve(&shop, &arguments.id, Several::Newest).await?.order_id;
    let (mut order, mut timeline) = look(&shop, &id).await?;
    if arguments.on.json {
        show_json(&json!({"order": order, "timeline": timeline}))?;
        return Ok(Exit::Good.into());
    }
    head(&order);
    let mut told = Told::default();
    told.tell(&timeline);
    let mut is_open = arguments.follow;
    while is_open {
        // Once more after the end: what the end has written is still on its way.
        is_open = UNDER_WAY.contains(&order["status"].as_str().unwrap_or_default());
        sleep(LOOK).await;
        (order, timeline) = look(&shop, &id).await?;
        told.tell(&timeline);
    }
    foot(&order, &timeline);
    Ok(Exit::Good.into())
}

async fn look(shop: &Shop, id: &str) -> anyhow::Result<(Value, Value)> {
    // The order last: what the timeline does not show yet, it does not say either.
    let timeline = ops_get(shop, Service::Order, &format!("/ops/timeline/{id}")).await?;
    let order = shop.get(Service::Order, &format!("/orders/{id}")).await?.body;
    if timeline["entries"].as_array().is_none_or(Vec::is_empty) {
        bail!("the order service tells of an order without a beginning");
    }
    Ok((order, timeline))
}

fn head(order: &Value) {
    columns(
        [["order", "orderId"], ["saga", "sagaId"], ["correlation id", "correlationId"]]
            .map(|[name, field]| [name.to_owned(), text(order, field)]),
    );
    show("");
}

/// Which entries have been shown.
#[derive(Default)]
struct Told {
    seen: BTreeSet<String>,
}

impl Told {
    /// Shows what is new.
    fn tell(&mut self, timeline: &Value) {
        let entries = rows(timeline, "entries");
        let begin = entries.first().and_then(|entry| at(entry, "at"));
        if self.seen.is_empty() {
            show(styled(QUIET, format!(" {:>9}  {:<9}  {:<9}", "after", "service", "what")));
        }
        for entry in entries {
            if !self.seen.insert(entry.to_string()) {
                continue;
            }
            let after = at(entry, "at").zip(begin).map(|(at, begin)| seconds(at - begin));
            let kind = text(entry, "kind");
            let style = match kind.as_str() {
                "failed" | "overdue" => BAD,
                "operator" | "cancelled" | "repeated" | "ignored" | "received" => WARNING,
                _ => QUIET,
            };
            let is_step = matches!(kind.as_str(), "placed" | "asked" | "answered");
            // Of fixed widths: what comes later stands below what came before.
            let kind = format!("{kind:<9}");
            let kind = if is_step { kind } else { styled(style, kind) };
            let (after, service) = (after.unwrap_or_default(), text(entry, "service"));
            let line =
                format!(" {after:>9}  {service:<9}  {kind}  {:<20}  {}", text(entry, "what"), text(entry, "detail"));
            show(line.trim_end());
        }
    }
}

/// How it all stands at the end.
fn foot(order: &Value, timeline: &Value) {
    show("");
    let mut steps =
        vec![["step", "direction", "status", "asked", "tries", "took", "error"].map(|name| styled(QUIET, name))];
    for row in rows(order, "steps") {
        let took = at(row, "askedAt").zip(at(row, "answeredAt")).map(|(asked, answered)| seconds(answered - asked));
        // Its receiver counts them, also while it has not answered.
        let message = rows(timeline, "messages").iter().find(|message| message["eventId"] == row["commandId"]);
        let tried = message.and_then(|message| message["attempts"].as_i64()).unwrap_or_default();
        let attempts = row["handlerAttempts"].as_i64().unwrap_or(tried.max(1));
        steps.push([
            text(row, "step"),
            text(row, "direction"),
            status(&text(row, "status")),
            row["attempts"].to_string(),
            attempts.to_string(),
            took.unwrap_or_default(),
            text(row, "error"),
        ]);
    }
    columns(steps);
    show("");
    let title = ["message", "from", "to the queue", "where it is now", "", "event id"];
    let mut messages = vec![title.map(|name| styled(QUIET, name))];
    for row in rows(timeline, "messages") {
        let place = text(row, "place");
        let notes = [
            row["nextAttemptAt"].as_str().map(|at| format!("until {at}")),
            row["attempts"].as_i64().filter(|count| *count > 1).map(|count| format!("attempt {count}")),
            row["error"].as_str().map(str::to_owned),
        ];
        messages.push([
            text(row, "type"),
            text(row, "from"),
            text(row, "to"),
            match place.as_str() {
                "done" => styled(GOOD, place),
                "published" => place,
                "parked" | "skipped" | "discarded" => styled(BAD, place),
                _ => styled(WARNING, place),
            },
            notes.into_iter().flatten().collect::<Vec<_>>().join(", "),
            styled(QUIET, text(row, "eventId")),
        ]);
    }
    columns(messages);
    show("");
    let reason = order["reason"]["code"].as_str().map(|code| format!(" ({code})")).unwrap_or_default();
    let mut end = vec![["status".to_owned(), format!("{}{reason}", styled(TITLE, text(order, "status")))]];
    end.extend(rows(timeline, "traces").iter().enumerate().map(|(number, trace)| {
        let at = trace["url"].as_str().or(trace["traceId"].as_str()).unwrap_or_default();
        // The order's own is the first.
        [if number == 0 { "trace" } else { "an operator's" }.to_owned(), at.to_owned()]
    }));
    columns(end);
    for silent in rows(timeline, "missing") {
        let (service, reason) = (text(silent, "service"), text(silent, "reason"));
        show(styled(WARNING, format!(" what {service} knows is missing here: {reason}")));
    }
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

fn rows<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn at(value: &Value, field: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(value[field].as_str()?, &Rfc3339).ok()
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}
