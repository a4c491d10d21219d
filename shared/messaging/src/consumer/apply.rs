//! The transaction of a batch: the inbox and the handler's effects, together or not at all. A batch that fails is
//! rolled back and run again message by message, so that only the culprit is set aside.

use std::collections::{HashSet, VecDeque};
use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use sqlx::{Connection as _, PgConnection};

use super::count;
use super::handler::Handler;
use super::item::{Batch, Origin, Prepared};
use super::pipeline::{Pipeline, panicked};
use super::span::TransactionSpan;
use crate::error::{Class, Failure};
use crate::hold;
use crate::inbox::{self, claims};
use crate::session::within;

/// So often two transactions may meet before it counts as a failure of the message.
const CONFLICTS: u32 = 10;

impl<H: Handler> Pipeline<H> {
    pub(super) async fn apply(&mut self, items: Vec<Prepared<H>>) -> Result<(), Failure> {
        let mut batches = VecDeque::from([(Batch::of(items), 0)]);
        while let Some((mut batch, conflicts)) = batches.pop_front() {
            let failure = match self.attempt(&mut batch).await {
                Ok(known) => {
                    self.poke.poke();
                    self.settle(batch, "done").await;
                    let repeats = known.fresh().map(|raw| raw.message_id.clone()).collect::<Vec<_>>();
                    within(inbox::count_repeats(&mut self.database, self.queue, &repeats)).await?;
                    self.settle(known, "duplicate").await;
                    continue;
                }
                Err(failure) => failure,
            };
            match failure.class() {
                Class::Unavailable => return Err(failure),
                Class::Conflict if conflicts < CONFLICTS => batches.push_front((batch, conflicts + 1)),
                Class::Conflict | Class::Transient | Class::Permanent if batch.tickets.len() > 1 => {
                    batches.extend(batch.into_singles().map(|single| (single, 0)));
                }
                Class::Conflict | Class::Transient | Class::Permanent => {
                    for (ready, ticket) in batch.ready.into_iter().zip(batch.tickets) {
                        self.fail(ready.delivery, ticket, failure.share()).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// One transaction. Messages that turn out to be known are taken out of the batch and returned.
    async fn attempt(
        &mut self,
        batch: &mut Batch<H::Message, H::Prepared>,
    ) -> Result<Batch<H::Message, H::Prepared>, Failure> {
        let mut known = Batch::of(Vec::new());
        let span = TransactionSpan::start(self.queue, &batch.ready);
        let running = transaction(&mut self.database, self.queue, &*self.handler, batch, &mut known);
        let running = AssertUnwindSafe(running).catch_unwind();
        let failure = match tokio::time::timeout(self.settings.apply_deadline, running).await {
            Ok(Ok(Ok(()))) => return Ok(known),
            Ok(Ok(Err(failure))) => failure,
            // Nobody knows in which state these leave the session.
            Ok(Err(panic)) => self.replace_session(panicked(panic.as_ref())).await?,
            Err(_) => {
                let context = "apply took longer than its deadline and was rolled back";
                self.replace_session(Failure::transient("handler.deadline", context)).await?
            }
        };
        span.fail(failure.code());
        batch.merge(known);
        Err(failure)
    }

    /// Drops the session, which rolls back, and opens another. `failure` stands if the database is there.
    async fn replace_session(&mut self, failure: Failure) -> Result<Failure, Failure> {
        self.database = self.session.open().await?;
        Ok(failure)
    }

    async fn settle(&mut self, batch: Batch<H::Message, H::Prepared>, outcome: &'static str) {
        for (ready, ticket) in batch.ready.into_iter().zip(batch.tickets) {
            count(self.queue, outcome);
            ready.delivery.span().record("outcome", outcome);
            if outcome == "duplicate" {
                ready.delivery.mark("deduplicated");
                tracing::info!(parent: ready.delivery.span(), status = outcome, "{} has seen this message before", self.queue);
            }
            self.forget_claim(&ticket);
            drop(ready);
            self.leave(&ticket).await;
        }
    }
}

async fn transaction<H: Handler>(
    database: &mut PgConnection,
    queue: &str,
    handler: &H,
    batch: &mut Batch<H::Message, H::Prepared>,
    known: &mut Batch<H::Message, H::Prepared>,
) -> Result<(), Failure> {
    let mut transaction = database.begin().await?;
    let fresh: Vec<_> = batch.fresh().collect();
    let claims: Vec<_> = batch
        .tickets
        .iter()
        .filter_map(|t| match t.origin {
            Origin::Claimed(attempts) => Some((t.raw.message_id.clone(), attempts)),
            Origin::Fresh(_) => None,
        })
        .collect();
    let mut ours = HashSet::new();
    if !fresh.is_empty() {
        ours.extend(inbox::remember(&mut transaction, queue, &fresh).await?);
    }
    if !claims.is_empty() {
        ours.extend(claims::finish(&mut transaction, queue, &claims).await?);
    }
    // Removed, so that of two messages with the same id in one batch only one has an effect.
    *known = batch.split_off(|ticket| ours.remove(&ticket.raw.message_id));
    hold::point("consumer.remembered").await;
    if !batch.ready.is_empty() {
        handler.apply(&mut transaction, &batch.ready).await?;
    }
    hold::point("consumer.before_commit").await;
    // A crash before this line leaves nothing and the message comes again; after it, the message is known.
    hold::during("consumer.committing", transaction.commit()).await?;
    hold::point("consumer.committed").await;
    Ok(())
}
