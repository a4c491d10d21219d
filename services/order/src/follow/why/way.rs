//! Where a message of the saga is stuck on its way, and why there.

use chassis::{LoopNow, Readiness};
use contracts::step::Direction;
use messaging::relay::ALARM;
use messaging::story::Received;
use messaging::{Failure, QueueNow};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::{Finding, clock, works};
use crate::domain::Status;
use crate::follow::Part;
use crate::follow::messages::{Place, Tracked};
use crate::store::steps::StepRow;

/// A relay that works has published a row by then.
const PUBLISHED_WITHIN: Duration = Duration::seconds(5);
/// Somebody else holds a lock in the service's own database: the message is not at fault, and no attempt is the last.
const LOCK_TIMEOUT: &str = "database.55P03";

/// Explains a message that is not done. `queue` is how its queue is, where it may be there.
pub(super) fn stuck(
    messages: &[Tracked<'_>],
    message: &Tracked<'_>,
    open: &StepRow,
    queue: Option<Result<Option<QueueNow>, Failure>>,
) -> Finding {
    match (&message.place, queue) {
        (Place::Outbox, _) => in_the_outbox(messages, message),
        (Place::Inbox(row), _) => in_the_inbox(message.written.event_id, row, open),
        (_, Some(looked)) => in_the_queue(message, open, looked),
        // A message of the saga always has a receiver.
        (Place::Queue | Place::Told | Place::Unknown, None) => Finding::new(
            "publishing",
            format!("{} is published.", message.written.message_type),
            "ask again in a moment",
        ),
    }
}

fn in_the_outbox(messages: &[Tracked<'_>], message: &Tracked<'_>) -> Finding {
    let (row, from) = (message.written, message.from);
    let (what, service) = (&row.message_type, &from.service);
    let relay = from.find_loop("relay");
    let waits = |cause, why: &str, next: &str| {
        let sentence = format!("{what} waits in the outbox of {service}: {why}.");
        Finding::new(cause, sentence, next).since(row.created_at)
    };
    match &from.readiness {
        Err(reason) => return silent(from, reason).since(row.created_at),
        Ok(readiness) if readiness.database == "away" => {
            return no_database(readiness, format!("{what} waits in the outbox of {service}, whose database is away."))
                .since(row.created_at);
        }
        Ok(_) => {}
    }
    match relay {
        None => waits(
            "relay_not_running",
            "no relay runs in this process",
            &format!("start the service with RELAY=on, or `{service} relay` beside it"),
        ),
        Some(relay) if !works(relay) => troubled(relay, &waits),
        Some(_) if row.attempts > 0 => {
            let error = row.last_error.as_deref().unwrap_or_default();
            let next = match message.to {
                Some(to) => format!("start {0}: it declares its queue and the binding; if it runs, restart it", to.service),
                None => "look at the broker's exchange and bindings".to_owned(),
            };
            let cause = if error.starts_with("unroutable") { "unroutable" } else { "publish_refused" };
            let why = format!("the broker has not taken it in {} attempts ({error})", row.attempts);
            waits(cause, &why, &next).until(row.next_attempt_at)
        }
        Some(_) if row.next_attempt_at.is_some() => {
            let is_ahead = |other: &&Tracked<'_>| {
                matches!(other.place, Place::Outbox) && other.from.service == *service && other.written.attempts > 0
            };
            let ahead =
                messages.iter().find(is_ahead).map_or("an earlier message", |m| m.written.message_type.as_str());
            let why = format!("it must not overtake {ahead}, which the broker has not taken");
            waits("held_behind", &why, "mend what holds the earlier message: it is tried again by itself")
                .until(row.next_attempt_at)
        }
        Some(relay) if OffsetDateTime::now_utc() - row.created_at > PUBLISHED_WITHIN => waits(
            "relay_stuck",
            match relay.state.as_str() {
                "standby" => "another session holds the relay's lock and does not publish",
                _ => "the relay is there and does not get on",
            },
            "look in PostgreSQL who holds a lock: `select * from pg_locks join pg_stat_activity using (pid)`; and whether the \
             broker answers: `cargo saga status`",
        )
        .because(seen(relay)),
        Some(relay) => waits("publishing", "it is about to be published", "ask again in a moment").because(seen(relay)),
    }
}

/// What is wrong where a loop does not work: a cause, the sentence's second half, and what to do.
pub(super) fn trouble(one: &LoopNow) -> (&'static str, &'static str, &'static str) {
    match one.code.as_deref().unwrap_or_default() {
        ALARM => (
            "broker_blocked",
            "the broker is in alarm and takes nothing",
            "give the broker memory or disk: `rabbitmq-diagnostics alarms` tells which",
        ),
        code if code.starts_with("broker") => (
            "broker_away",
            "the broker is away",
            "start RabbitMQ: `cargo saga status` shows what is away; `cargo saga mend` starts what was stopped on request",
        ),
        code if code.starts_with("database") => (
            "database_away",
            "the service's database is away",
            "start PostgreSQL: `cargo saga status` shows what is away",
        ),
        "topology.contradiction" => (
            "relay_not_running",
            "the broker has a queue or an exchange of that name with other arguments",
            "delete it in RabbitMQ's page when it is empty: the service declares it again by itself",
        ),
        _ => ("relay_not_running", "the loop does not work", "look at the log of the service, and restart it"),
    }
}

fn troubled(one: &LoopNow, waits: &dyn Fn(&'static str, &str, &str) -> Finding) -> Finding {
    let (cause, why, next) = trouble(one);
    waits(cause, why, next).because(seen(one))
}

fn in_the_queue(message: &Tracked<'_>, open: &StepRow, looked: Result<Option<QueueNow>, Failure>) -> Finding {
    let row = message.written;
    let what = &row.message_type;
    let queue = message.queue.unwrap_or_default();
    let service = queue.split('.').next().unwrap_or_default();
    let finding = match looked {
        Err(failure) => Finding::new(
            "broker_away",
            format!("{what} is published, and the broker that has it is away."),
            "start RabbitMQ: the message is on its disk; `cargo saga mend` starts what was stopped on request",
        )
        .because(failure.chain()),
        Ok(None) => Finding::new(
            "queue_missing",
            format!("{what} is published, and its queue {queue} is gone."),
            format!(
                "start {service}: it declares the queue again; what was in it is lost, and the deadline moves the saga on"
            ),
        ),
        Ok(Some(now)) => at_the_receiver(message, open, queue, service, now)
            .because(format!("{queue} has {} waiting messages and {} consumers", now.ready, now.consumers)),
    };
    finding.since(row.published_at.unwrap_or(row.created_at)).until(Some(open.deadline))
}

/// The queue is there: what its receiver says decides.
fn at_the_receiver(message: &Tracked<'_>, open: &StepRow, queue: &str, service: &str, now: QueueNow) -> Finding {
    let what = &message.written.message_type;
    let readiness = message.to.map(|part| (part, part.readiness.as_ref()));
    match (readiness, message.to.and_then(|part| part.find_loop(&format!("consumer.{queue}")))) {
        (Some((part, Err(reason))), _) if now.consumers > 0 => silent(part, reason),
        (Some((_, Ok(readiness))), _) if readiness.database == "away" => {
            no_database(readiness, format!("{what} waits for {service}, whose database is away."))
        }
        (Some((_, Ok(_))), Some(consumer)) if !works(consumer) => troubled(consumer, &|cause, why, next| {
            let cause = if cause == "relay_not_running" { "consumer_missing" } else { cause };
            Finding::new(cause, format!("{what} waits for {service}: {why}."), next)
        }),
        _ if now.consumers == 0 => Finding::new(
            "consumer_missing",
            match message.place {
                Place::Unknown => format!("{service} is away: {what} is in its queue {queue}, or kept in its inbox."),
                _ => format!("{what} waits in the queue {queue}, and nobody takes from it."),
            },
            format!(
                "start {service}: `cargo saga status` shows how it is, `cargo saga mend` starts what was stopped on request"
            ),
        ),
        _ if now.ready > 0 => {
            let sentence = format!("{what} waits in the queue {queue}, where {service} is behind.");
            Finding::new("queued", sentence, "wait, or start another instance of the service")
        }
        _ => {
            let next = match open.direction {
                Direction::Do => "wait: without an answer by then the step is undone by itself",
                Direction::Undo if open.status == Status::Overdue => "wait for its answer",
                Direction::Undo => "wait: without an answer by then a person is called",
            };
            let sentence = format!("{service} has {what}, or has it in line, and has not answered yet.");
            Finding::new("waiting_for_answer", sentence, next)
        }
    }
}

pub(super) fn in_the_inbox(message_id: Uuid, row: &Received, open: &StepRow) -> Finding {
    let what = &row.message_type;
    let service = row.consumer.split('.').next().unwrap_or_default();
    let code = row.error_code.as_deref().unwrap_or("no failure yet");
    let finding = match row.status.as_str() {
        "retrying" => again(row, service, open, message_id == open.command_id),
        "parked" => Finding::new(
            "parked",
            format!("{service} has set {what} aside for a person: {code}."),
            "README, \"When a person is needed\", and docs/runbooks.md#messagesparked: look at it, then replay or discard it; \
             at its deadline the saga goes on without it",
        )
        .until(Some(open.deadline)),
        "discarded" => Finding::new(
            "discarded",
            format!("A person has discarded {what} at {service}."),
            "wait: the deadline moves the saga on",
        )
        .until(Some(open.deadline)),
        _ => Finding::new(
            "held_behind",
            format!("{what} waits in the inbox of {service} behind an earlier message of the same saga."),
            "mend what holds the earlier message: this one follows by itself",
        ),
    };
    let failures = row
        .failures
        .iter()
        .map(|run| format!("attempt {} failed at {} with {} ({})", run.attempt, clock(run.at), run.code, run.class));
    let mut finding = finding.since(row.received_at);
    finding.evidence.extend(failures);
    finding.evidence.extend(row.last_error.clone());
    finding
}

/// Tried again, or being tried just now.
fn again(row: &Received, service: &str, open: &StepRow, is_command: bool) -> Finding {
    let (what, attempt) = (&row.message_type, row.attempts);
    let code = row.error_code.as_deref().unwrap_or("no failure yet");
    let undoes = is_command && open.direction == Direction::Undo;
    let cause = if undoes { "undo_failing" } else { "retrying" };
    let next = match (code, is_command, undoes) {
        (LOCK_TIMEOUT, ..) => {
            "somebody holds a lock in the service's database: `select pid, application_name, query from pg_stat_activity \
             where state like 'idle in transaction%'` shows who; it is tried until the lock is gone"
        }
        (_, false, _) => "mend what refuses the answer: it is tried again, and parked after its last attempt",
        (_, true, true) if open.status == Status::Overdue => "mend what refuses it: an undo is tried for ever",
        (_, true, true) => "mend what refuses it: an undo is tried for ever; at its deadline a person is called",
        (_, true, false) => "wait: after the last attempt the step is answered as failed and undone",
    };
    if row.is_running {
        let sentence = match row.error_code {
            Some(_) => {
                format!("{service} tries {what} again: attempt {attempt} runs, the one before ended with {code}.")
            }
            None => format!("{service} tries {what}: attempt {attempt} runs."),
        };
        return Finding::new(cause, sentence, next);
    }
    let when = row.next_attempt_at.map(clock).unwrap_or_default();
    let sentence =
        format!("{service} tries {what} again: attempt {attempt} ended with {code}, the next begins at {when}.");
    Finding::new(cause, sentence, next).until(row.next_attempt_at)
}

fn no_database(readiness: &Readiness, sentence: String) -> Finding {
    let next =
        "start PostgreSQL, or let the service's role in: `cargo saga status` shows what is away, and the evidence why";
    let mut finding = Finding::new("database_away", sentence, next);
    let reasons =
        readiness.loops.iter().filter(|one| one.code.as_deref().is_some_and(|code| code.starts_with("database")));
    finding.evidence.extend(reasons.map(seen));
    finding
}

/// A loop as evidence.
fn seen(one: &LoopNow) -> String {
    let code = one.code.as_deref().map(|code| format!(" ({code})")).unwrap_or_default();
    let reason = one.reason.as_deref().map(|reason| format!(": {reason}{code}")).unwrap_or_default();
    format!("the loop {} is {}, {} ms ago{reason}", one.name, one.state, one.last_beat_ms)
}

fn silent(part: &Part, reason: &str) -> Finding {
    let name = &part.service;
    let next = format!(
        "look at {name}: `cargo saga status` shows how it is, `cargo saga mend` thaws what was frozen on request"
    );
    Finding::new("service_silent", format!("It is {name}'s turn, and {name} does not answer."), next).because(reason)
}
