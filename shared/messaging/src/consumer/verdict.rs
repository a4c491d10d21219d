//! What becomes of a message whose run failed: it is kept in the inbox, to be tried again or for a person.

use std::time::{Duration, Instant};

use super::count;
use super::handler::{Delivery, Handler};
use super::intake::Aside;
use super::item::{Item, Origin, Ticket};
use super::pipeline::Pipeline;
use crate::error::{Class, Failure};
use crate::hold;
use crate::inbox::{self, Kept, claims};
use crate::session::within;

/// `lock_not_available`, by `lock_timeout`.
const LOCK_TIMEOUT: &str = "database.55P03";

impl<H: Handler> Pipeline<H> {
    /// Writes the verdict in a small transaction of its own, then settles the message with the broker.
    pub(super) async fn fail(
        &mut self,
        delivery: Delivery<H::Message>,
        ticket: Ticket,
        failure: Failure,
    ) -> Result<(), Failure> {
        let policy = self.handler.retry_policy(&delivery.message);
        let attempt = delivery.attempt.number;
        // A lock that somebody holds in our own database is no fault of the message, and says nothing about the next
        // attempt.
        let is_ours = failure.code() == LOCK_TIMEOUT;
        let again = failure.class() != Class::Permanent && (is_ours || !policy.is_last(attempt));
        let (status, wait) = if again {
            ("retrying", policy.backoff.delay(attempt).max(failure.wait().unwrap_or_default()))
        } else {
            ("parked", Duration::ZERO)
        };
        tell(self.queue, &delivery, &failure, status, wait);
        let kept = Kept { raw: &ticket.raw, status, attempts: attempt, wait, failure: Some(&failure) };
        match ticket.origin {
            Origin::Fresh(_) => within(inbox::keep(&mut self.database, self.queue, &[kept])).await?,
            Origin::Claimed(_) => within(claims::keep_claimed(&mut self.database, self.queue, &kept)).await?,
        }
        // A crash here delivers a fresh message again; it is known by now, and lives on once.
        hold::point("consumer.kept").await;
        count(self.queue, status);
        self.forget_claim(&ticket);
        drop(delivery);
        if again {
            self.next_look = self.next_look.min(Instant::now() + wait);
        }
        if self.is_ordered {
            let line = self.slots.disperse(&ticket.raw.key);
            let aside = |item: Item<H::Message>| {
                item.delivery.span().record("outcome", "held");
                item.delivery.mark("held");
                Aside { ticket: item.ticket, status: "waiting", failure: None }
            };
            self.set_aside(line.into_iter().map(aside).collect()).await?;
        }
        self.leave(&ticket).await;
        Ok(())
    }
}

fn tell<M>(queue: &'static str, delivery: &Delivery<M>, failure: &Failure, status: &'static str, wait: Duration) {
    let (span, reason) = (delivery.span(), failure.chain());
    span.record("otel.status_code", "ERROR");
    span.record("otel.status_description", failure.code());
    span.record("error.type", "Technical");
    span.record("outcome", status);
    delivery.mark(if status == "retrying" { "retry_scheduled" } else { "parked" });
    let event_type = &delivery.envelope.event_type;
    if status == "retrying" {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(parent: span, error.code = failure.code(), retryable = true, status, wait_ms,
            "{queue} will try {event_type} again: {reason}");
    } else {
        tracing::error!(parent: span, error.code = failure.code(), retryable = false, status,
            "{queue} parked {event_type}: {reason}");
    }
}
