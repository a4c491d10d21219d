//! Traces and logs, each with a filter of its own: quiet logs do not make traces disappear. Without an exporter spans
//! are made all the same, so that logs and answers carry trace ids.

mod counted;

use messaging::Failure;
use opentelemetry::propagation::TextMapCompositePropagator;
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry::{KeyValue, global};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};
use opentelemetry_sdk::trace::{BatchSpanProcessor, Sampler, SdkTracerProvider};
use tracing::Span;
use tracing::level_filters::LevelFilter;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::filter::{EnvFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer as _, Registry};

use self::counted::{CountEnded, CountExported};
use crate::logs::Logs;
use crate::settings::{Common, Identity};
use crate::shutdown;

/// Their spans and events are about themselves, not about an order; the exporter's own would feed themselves.
const NOT_TRACED: &[&str] = &["opentelemetry", "hyper", "reqwest", "h2", "lapin", "sqlx", "tower", "amq_protocol"];

/// The trace id of the current span, 32 hexadecimal digits, where there is a trace.
pub fn trace_id() -> Option<String> {
    let context = Span::current().context();
    let span = context.span();
    span.span_context().is_valid().then(|| span.span_context().trace_id().to_string())
}

pub(crate) use self::counted::describe;

/// Keeps the tracer; the process's last spans leave when it is stopped.
pub(crate) struct Telemetry {
    provider: SdkTracerProvider,
}

impl Telemetry {
    /// Sets up the process's tracer, propagators and log. Once, and outside of a runtime.
    pub(crate) fn start(identity: Identity, settings: &Common) -> Result<Telemetry, Failure> {
        let provider = provider(identity, settings.otlp_endpoint())?;
        global::set_text_map_propagator(TextMapCompositePropagator::new(vec![
            Box::new(TraceContextPropagator::new()),
            Box::new(BaggagePropagator::new()),
        ]));
        global::set_tracer_provider(provider.clone());

        // The AMQP client writes down whole messages that come back, with what customers have told us.
        let log_filter = EnvFilter::try_new(format!("{},lapin::returned_messages=error", settings.rust_log))
            .map_err(|error| Failure::permanent("settings.rust_log", "RUST_LOG cannot be read").caused_by(error))?;
        let trace_filter = NOT_TRACED.iter().fold(Targets::new().with_default(LevelFilter::INFO), |filter, name| {
            filter.with_target(*name, LevelFilter::OFF)
        });
        // Where in the code and on which thread is noise on a span of a business; so is how long it sat idle.
        let traces = tracing_opentelemetry::layer()
            .with_tracer(provider.tracer(identity.name))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false);
        let subscriber = Registry::default()
            .with(traces.with_filter(trace_filter))
            .with(Logs::new(identity.name, settings.saga_log).with_filter(log_filter));
        tracing::subscriber::set_global_default(subscriber)
            .map_err(|error| Failure::permanent("process.telemetry", "telemetry started twice").caused_by(error))?;
        log_panics();
        Ok(Telemetry { provider })
    }

    /// Sends the last spans; a collector that does not answer cannot hold the process.
    pub(crate) fn stop(self) {
        if let Err(error) = self.provider.shutdown_with_timeout(shutdown::TRACER) {
            tracing::warn!("the last spans may be lost: {error}");
        }
    }
}

fn provider(identity: Identity, endpoint: Option<&str>) -> Result<SdkTracerProvider, Failure> {
    let resource = Resource::builder()
        .with_service_name(identity.name)
        .with_attribute(KeyValue::new("service.instance.id", uuid::Uuid::now_v7().to_string()))
        .build();
    let provider = SdkTracerProvider::builder()
        .with_resource(resource)
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)));
    let Some(endpoint) = endpoint else {
        return Ok(provider.build());
    };
    // The blocking client: the batch thread has no reactor, and an async client would panic there.
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{endpoint}/v1/traces"))
        .build()
        .map_err(|error| {
            Failure::permanent("settings.otlp", "OTEL_EXPORTER_OTLP_ENDPOINT cannot be used").caused_by(error)
        })?;
    let batches = BatchSpanProcessor::builder(CountExported(exporter)).build();
    Ok(provider.with_span_processor(CountEnded(batches)).build())
}

/// A panic is one line of the log, with the ids of what it happened to.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let text = panic.payload_as_str().unwrap_or("without a word");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(panic.place = place, error.type = "Technical", "panicked: {text}");
    }));
}
