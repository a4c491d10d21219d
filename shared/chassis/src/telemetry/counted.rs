//! What becomes of spans: how many ended, how many the collector took, how many it did not. The rest was dropped,
//! because more came than could be sent.

use std::time::Duration;

use metrics::{counter, describe_counter};
use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter, SpanProcessor};

const ENDED: &str = "telemetry_spans_ended_total";
const EXPORTED: &str = "telemetry_spans_exported_total";
const FAILED: &str = "telemetry_spans_failed_total";

/// Names the figures for a reader who meets them for the first time.
pub(crate) fn describe() {
    describe_counter!(ENDED, "Spans that have ended and are to be sent.");
    describe_counter!(EXPORTED, "Spans that the collector has taken.");
    describe_counter!(FAILED, "Spans that the collector did not take; they are gone.");
    for name in [ENDED, EXPORTED, FAILED] {
        counter!(name).increment(0);
    }
}

/// Counts what ends on its way to a processor.
#[derive(Debug)]
pub(super) struct CountEnded<P>(pub(super) P);

impl<P: SpanProcessor> SpanProcessor for CountEnded<P> {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.0.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() {
            counter!(ENDED).increment(1);
        }
        self.0.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

/// Counts what an exporter sends, and what it could not.
#[derive(Debug)]
pub(super) struct CountExported<E>(pub(super) E);

impl<E: SpanExporter> SpanExporter for CountExported<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len() as u64;
        let exported = self.0.export(batch).await;
        counter!(if exported.is_ok() { EXPORTED } else { FAILED }).increment(count);
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}
