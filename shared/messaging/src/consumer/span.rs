//! The span of a transaction that several messages share: a root that links to the span of each, as the span of a
//! relay's batch does. A message that is applied alone needs none.

use opentelemetry::trace::{Link, SpanKind, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue, global};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::handler::Ready;
use crate::trace::MOST_LINKS;

/// One shared transaction. Ends when it is dropped.
pub(super) struct TransactionSpan(Option<Context>);

impl TransactionSpan {
    pub(super) fn start<M, P>(queue: &'static str, batch: &[Ready<M, P>]) -> TransactionSpan {
        if batch.len() < 2 {
            return TransactionSpan(None);
        }
        let spans = batch.iter().map(|ready| ready.delivery.span());
        let links = spans
            .clone()
            .take(MOST_LINKS)
            .map(|span| Link::with_context(span.context().span().span_context().clone()))
            .filter(|link| link.span_context.is_valid())
            .collect();
        let tracer = global::tracer("messaging");
        let shared = tracer
            .span_builder(format!("apply {queue}"))
            .with_kind(SpanKind::Internal)
            .with_links(links)
            .with_attributes([
                KeyValue::new("messaging.system", "rabbitmq"),
                KeyValue::new("messaging.destination.name", queue),
                KeyValue::new("messaging.batch.message_count", i64::try_from(batch.len()).unwrap_or(i64::MAX)),
            ])
            .start_with_context(&tracer, &Context::new());
        let shared = Context::new().with_span(shared);
        for span in spans {
            span.add_link(shared.span().span_context().clone());
        }
        TransactionSpan(Some(shared))
    }

    /// It was rolled back.
    pub(super) fn fail(&self, code: &str) {
        if let Some(shared) = &self.0 {
            shared.span().set_status(Status::error(code.to_owned()));
        }
    }
}

impl Drop for TransactionSpan {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.span().end();
        }
    }
}
