//! Which messages are meant, as a query or a body names them.

use std::time::Duration;

use garde::Validate;
use messaging::operate::{self, look};
use serde::Deserialize;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::json::printable;

/// Which messages of the inbox.
#[derive(Clone, Debug, Default, Deserialize, Validate)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WhichKept {
    #[garde(inner(length(chars, min = 1, max = 255), custom(printable)))]
    message_id: Option<String>,
    #[garde(inner(length(chars, min = 1, max = 255), custom(printable)))]
    consumer: Option<String>,
    #[garde(skip)]
    status: Option<Status>,
    #[serde(rename = "type")]
    #[garde(inner(length(chars, min = 1, max = 255), custom(printable)))]
    message_type: Option<String>,
    #[garde(inner(length(chars, min = 1, max = 255), custom(printable)))]
    error_code: Option<String>,
    #[garde(inner(length(chars, min = 1, max = 128), custom(printable)))]
    correlation_id: Option<String>,
    #[garde(skip)]
    saga_id: Option<Uuid>,
    /// Seconds.
    #[garde(inner(range(max = 315_360_000)))]
    older_than: Option<u32>,
    #[garde(skip)]
    after: Option<i64>,
    #[garde(inner(range(min = 1, max = operate::MOST)))]
    limit: Option<i64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Waiting,
    Retrying,
    Parked,
    Skipped,
    Discarded,
    Done,
}

/// Which rows of the outbox or its history.
#[derive(Clone, Debug, Default, Deserialize, Validate)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WhichSent {
    #[garde(skip)]
    message_id: Option<Uuid>,
    #[serde(rename = "type")]
    #[garde(inner(length(chars, min = 1, max = 255), custom(printable)))]
    message_type: Option<String>,
    #[garde(skip)]
    saga_id: Option<Uuid>,
    #[garde(inner(length(chars, min = 1, max = 128), custom(printable)))]
    correlation_id: Option<String>,
    /// Only what the broker has refused, and what waits behind it.
    #[serde(default)]
    #[garde(skip)]
    put_off: bool,
    /// Seconds.
    #[garde(inner(range(max = 315_360_000)))]
    older_than: Option<u32>,
    #[serde(default, with = "time::serde::rfc3339::option")]
    #[garde(skip)]
    since: Option<OffsetDateTime>,
    #[serde(default, with = "time::serde::rfc3339::option")]
    #[garde(skip)]
    until: Option<OffsetDateTime>,
    #[garde(skip)]
    after: Option<i64>,
    #[garde(inner(range(min = 1, max = operate::MOST)))]
    limit: Option<i64>,
}

impl WhichKept {
    /// What has to be named for an act.
    pub(super) const NEEDED: &'static str = "a messageId, a sagaId or a status";

    pub(super) fn names_something(&self) -> bool {
        self.is_one() || self.status.is_some() || self.saga_id.is_some()
    }

    pub(super) fn is_one(&self) -> bool {
        self.message_id.is_some()
    }

    pub(super) fn limit(&self) -> Option<i64> {
        self.limit
    }

    pub(super) fn filter(self) -> look::Kept {
        look::Kept {
            message_id: self.message_id,
            consumer: self.consumer,
            statuses: self.status.map(|status| status.name().to_owned()).into_iter().collect(),
            message_type: self.message_type,
            error_code: self.error_code,
            correlation_id: self.correlation_id,
            key: self.saga_id.map(|id| id.to_string()),
            older_than: self.older_than.map(|seconds| Duration::from_secs(seconds.into())),
            after: self.after,
        }
    }
}

impl WhichSent {
    /// What has to be named for an act on what waits; times are those of what was published.
    pub(super) const NEEDED_OF_WAITING: &'static str = "a messageId, a sagaId or putOff, and no since or until,";
    /// What has to be named for a replay.
    pub(super) const NEEDED_OF_PUBLISHED: &'static str = "a messageId, a sagaId or since, and no putOff,";

    pub(super) fn names_waiting(&self) -> bool {
        let has_time = self.since.is_some() || self.until.is_some();
        (self.is_one() || self.put_off || self.saga_id.is_some()) && !has_time
    }

    pub(super) fn names_published(&self) -> bool {
        (self.is_one() || self.since.is_some() || self.saga_id.is_some()) && !self.put_off
    }

    pub(super) fn is_one(&self) -> bool {
        self.message_id.is_some()
    }

    pub(super) fn limit(&self) -> Option<i64> {
        self.limit
    }

    pub(super) fn filter(self) -> look::Sent {
        look::Sent {
            event_id: self.message_id,
            message_type: self.message_type,
            saga_id: self.saga_id,
            correlation_id: self.correlation_id,
            is_put_off: self.put_off,
            older_than: self.older_than.map(|seconds| Duration::from_secs(seconds.into())),
            since: self.since,
            until: self.until,
            after: self.after,
        }
    }
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Status::Waiting => "waiting",
            Status::Retrying => "retrying",
            Status::Parked => "parked",
            Status::Skipped => "skipped",
            Status::Discarded => "discarded",
            Status::Done => "done",
        }
    }
}
