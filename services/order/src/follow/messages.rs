//! Where each message of a saga is now: in its sender's outbox, on its way, or in its receiver's inbox.

use contracts::topology;
use messaging::story::{Received, Written};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use super::Part;

/// A message and where it is.
pub(crate) struct Tracked<'a> {
    pub(crate) from: &'a Part,
    /// The queue that it must reach, if anybody has to hear it.
    pub(crate) queue: Option<&'static str>,
    /// Whose queue that is.
    pub(crate) to: Option<&'a Part>,
    pub(crate) written: &'a Written,
    pub(crate) place: Place<'a>,
}

/// Where a message can be.
pub(crate) enum Place<'a> {
    /// In its sender's outbox.
    Outbox,
    /// Published, and not in its receiver's inbox: in the queue, or being worked at.
    Queue,
    /// In its receiver's inbox.
    Inbox(&'a Received),
    /// Published; nobody has to hear it.
    Told,
    /// Published; its receiver cannot be asked.
    Unknown,
}

/// A message in an answer.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MessageBody {
    pub(crate) event_id: Uuid,
    #[serde(rename = "type")]
    pub(crate) message_type: String,
    pub(crate) from: String,
    /// The queue that it must reach; null where nobody has to hear it.
    pub(crate) to: Option<&'static str>,
    /// `outbox`: not confirmed by the broker; `queue`: published, and not in the receiver's inbox yet; `done`;
    /// `retrying`, `waiting`, `parked`, `discarded`: kept in the receiver's inbox; `published`: nobody has to hear it;
    /// `unknown`: published, and the receiver cannot be asked.
    pub(crate) place: String,
    /// How often the receiver has run it; in the outbox, how often the broker refused it.
    pub(crate) attempts: i32,
    /// When it is tried again, where it is.
    #[serde(with = "time::serde::rfc3339::option")]
    pub(crate) next_attempt_at: Option<OffsetDateTime>,
    /// Why it is not further.
    pub(crate) error: Option<String>,
    /// How often it came again, and was skipped.
    pub(crate) repeats: i32,
    pub(crate) trace_id: Option<String>,
}

/// Every message that is told of, in the order in which they were written.
pub(crate) fn track(parts: &[Part]) -> Vec<Tracked<'_>> {
    let mut tracked: Vec<Tracked<'_>> = parts
        .iter()
        .flat_map(|part| part.story.iter().flat_map(move |story| story.outbox.iter().map(move |row| (part, row))))
        .map(|(from, written)| locate(parts, from, written))
        .collect();
    tracked.sort_by_key(|message| message.written.created_at);
    tracked
}

fn locate<'a>(parts: &'a [Part], from: &'a Part, written: &'a Written) -> Tracked<'a> {
    let queue = topology::receiver(&written.exchange, &written.routing_key).map(|queue| queue.name);
    let service = queue.and_then(|queue| queue.split('.').next());
    let to = service.and_then(|service| parts.iter().find(|part| part.service == service));
    let place = match (written.published_at, queue) {
        (None, _) => Place::Outbox,
        (Some(_), None) => Place::Told,
        (Some(_), Some(queue)) => match to.map(|part| &part.story) {
            Some(Ok(story)) => {
                let id = written.event_id.to_string();
                let is_it = |row: &&Received| row.consumer == queue && row.message_id == id;
                story.inbox.iter().find(is_it).map_or(Place::Queue, Place::Inbox)
            }
            Some(Err(_)) | None => Place::Unknown,
        },
    };
    Tracked { from, queue, to, written, place }
}

impl Tracked<'_> {
    pub(crate) fn body(&self) -> MessageBody {
        let written = self.written;
        let (place, attempts, next_attempt_at, error) = match &self.place {
            Place::Outbox => ("outbox", written.attempts, written.next_attempt_at, written.last_error.clone()),
            Place::Queue => ("queue", 0, None, None),
            Place::Told => ("published", 0, None, None),
            Place::Unknown => ("unknown", 0, None, self.to.and_then(|part| part.story.as_ref().err().cloned())),
            Place::Inbox(row) if row.status == "done" => ("done", row.attempts, None, None),
            Place::Inbox(row) => {
                let next = row.next_attempt_at.filter(|_| row.status == "retrying");
                (row.status.as_str(), row.attempts, next, row.error_code.clone())
            }
        };
        MessageBody {
            event_id: written.event_id,
            message_type: written.message_type.clone(),
            from: self.from.service.clone(),
            to: self.queue,
            place: place.to_owned(),
            attempts,
            next_attempt_at,
            error,
            repeats: if let Place::Inbox(row) = self.place { row.repeats } else { 0 },
            trace_id: written.trace_id.clone(),
        }
    }
}
