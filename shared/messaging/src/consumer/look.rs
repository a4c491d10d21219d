//! The consumer's regular look at its inbox: kept messages that are due are claimed and run. The attempt is counted
//! and committed before the run, so a message that kills the process is found out.

use std::time::{Duration, Instant};

use super::handler::Handler;
use super::item::{Origin, Ticket, decode};
use super::pipeline::Pipeline;
use crate::error::Failure;
use crate::inbox::{Kept, claims};
use crate::session::within;

/// How often the inbox is looked at when nothing is known to become due earlier.
const LOOK: Duration = Duration::from_secs(1);

impl<H: Handler> Pipeline<H> {
    pub(super) async fn look(&mut self) -> Result<(), Failure> {
        self.next_look = Instant::now() + LOOK;
        let (queue, deadly_after) = (self.queue, self.settings.deadly_after);
        let due = within(claims::look(&mut self.database, queue, deadly_after, self.is_ordered)).await?;
        if due.released + due.deadly + due.ordinary + due.suspicious > 0 {
            self.plans.renew(&mut self.database).await?;
        }
        if due.released > 0 {
            within(claims::release(&mut self.database, queue)).await?;
            self.next_look = Instant::now();
        }
        if due.deadly > 0 {
            for id in within(claims::park_deadly(&mut self.database, queue, deadly_after)).await? {
                tracing::error!(messaging.message.id = id, status = "parked", error.type = "Technical",
                    error.code = "message.kills_the_process", retryable = false,
                    "{queue} parked a message that ended the process {deadly_after} times in a row");
                super::count(queue, "parked");
            }
        }
        let running = i64::try_from(self.running_claims()).unwrap_or(i64::MAX);
        let free = self.settings.retries_at_once - running;
        // While a suspicious one waits for its turn no other begins: else it would wait for ever.
        if due.ordinary > 0 && free > 0 && !self.runs_alone && due.suspicious == 0 {
            self.claim(free, false).await?;
            if due.ordinary > free {
                self.next_look = Instant::now() + Duration::from_millis(20);
            }
        }
        // Only when no other kept message runs: whoever dies with it would be suspected too.
        if due.suspicious > 0 && self.running_claims() == 0 {
            self.claim(1, true).await?;
            self.runs_alone = self.running_claims() > 0;
        } else if due.suspicious > 0 {
            self.next_look = Instant::now() + Duration::from_millis(20);
        }
        Ok(())
    }

    async fn claim(&mut self, limit: i64, is_suspicious: bool) -> Result<(), Failure> {
        let (busy, lease) = (self.slots.busy(), self.settings.lease);
        let claiming = claims::claim(&mut self.database, self.queue, limit, is_suspicious, &busy, lease);
        let claimed = within(claiming).await?;
        for message in &claimed {
            self.claims.insert(&message.raw.message_id, message.attempts);
        }
        crate::hold::point("consumer.claimed").await;
        for message in claimed {
            match decode(
                &*self.handler,
                self.queue,
                message.raw,
                Origin::Claimed(message.attempts),
                self.settings.later,
            ) {
                Ok(item) => {
                    let key = item.ticket.raw.key.clone();
                    if let Some(item) = self.slots.enter(&key, item) {
                        self.begin(item).await;
                    }
                }
                Err((ticket, failure)) => self.park_unreadable(*ticket, message.attempts, &failure).await?,
            }
        }
        Ok(())
    }

    /// A kept message that an operator asked to try again, and that still nobody can read.
    async fn park_unreadable(&mut self, ticket: Ticket, attempts: u32, failure: &Failure) -> Result<(), Failure> {
        let kept = Kept { raw: &ticket.raw, status: "parked", attempts, wait: Duration::ZERO, failure: Some(failure) };
        within(claims::keep_claimed(&mut self.database, self.queue, &kept)).await?;
        self.forget_claim(&ticket);
        Ok(())
    }

    pub(super) fn forget_claim(&mut self, ticket: &Ticket) {
        if matches!(ticket.origin, Origin::Claimed(_)) {
            self.claims.remove(&ticket.raw.message_id);
            self.runs_alone = false;
            // There may be more, or somebody who waited for this one.
            self.next_look = self.next_look.min(Instant::now() + Duration::from_millis(5));
        }
    }

    fn running_claims(&self) -> usize {
        self.claims.len()
    }
}
