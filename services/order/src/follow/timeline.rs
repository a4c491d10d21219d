//! Everything that happened to an order, in order: the saga's steps with each of their attempts, every message of every
//! service, what each inbox decided, and what people did.

use std::collections::BTreeSet;

use contracts::step::{Direction, Step};
use messaging::operate::Acted;
use messaging::story::{Received, Written};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use super::messages::MessageBody;
use super::{OURS, Part};
use crate::domain::Status;
use crate::store::orders::OrderRow;
use crate::store::steps::{Ended, StepRow};

/// What happened to an order, as all services tell it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Timeline {
    pub(crate) order_id: Uuid,
    pub(crate) saga_id: Uuid,
    pub(crate) correlation_id: String,
    pub(crate) trace_id: Option<String>,
    pub(crate) status: &'static str,
    /// Everything, in order.
    pub(crate) entries: Vec<Entry>,
    /// Each message of the saga, and where it is now.
    pub(crate) messages: Vec<MessageBody>,
    /// The order's trace first, then those that operators' acts began.
    pub(crate) traces: Vec<TraceLink>,
    /// Services that could not be asked: what they know is missing here.
    pub(crate) missing: Vec<Missing>,
}

/// A trace and its page.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TraceLink {
    pub(crate) trace_id: String,
    /// Jaeger's page, where traces go there.
    pub(crate) url: Option<String>,
}

/// A service that did not answer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Missing {
    pub(crate) service: String,
    pub(crate) reason: String,
}

/// One thing that happened.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) at: OffsetDateTime,
    /// Where it happened.
    pub(crate) service: String,
    /// The saga: `placed`, `asked`, `answered`, `overdue`, `ignored` (an answer that changed nothing), `cancelled` (by
    /// the customer), `operator` (what a person did, who it was and why). Messages: `written`, `published`,
    /// `processed`, and where that took more than one run `received` and `failed`; `parked`: set aside for a person;
    /// `discarded`: thrown away by one; `repeated`: it came again and was skipped.
    pub(crate) kind: &'static str,
    pub(crate) what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) event_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
}

/// What the order service itself knows of a saga.
pub(crate) struct Own {
    pub(crate) order: OrderRow,
    pub(crate) steps: Vec<StepRow>,
    pub(crate) earlier: Vec<(Step, Direction, Vec<Ended>)>,
}

/// What one transaction did happened at one time: its cause comes first.
const ORDER: [&str; 15] = [
    "placed",
    "received",
    "failed",
    "parked",
    "processed",
    "discarded",
    "repeated",
    "answered",
    "ignored",
    "overdue",
    "cancelled",
    "operator",
    "asked",
    "written",
    "published",
];

/// All entries, in order.
pub(crate) fn entries(own: &Own, parts: &[Part]) -> Vec<Entry> {
    let mut entries = vec![ours(own.order.created_at, "placed", "order", None)];
    entries.extend(cancelled_at(own).map(|at| ours(at, "cancelled", "order", Some("by the customer".to_owned()))));
    entries.extend(own.steps.iter().flat_map(|row| step_entries(row, ends_of(&own.earlier, row))));
    for part in parts {
        let Ok(story) = &part.story else { continue };
        entries.extend(story.outbox.iter().flat_map(|row| written(&part.service, row)));
        entries.extend(story.inbox.iter().flat_map(|row| received(&part.service, row)));
        entries.extend(story.acts.iter().map(|act| operated(&part.service, act)));
    }
    entries.sort_by_key(|entry| (entry.at, ORDER.iter().position(|kind| *kind == entry.kind)));
    entries
}

/// The traces of the saga's messages, the order's own first.
pub(crate) fn traces(own: &Own, parts: &[Part], url: impl Fn(&str) -> Option<String>) -> Vec<TraceLink> {
    let rows = parts.iter().flat_map(|part| &part.story).flat_map(|story| &story.outbox);
    let mut seen = BTreeSet::new();
    own.order
        .trace
        .trace_id()
        .into_iter()
        .chain(rows.filter_map(|row| row.trace_id.clone()))
        .filter(|id| seen.insert(id.clone()))
        .map(|trace_id| TraceLink { url: url(&trace_id), trace_id })
        .collect()
}

/// Who did not answer.
pub(crate) fn missing(parts: &[Part]) -> Vec<Missing> {
    let silent = |part: &Part| {
        let reason = part.story.as_ref().err()?.clone();
        Some(Missing { service: part.service.clone(), reason })
    };
    parts.iter().filter_map(silent).collect()
}

fn ours(at: OffsetDateTime, kind: &'static str, what: &str, detail: Option<String>) -> Entry {
    Entry { at, service: OURS.to_owned(), kind, what: what.to_owned(), event_id: None, detail }
}

fn written(service: &str, row: &Written) -> Vec<Entry> {
    let entry = |at, kind| Entry {
        at,
        service: service.to_owned(),
        kind,
        what: row.message_type.clone(),
        event_id: Some(row.event_id.to_string()),
        detail: None,
    };
    let mut entries = vec![entry(row.created_at, "written")];
    entries.extend(row.first_published_at.map(|at| entry(at, "published")));
    let again = row.first_published_at.is_some().then(|| "once more".to_owned());
    entries.extend(row.published_at.map(|at| Entry { detail: again, ..entry(at, "published") }));
    entries
}

fn received(service: &str, row: &Received) -> Vec<Entry> {
    let entry = |at, kind, detail| Entry {
        at,
        service: service.to_owned(),
        kind,
        what: row.message_type.clone(),
        event_id: Some(row.message_id.clone()),
        detail,
    };
    let mut entries = Vec::new();
    let was_kept = row.status != "done" || row.attempts > 1 || !row.failures.is_empty();
    if was_kept {
        entries.push(entry(row.received_at, "received", Some(format!("kept in the inbox of {}", row.consumer))));
    }
    entries.extend(row.failures.iter().map(|run| {
        let detail = format!("attempt {}: {} ({})", run.attempt, run.code, run.class);
        entry(run.at, "failed", Some(detail))
    }));
    // Parked with its last failure; who discards or replays it later leaves that as it was.
    let parked = row.failures.last().filter(|_| matches!(row.status.as_str(), "parked" | "discarded"));
    entries.extend(parked.map(|run| entry(run.at, "parked", Some(format!("set aside for a person: {}", run.code)))));
    entries.extend(row.finished_at.map(|at| match row.status.as_str() {
        "discarded" => entry(at, "discarded", Some("thrown away by a person".to_owned())),
        _ => entry(at, "processed", was_kept.then(|| format!("attempt {}", row.attempts))),
    }));
    let came_again = row.repeated_at.filter(|_| row.repeats > 0);
    entries.extend(
        came_again.map(|at| entry(at, "repeated", Some(format!("came again {}, and was skipped", times(row.repeats))))),
    );
    entries
}

/// What a person did, to a step of the saga or to a message of it.
fn operated(service: &str, act: &Acted) -> Entry {
    let what = act.outcome["step"].as_str().or_else(|| act.outcome["type"].as_str());
    let what = what.map(|what| format!("{what}, ")).unwrap_or_default();
    Entry {
        at: act.at,
        service: service.to_owned(),
        kind: "operator",
        what: act.verb.clone(),
        event_id: act.outcome["type"].is_string().then(|| act.target.clone()),
        detail: Some(format!("{what}by {}: {}", act.actor, act.reason)),
    }
}

pub(super) fn times(count: i32) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// How a do or undo ended before.
fn ends_of<'a>(earlier: &'a [(Step, Direction, Vec<Ended>)], row: &StepRow) -> &'a [Ended] {
    let found = earlier.iter().find(|(step, direction, _)| (*step, *direction) == (row.step, row.direction));
    found.map(|(_, _, ended)| ended.as_slice()).unwrap_or_default()
}

/// When the customer cancelled: the undo of the step that was abandoned was asked in the same transaction.
fn cancelled_at(own: &Own) -> Option<OffsetDateTime> {
    let was_abandoned = |row: &&StepRow| {
        let before = ends_of(&own.earlier, row).iter().map(|ended| ended.status.as_str());
        before.chain([row.status.name()]).any(|name| name == Status::Abandoned.name())
    };
    let abandoned = own.steps.iter().find(was_abandoned)?.step;
    let undo = own.steps.iter().find(|row| (row.step, row.direction) == (abandoned, Direction::Undo))?;
    Some(ends_of(&own.earlier, undo).first().map_or(undo.asked_at, |first| first.asked_at))
}

/// What was asked, again and again, and how it ended each time.
fn step_entries(row: &StepRow, earlier: &[Ended]) -> Vec<Entry> {
    let what = row.step.command(row.direction);
    let now = Ended {
        attempts: row.attempts,
        command_id: row.command_id,
        asked_at: row.asked_at,
        deadline: row.deadline,
        answered_at: row.answered_at,
        status: row.status.name().to_owned(),
        error_code: row.error_code.clone(),
    };
    let mut entries = Vec::new();
    let mut attempt = 0;
    for ended in earlier.iter().chain([&now]) {
        // One attempt may end twice: overdue, and answered after all.
        if ended.attempts != attempt {
            attempt = ended.attempts;
            entries.push(asked(what, ended));
        }
        entries.extend(end(what, ended));
    }
    if let (Some(at), Some(answer), Some(kind)) = (row.ignored_at, &row.ignored_answer, &row.ignored_kind) {
        let detail = format!("{kind}, {}: it changes nothing", times(row.ignored_count));
        entries.push(ours(at, "ignored", answer, Some(detail)));
    }
    entries
}

fn asked(what: &str, ended: &Ended) -> Entry {
    let time = (ended.deadline - ended.asked_at).whole_seconds();
    let detail = format!("attempt {}, to be answered within {time} s", ended.attempts);
    Entry { event_id: Some(ended.command_id.to_string()), ..ours(ended.asked_at, "asked", what, Some(detail)) }
}

fn end(what: &str, ended: &Ended) -> Option<Entry> {
    let name = ended.status.as_str();
    let (at, kind, detail) = match (Status::named(name)?, ended.answered_at) {
        (Status::Overdue, _) => (ended.deadline, "overdue", "no answer in its time".to_owned()),
        // What a person accepted was not answered: how it ended before is among the earlier ends.
        (Status::Settled, _) | (_, None) => return None,
        (_, Some(at)) => match &ended.error_code {
            Some(code) => (at, "answered", format!("{name} ({code})")),
            None => (at, "answered", name.to_owned()),
        },
    };
    Some(ours(at, kind, what, Some(detail)))
}
