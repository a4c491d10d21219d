//! The spans of publishing: one for the batch, a root that links to what it carries, and one for each message, a
//! child of the span that made the message. What travels in the message's headers is the latter.

use opentelemetry::trace::{Link, SpanContext, SpanKind, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue, global};

use super::rows::Row;
use crate::trace::{MOST_LINKS, TraceContext};

/// One batch on its way. Ends when it is dropped.
pub(super) struct BatchSpan(Context);

/// One message on its way. Ends when it is dropped.
pub(super) struct PublishSpan {
    context: Context,
    headers: TraceContext,
}

impl BatchSpan {
    pub(super) fn start(rows: &[Row]) -> BatchSpan {
        let links = rows
            .iter()
            .take(MOST_LINKS)
            .map(|row| Link::with_context(row.headers.trace.restore().span().span_context().clone()))
            .filter(|link| link.span_context.is_valid())
            .collect();
        let tracer = global::tracer("messaging");
        let span = tracer
            .span_builder("relay batch")
            .with_kind(SpanKind::Internal)
            .with_links(links)
            .with_attributes([
                KeyValue::new("messaging.system", "rabbitmq"),
                KeyValue::new("messaging.batch.message_count", i64::try_from(rows.len()).unwrap_or(i64::MAX)),
            ])
            .start_with_context(&tracer, &Context::new());
        BatchSpan(Context::new().with_span(span))
    }

    /// The span of one of its messages.
    pub(super) fn publish(&self, row: &Row) -> PublishSpan {
        let parent = row.headers.trace.restore();
        let tracer = global::tracer("messaging");
        let mut attributes = vec![
            KeyValue::new("messaging.system", "rabbitmq"),
            KeyValue::new("messaging.operation.type", "send"),
            KeyValue::new("messaging.operation.name", "publish"),
            KeyValue::new("messaging.destination.name", row.exchange.clone()),
            KeyValue::new("messaging.rabbitmq.destination.routing_key", row.routing_key.clone()),
            KeyValue::new("messaging.message.id", row.event_id.to_string()),
            KeyValue::new("messaging.message.type", row.event_type.clone()),
            KeyValue::new("messaging.message.conversation_id", row.correlation_id.clone()),
            KeyValue::new("correlation.id", row.correlation_id.clone()),
            KeyValue::new("attempt", i64::from(row.attempts) + 1),
        ];
        attributes.extend(row.saga_id.map(|saga_id| KeyValue::new("saga.id", saga_id.to_string())));
        let batch: SpanContext = self.0.span().span_context().clone();
        let links = if batch.is_valid() { vec![Link::with_context(batch)] } else { Vec::new() };
        let span = tracer
            .span_builder(format!("publish {}", row.exchange))
            .with_kind(SpanKind::Producer)
            .with_links(links)
            .with_attributes(attributes)
            .start_with_context(&tracer, &parent);
        let context = parent.with_span(span);
        // Without a tracer in the process the message still carries the trace in which it was made.
        let own = TraceContext::of(&context);
        let headers = if own.traceparent.is_some() { own } else { row.headers.trace.clone() };
        PublishSpan { context, headers }
    }
}

impl Drop for BatchSpan {
    fn drop(&mut self) {
        self.0.span().end();
    }
}

impl PublishSpan {
    /// What the consumer continues.
    pub(super) fn context(&self) -> &TraceContext {
        &self.headers
    }

    /// The message did not get there.
    pub(super) fn fail(&mut self, reason: &str) {
        self.context.span().set_status(Status::error(reason.to_owned()));
    }
}

impl Drop for PublishSpan {
    fn drop(&mut self) {
        self.context.span().end();
    }
}
