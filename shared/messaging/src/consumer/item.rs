//! A message on its way through the pipeline.

use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::handler::{Attempt, Delivery, Handler, Ready};
use super::raw::Raw;
use crate::envelope::Decode as _;
use crate::error::Failure;
use crate::trace::Later;

/// Where a message came from, and hence how it is settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// From the broker, with its delivery tag.
    Fresh(u64),
    /// From the inbox, where this attempt is counted already.
    Claimed(u32),
}

/// A message as it came, and where from.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) raw: Raw,
    pub(super) origin: Origin,
}

/// A message that runs.
#[derive(Debug)]
pub(super) struct Item<M> {
    pub(super) delivery: Delivery<M>,
    pub(super) ticket: Ticket,
}

/// A message that is ready to be applied.
pub(super) type Prepared<H> = (Ready<<H as Handler>::Message, <H as Handler>::Prepared>, Ticket);

/// A message and how its preparation ended.
pub(super) type Tried<H> = (Item<<H as Handler>::Message>, Result<<H as Handler>::Prepared, Failure>);

/// Messages that are applied in one transaction, sorted by message id.
pub(super) struct Batch<M, P> {
    pub(super) ready: Vec<Ready<M, P>>,
    pub(super) tickets: Vec<Ticket>,
}

impl<M, P> Batch<M, P> {
    pub(super) fn of(mut items: Vec<(Ready<M, P>, Ticket)>) -> Batch<M, P> {
        items.sort_by(|(_, a), (_, b)| a.raw.message_id.cmp(&b.raw.message_id));
        let (ready, tickets) = items.into_iter().unzip();
        Batch { ready, tickets }
    }

    /// Takes out every message for which `keep` says no.
    pub(super) fn split_off(&mut self, mut keep: impl FnMut(&Ticket) -> bool) -> Batch<M, P> {
        let all = std::mem::take(&mut self.ready).into_iter().zip(std::mem::take(&mut self.tickets));
        let (kept, out): (Vec<_>, Vec<_>) = all.partition(|(_, ticket)| keep(ticket));
        (self.ready, self.tickets) = kept.into_iter().unzip();
        Batch::of(out)
    }

    /// Puts the messages of another batch back in.
    pub(super) fn merge(&mut self, other: Batch<M, P>) {
        let own = std::mem::take(&mut self.ready).into_iter().zip(std::mem::take(&mut self.tickets));
        *self = Batch::of(own.chain(other.ready.into_iter().zip(other.tickets)).collect());
    }

    /// What came from the broker just now.
    pub(super) fn fresh(&self) -> impl Iterator<Item = &Raw> {
        self.tickets.iter().filter(|ticket| matches!(ticket.origin, Origin::Fresh(_))).map(|ticket| &ticket.raw)
    }

    pub(super) fn into_singles(self) -> impl Iterator<Item = Batch<M, P>> {
        self.ready.into_iter().zip(self.tickets).map(|item| Batch::of(vec![item]))
    }
}

/// Reads a message and opens the span of its processing, in the trace that it came in.
pub(super) fn decode<H: Handler>(
    handler: &H,
    queue: &'static str,
    mut raw: Raw,
    origin: Origin,
    later: Later,
) -> Result<Item<H::Message>, (Box<Ticket>, Failure)> {
    let (number, later) = match origin {
        Origin::Fresh(_) => (1, Later::Continue),
        Origin::Claimed(attempts) => (attempts, if attempts > 1 { later } else { Later::Continue }),
    };
    let decoded = raw.read().and_then(|envelope| Ok((H::Message::decode(&envelope)?, envelope)));
    let (message, envelope) = match decoded {
        Ok(decoded) => decoded,
        Err(failure) => {
            tell_unreadable(queue, &raw, number, later, &failure);
            return Err((Box::new(Ticket { raw, origin }), failure));
        }
    };
    let attempt = Attempt { number, is_last: handler.retry_policy(&message).is_last(number) };
    let span = open_span(queue, &raw, &envelope.correlation_id, number, later);
    if let Some(saga_id) = envelope.saga_id {
        span.record("saga.id", tracing::field::display(saga_id));
    }
    if let Some(key) = &envelope.idempotency_key {
        span.record("idempotency.key", key.as_str());
    }
    let delivery = Delivery { message, sequence: raw.sequence(), envelope, attempt, span };
    Ok(Item { delivery, ticket: Ticket { raw, origin } })
}

/// What nobody can read is parked, and shows in the trace that its headers name all the same.
fn tell_unreadable(queue: &'static str, raw: &Raw, attempt: u32, later: Later, failure: &Failure) {
    let span = open_span(queue, raw, raw.correlation_id.as_deref().unwrap_or_default(), attempt, later);
    span.record("otel.status_code", "ERROR");
    span.record("otel.status_description", failure.code());
    span.record("error.type", "Technical");
    span.record("outcome", "parked");
    span.add_event("parked", Vec::new());
}

fn open_span(queue: &'static str, raw: &Raw, correlation_id: &str, attempt: u32, later: Later) -> Span {
    let span = tracing::info_span!(
        parent: None,
        "process",
        otel.name = format!("process {queue}"),
        otel.kind = "consumer",
        otel.status_code = tracing::field::Empty,
        otel.status_description = tracing::field::Empty,
        error.type = tracing::field::Empty,
        messaging.system = "rabbitmq",
        messaging.operation.type = "process",
        messaging.operation.name = "process",
        messaging.destination.name = queue,
        messaging.rabbitmq.destination.routing_key = raw.routing_key,
        messaging.message.id = raw.message_id,
        messaging.message.type = raw.message_type,
        messaging.message.conversation_id = correlation_id,
        correlation.id = correlation_id,
        saga.id = tracing::field::Empty,
        idempotency.key = tracing::field::Empty,
        step.name = tracing::field::Empty,
        attempt = i64::from(attempt),
        outcome = tracing::field::Empty,
    );
    later.place(&span, &raw.trace());
    span
}
