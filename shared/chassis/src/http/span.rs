//! The server span of a request and what is recorded about its answer. Names follow OpenTelemetry's conventions for
//! HTTP; every value that a stranger chooses is bounded.

use std::time::Duration;

use axum::extract::Request;
use axum::http::Method;
use axum::response::Response;
use messaging::TraceContext;
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, TraceContextExt as _, TraceFlags};
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::problem::ProblemCode;
use crate::settings::Sampling;

const LONGEST_PATH: usize = 200;

/// A method that HTTP knows; any other word is one name in metrics and spans.
pub(super) fn known_method(method: &Method) -> &'static str {
    const KNOWN: [&str; 9] = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "CONNECT", "TRACE"];
    KNOWN.into_iter().find(|known| *known == method.as_str()).unwrap_or("_OTHER")
}

/// A span that continues the caller's trace. It must have its parent before anybody enters it.
pub(super) fn of_request(request: &Request, method: &'static str, route: &str, sampling: Sampling) -> Span {
    let path: String = request.uri().path().chars().take(LONGEST_PATH).collect();
    let span = tracing::info_span!(
        parent: None,
        "request",
        otel.name = if route.is_empty() { method.to_owned() } else { format!("{method} {route}") },
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method,
        http.route = route,
        http.response.status_code = Empty,
        url.path = path,
        correlation.id = Empty,
        order.id = Empty,
        saga.id = Empty,
        idempotency.key = Empty,
        error.type = Empty,
        error.code = Empty,
    );
    let headers = request.headers().iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let parent = TraceContext::from_headers(headers).restore();
    let parent = if sampling == Sampling::Always { sampled(&parent) } else { parent };
    // Fails only for a span that is filtered out.
    drop(span.set_parent(parent));
    span
}

/// The same context, to be kept whatever its flag says: a saga that nobody can look at helps nobody.
fn sampled(context: &Context) -> Context {
    let span = context.span();
    let caller = span.span_context();
    if !caller.is_valid() || caller.is_sampled() {
        return context.clone();
    }
    let flags = caller.trace_flags() | TraceFlags::SAMPLED;
    let caller = SpanContext::new(caller.trace_id(), caller.span_id(), flags, true, caller.trace_state().clone());
    context.with_remote_span_context(caller)
}

/// Writes the answer on the span, into the metrics, and, where something may have changed, into the log.
pub(super) fn record_answer(response: &Response, method: &'static str, route: &str, took: Duration) {
    let (span, status) = (Span::current(), response.status());
    span.record("http.response.status_code", i64::from(status.as_u16()));
    if let Some(ProblemCode(code)) = response.extensions().get() {
        span.record("error.code", code.as_ref());
        span.record("error.type", if status.is_server_error() { "Technical" } else { "Business" });
    }
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    metrics::histogram!(
        "http_server_request_duration_seconds",
        "method" => method, "route" => route.to_owned(), "status" => status.as_str().to_owned()
    )
    .record(took.as_secs_f64());
    let (route, status, ms) = (if route.is_empty() { "no route" } else { route }, status.as_u16(), took.as_millis());
    if matches!(method, "GET" | "HEAD" | "OPTIONS") {
        tracing::debug!(http_status = status, "answered {method} {route} with {status} in {ms} ms");
    } else {
        tracing::info!(http_status = status, "answered {method} {route} with {status} in {ms} ms");
    }
}
