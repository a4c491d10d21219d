//! What happens to a message when it arrives: parked if nobody can read it, dropped if it is known, set aside if its
//! key is held or if it may be what killed the last process, else begun.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use lapin::message::Delivery as AmqpDelivery;

use super::count;
use super::handler::Handler;
use super::item::{Origin, Ticket, decode};
use super::pipeline::Pipeline;
use super::raw::Raw;
use crate::error::Failure;
use crate::hold;
use crate::inbox::{self, Kept};
use crate::session::within;

/// A message that is kept in the inbox instead of being run.
pub(super) struct Aside {
    pub(super) ticket: Ticket,
    pub(super) status: &'static str,
    pub(super) failure: Option<Failure>,
}

impl<H: Handler> Pipeline<H> {
    pub(super) async fn take_in(&mut self, deliveries: Vec<Result<AmqpDelivery, lapin::Error>>) -> Result<(), Failure> {
        hold::point("consumer.delivered").await;
        self.plans.renew(&mut self.database).await?;
        let mut arrived = Vec::with_capacity(deliveries.len());
        for delivery in deliveries {
            let delivery = delivery?;
            self.acks.arrived(delivery.delivery_tag);
            let (tag, is_redelivered) = (delivery.delivery_tag, delivery.redelivered);
            let decoded =
                decode(&*self.handler, self.queue, Raw::of(delivery), Origin::Fresh(tag), self.settings.later);
            arrived.push((decoded, is_redelivered));
        }
        let ids: Vec<String> = arrived.iter().map(|(decoded, _)| raw_of(decoded).message_id.clone()).collect();
        let mut known = HashSet::new();
        if H::PREPARES || self.is_ordered || arrived.iter().any(|(decoded, again)| *again || decoded.is_err()) {
            known = within(inbox::list_known(&mut self.database, self.queue, &ids)).await?;
        }
        let mut held = HashSet::new();
        if self.is_ordered {
            let keys: Vec<String> = arrived.iter().map(|(decoded, _)| raw_of(decoded).key.clone()).collect();
            held = within(inbox::list_held_keys(&mut self.database, self.queue, &keys)).await?;
        }
        let (mut begun, mut aside, mut repeats) = (Vec::new(), Vec::new(), Vec::new());
        for (decoded, is_redelivered) in arrived {
            if known.contains(&raw_of(&decoded).message_id) {
                if let Ok(item) = &decoded {
                    item.delivery.span().record("outcome", "duplicate");
                    item.delivery.mark("deduplicated");
                }
                self.drop_known(&decoded);
                repeats.push(raw_of(&decoded).message_id.clone());
                continue;
            }
            let item = match decoded {
                Ok(item) => item,
                Err((ticket, failure)) => {
                    if self.is_ordered {
                        held.insert(ticket.raw.key.clone());
                    }
                    aside.push(Aside { ticket: *ticket, status: "parked", failure: Some(failure) });
                    continue;
                }
            };
            let key = item.ticket.raw.key.clone();
            if held.contains(&key) {
                item.delivery.span().record("outcome", "held");
                item.delivery.mark("held");
                aside.push(Aside { ticket: item.ticket, status: "waiting", failure: None });
            } else if is_redelivered {
                // It may be what ended the last process: its next run is counted before it begins.
                if self.is_ordered {
                    held.insert(key);
                }
                item.delivery.span().record("outcome", "redelivered");
                aside.push(Aside { ticket: item.ticket, status: "retrying", failure: None });
            } else {
                begun.push(item);
            }
        }
        within(inbox::count_repeats(&mut self.database, self.queue, &repeats)).await?;
        self.set_aside(aside).await?;
        for item in begun {
            let key = item.ticket.raw.key.clone();
            if let Some(item) = self.slots.enter(&key, item) {
                self.begin(item).await;
            }
        }
        Ok(())
    }

    /// Keeps fresh messages in the inbox, in one statement, and settles them with the broker.
    pub(super) async fn set_aside(&mut self, aside: Vec<Aside>) -> Result<(), Failure> {
        if aside.is_empty() {
            return Ok(());
        }
        let kept: Vec<Kept<'_>> = aside
            .iter()
            .map(|aside| Kept {
                raw: &aside.ticket.raw,
                status: aside.status,
                attempts: 0,
                wait: Duration::ZERO,
                failure: aside.failure.as_ref(),
            })
            .collect();
        within(inbox::keep(&mut self.database, self.queue, &kept)).await?;
        // A crash here delivers them again; they are known by now.
        hold::point("consumer.set_aside").await;
        for Aside { ticket, status, failure } in &aside {
            count(self.queue, status);
            if let Some(failure) = failure {
                tracing::error!(
                    messaging.message.id = ticket.raw.message_id, correlation.id = ticket.raw.correlation_id,
                    error.type = "Technical", error.code = failure.code(), retryable = false, status = "parked",
                    "{} parked a message that nobody here can read: {}", self.queue, failure.chain());
            }
            if let Origin::Fresh(tag) = ticket.origin {
                self.acks.settle(tag);
            }
        }
        self.next_look = Instant::now();
        Ok(())
    }

    fn drop_known(&mut self, decoded: &Decoded<H::Message>) {
        let ticket = ticket_of(decoded);
        count(self.queue, "duplicate");
        tracing::info!(
            messaging.message.id = ticket.raw.message_id,
            correlation.id = ticket.raw.correlation_id,
            status = "duplicate",
            "{} has seen this message before",
            self.queue
        );
        if let Origin::Fresh(tag) = ticket.origin {
            self.acks.settle(tag);
        }
    }
}

type Decoded<M> = Result<super::item::Item<M>, (Box<Ticket>, Failure)>;

fn raw_of<M>(decoded: &Decoded<M>) -> &Raw {
    &ticket_of(decoded).raw
}

fn ticket_of<M>(decoded: &Decoded<M>) -> &Ticket {
    match decoded {
        Ok(item) => &item.ticket,
        Err((ticket, _)) => ticket,
    }
}
