//! Why a saga is where it is: the one thing that it waits for, with evidence and what to do next. It follows the open
//! command from the order service's outbox to its participant's inbox, and its answer back; where it finds it, there
//! the cause is.

use std::fmt::Display;

use chassis::LoopNow;
use contracts::step::{Direction, Step};
use contracts::topology;
use messaging::story::{Received, Written};
use serde::Serialize;
use time::OffsetDateTime;
use time::macros::format_description;
use utoipa::ToSchema;
use uuid::Uuid;

use super::messages::{Place, Tracked, track};
use super::timeline::{Own, times};
use super::{Follow, OURS, Part};
use crate::domain::{State, Status};
use crate::store::steps::StepRow;

mod also;
mod way;

/// A loop that did not go round for so long hangs: as readiness judges.
const HANGS_MS: u64 = 30_000;

/// Why a saga is where it is.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Why {
    pub(crate) order_id: Uuid,
    pub(crate) saga_id: Uuid,
    pub(crate) correlation_id: String,
    pub(crate) status: &'static str,
    #[serde(flatten)]
    pub(crate) finding: Finding,
}

/// A cause, in one sentence.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Finding {
    /// Stable: `finished`, `needs_a_person`, `relay_not_running`, `broker_away`, `broker_blocked`, `database_away`,
    /// `unroutable`, `publish_refused`, `held_behind`, `publishing`, `relay_stuck`, `queue_missing`, `consumer_missing`,
    /// `service_silent`, `queued`, `waiting_for_answer`, `retrying`, `undo_failing`, `parked`, `discarded`, `answered`.
    pub(crate) cause: &'static str,
    pub(crate) sentence: String,
    /// Since when it is so.
    #[serde(with = "time::serde::rfc3339::option")]
    pub(crate) since: Option<OffsetDateTime>,
    /// When the saga goes on without it, or when it is tried again.
    #[serde(with = "time::serde::rfc3339::option")]
    pub(crate) until: Option<OffsetDateTime>,
    pub(crate) evidence: Vec<String>,
    /// What to do.
    pub(crate) next: String,
}

impl Finding {
    fn new(cause: &'static str, sentence: impl Into<String>, next: impl Into<String>) -> Finding {
        let (sentence, next) = (sentence.into(), next.into());
        Finding { cause, sentence, since: None, until: None, evidence: Vec::new(), next }
    }

    fn since(self, at: OffsetDateTime) -> Finding {
        Finding { since: Some(at), ..self }
    }

    fn until(self, at: Option<OffsetDateTime>) -> Finding {
        Finding { until: at, ..self }
    }

    fn because(mut self, evidence: impl Display) -> Finding {
        self.evidence.push(evidence.to_string());
        self
    }
}

/// Finds the cause.
pub(crate) async fn explain(follow: &Follow, own: &Own, mut parts: Vec<Part>) -> Finding {
    own.steps.iter().filter(|row| row.status == Status::Asked).for_each(|row| recall(&mut parts, row));
    let messages = track(&parts);
    let open = match own.order.state {
        State::Completed | State::Cancelled | State::Settled => return finished(own, &messages),
        State::NeedsAttention(step) => {
            let undo = own.steps.iter().find(|row| (row.step, row.direction) == (step, Direction::Undo));
            let mut finding = needs_a_person(own, step, undo);
            // Unanswered is not given up: where it is decides what a person has to do.
            if let Some(undo) = undo.filter(|row| row.status == Status::Overdue) {
                goes_on(&mut finding, &locate(follow, own, &parts, &messages, undo).await, own.order.id, step);
            }
            also::add(&mut finding, &parts);
            return finding;
        }
        State::Running(step) => find_step(own, step, Direction::Do),
        State::Compensating(step) => find_step(own, step, Direction::Undo),
    };
    let Some(open) = open else {
        // The state and its step are written together: only a hand can have parted them.
        return Finding::new("answered", "The saga has no open step.", "look at its rows in the schema `orders`");
    };
    let mut finding = locate(follow, own, &parts, &messages, open).await;
    let command = open.step.command(open.direction);
    let asked = format!("{command} was asked at {}, attempt {}", clock(open.asked_at), open.attempts);
    finding.evidence.insert(0, asked);
    if open.is_overdue {
        let sweep = parts.iter().find(|part| part.service == OURS).and_then(|part| part.find_loop("deadlines"));
        let what = sweep.filter(|sweep| !works(sweep)).map_or(
            "is acted on once answers have been heard for 15 s, unless another session holds the saga's row",
            |_| "is not acted on: the loop `deadlines` of order does not work",
        );
        finding = finding.because(format!("its deadline passed at {} and {what}", clock(open.deadline)));
    }
    also::add(&mut finding, &parts);
    finding
}

/// Where a command or its answer is, and what holds it there.
async fn locate(follow: &Follow, own: &Own, parts: &[Part], messages: &[Tracked<'_>], open: &StepRow) -> Finding {
    match find_message(messages, open) {
        Some(message) => {
            let queue = match (&message.place, message.queue) {
                (Place::Queue | Place::Unknown, Some(queue)) => Some(follow.broker.look_at(queue).await),
                _ => None,
            };
            way::stuck(messages, message, open, queue)
        }
        None => match kept(parts) {
            Some((id, row)) => way::in_the_inbox(id, row, open),
            None => answered(own, open),
        },
    }
}

/// A command whose row is gone was published: rows are deleted then where the setting says so.
fn recall(parts: &mut [Part], open: &StepRow) {
    let Some(Ok(story)) = parts.iter_mut().find(|part| part.service == OURS).map(|part| part.story.as_mut()) else {
        return;
    };
    if story.outbox.iter().all(|row| row.event_id != open.command_id) {
        let route = topology::command_route(open.step);
        story.outbox.push(Written {
            event_id: open.command_id,
            message_type: open.step.command(open.direction).to_owned(),
            exchange: route.exchange.to_string(),
            routing_key: route.routing_key.to_string(),
            trace_id: None,
            causation_id: None,
            created_at: open.asked_at,
            published_at: Some(open.asked_at),
            first_published_at: None,
            attempts: 0,
            next_attempt_at: None,
            last_error: None,
        });
    }
}

fn find_step(own: &Own, step: Step, direction: Direction) -> Option<&StepRow> {
    let is_open = |row: &&StepRow| (row.step, row.direction, row.status) == (step, direction, Status::Asked);
    own.steps.iter().find(is_open)
}

/// The command, or its answer if the command is done.
fn find_message<'m, 'a>(messages: &'m [Tracked<'a>], open: &StepRow) -> Option<&'m Tracked<'a>> {
    let command = messages.iter().find(|message| message.written.event_id == open.command_id)?;
    let is_done = matches!(command.place, Place::Inbox(row) if row.status == "done");
    if !is_done {
        return Some(command);
    }
    let is_answer = |message: &&Tracked<'_>| {
        message.written.causation_id == Some(open.command_id)
            && message.queue.is_some_and(|name| name.starts_with(OURS))
    };
    messages
        .iter()
        .filter(is_answer)
        .find(|message| !matches!(message.place, Place::Inbox(row) if row.status == "done"))
}

/// A message of the saga that is kept in our own inbox, where nobody tells any more that he has sent it.
fn kept(parts: &[Part]) -> Option<(Uuid, &Received)> {
    let story = parts.iter().find(|part| part.service == OURS)?.story.as_ref().ok()?;
    let row = story.inbox.iter().find(|row| row.status != "done")?;
    Some((row.message_id.parse().ok()?, row))
}

fn finished(own: &Own, messages: &[Tracked<'_>]) -> Finding {
    let reason = own.order.reason.as_ref().map(|(code, kind)| format!(" The reason: {code} ({kind})."));
    let what = match own.order.state {
        State::Completed => "The order is completed: paid, reserved and shipped.",
        State::Settled => "The order is settled: a person has accepted a step as it is, everything else is undone.",
        _ => "The order is cancelled: everything that was done for it is undone.",
    };
    let sentence = format!("{what}{}", reason.unwrap_or_default());
    let mut finding = Finding::new("finished", sentence, format!("`cargo saga timeline {}`", own.order.id));
    finding.since = own.order.ended_at;
    let is_open = |message: &&Tracked<'_>| match message.place {
        Place::Outbox | Place::Queue => true,
        Place::Inbox(row) => row.status != "done",
        Place::Told | Place::Unknown => false,
    };
    for message in messages.iter().filter(is_open) {
        let body = message.body();
        finding = finding.because(format!("{} of {} is still in: {}", body.message_type, body.from, body.place));
    }
    finding
}

fn needs_a_person(own: &Own, step: Step, undo: Option<&StepRow>) -> Finding {
    let command = step.command(Direction::Undo);
    let overdue = "was not answered in its time: it may yet take effect";
    let how = match undo.map(|row| (row.status, row.error_code.as_deref())) {
        Some((Status::Failed, Some(code))) => format!("was refused with {code}: nothing was given back"),
        Some((Status::Failed, None)) => "was refused: nothing was given back".to_owned(),
        _ => overdue.to_owned(),
    };
    let [retry, settle] = ["retry", "settle"].map(|verb| ops(verb, own.order.id, step));
    let sentence = format!("The order waits for a person: {command} {how}.");
    let next = format!("lift the cause, then {retry}; or accept it as it is with {settle}");
    let mut finding = Finding::new("needs_a_person", sentence, next);
    if let Some(row) = undo {
        finding.since = row.answered_at.or(Some(row.deadline));
        finding = finding.because(format!("{command} was asked at {}, attempt {}", clock(row.asked_at), row.attempts));
        let tried =
            row.handler_attempts.map(|count| format!("{} tried it {} the last time", step.name(), times(count)));
        finding.evidence.extend(tried);
    }
    finding
}

/// An overdue undo takes effect when it comes through: a person need not do more than lift what holds it, unless it
/// is on its way no more.
fn goes_on(finding: &mut Finding, found: &Finding, order_id: Uuid, step: Step) {
    let [retry, settle] = ["retry", "settle"].map(|verb| ops(verb, order_id, step));
    let is_on_its_way = !matches!(found.cause, "parked" | "discarded" | "queue_missing" | "answered");
    finding.next = if is_on_its_way {
        format!(
            "lift the cause and wait: the order goes on by itself when the undo succeeds ({}); or accept it as it is \
             with {settle}",
            found.next
        )
    } else {
        format!("lift the cause, then ask again with {retry}; or accept it as it is with {settle}")
    };
    finding.evidence.push(found.sentence.clone());
    finding.evidence.extend(found.evidence.iter().cloned());
}

/// The operators' verb for an undo that waits for a person.
fn ops(verb: &str, order_id: Uuid, step: Step) -> String {
    format!("`cargo saga ops {verb} {order_id} --step {} --reason WHY`", step.name())
}

/// Everything that was sent has been taken, and the saga stands: the answer is being worked at, or changed nothing.
fn answered(own: &Own, open: &StepRow) -> Finding {
    let command = open.step.command(open.direction);
    let next = format!("ask again in a moment; `cargo saga timeline {}` shows each message", own.order.id);
    let sentence = format!("{command} is done or its row is gone, and no answer to it waits anywhere.");
    Finding::new("answered", sentence, next).since(open.asked_at).until(Some(open.deadline))
}

fn works(one: &LoopNow) -> bool {
    one.last_beat_ms < HANGS_MS && matches!(one.state.as_str(), "working" | "standby")
}

fn clock(at: OffsetDateTime) -> String {
    let format = format_description!("[hour]:[minute]:[second].[subsecond digits:3] UTC");
    at.format(format).unwrap_or_else(|_| at.to_string())
}
