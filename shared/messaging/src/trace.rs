//! Trace context on its way through rows and headers: captured where a message is made, stored beside it, restored
//! where it is published and consumed. What strangers send is bounded and never an error.

use std::collections::HashMap;

use opentelemetry::propagation::{Extractor, Injector};
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry::{Context, global};
use serde::{Deserialize, Serialize};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// What OpenTelemetry's SDK keeps of a span's links by default.
pub(crate) const MOST_LINKS: usize = 128;
/// Longest `tracestate` that is passed on, in bytes: what W3C Trace Context §3.3.1.5 asks to propagate at least.
const LONGEST_TRACESTATE: usize = 512;
/// Longest `baggage` that is passed on, in bytes. W3C Baggage allows 8192; a row should not carry that much.
const LONGEST_BAGGAGE: usize = 1024;

/// The three W3C headers, as text. Empty where there is no trace.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TraceContext {
    /// Trace, span and flags.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub traceparent: Option<String>,
    /// What vendors add.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tracestate: Option<String>,
    /// What the caller wants every later hop to know.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub baggage: Option<String>,
}

impl TraceContext {
    /// The context of the current `tracing` span.
    pub fn current() -> TraceContext {
        TraceContext::of_span(&Span::current())
    }

    /// The context of a `tracing` span.
    pub fn of_span(span: &Span) -> TraceContext {
        TraceContext::of(&span.context())
    }

    /// The context as headers. Empty and overlong values are left out.
    pub fn of(context: &Context) -> TraceContext {
        let mut headers = Headers::default();
        global::get_text_map_propagator(|propagator| propagator.inject_context(context, &mut headers));
        headers.into_context()
    }

    /// From headers that anybody may have sent. Blank and overlong values are left out.
    pub fn from_headers<'a>(headers: impl Iterator<Item = (&'a str, &'a str)>) -> TraceContext {
        let mut known = Headers::default();
        for (name, value) in headers {
            known.set(name, value.to_owned());
        }
        known.into_context()
    }

    /// As a parent for spans: the root context where there is no trace or none that can be read.
    pub fn restore(&self) -> Context {
        let mut headers = Headers::default();
        for (name, value) in self.entries() {
            headers.0.insert(name.to_owned(), value.to_owned());
        }
        global::get_text_map_propagator(|propagator| propagator.extract_with_context(&Context::new(), &headers))
    }

    /// The trace id, 32 hexadecimal digits, where there is a trace.
    pub fn trace_id(&self) -> Option<String> {
        let context = self.restore();
        let span = context.span();
        span.span_context().is_valid().then(|| span.span_context().trace_id().to_string())
    }

    /// Name and value of each header that is there.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [("traceparent", &self.traceparent), ("tracestate", &self.tracestate), ("baggage", &self.baggage)]
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }
}

/// In which trace a later attempt is shown: a retry of a message, a deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Later {
    /// In that of its origin.
    #[default]
    Continue,
    /// In one of its own, which links to that of its origin.
    Link,
}

impl Later {
    /// Puts a span that has no parent yet where it belongs. Before anybody enters it.
    pub fn place(self, span: &Span, origin: &TraceContext) {
        match self {
            // A context that nobody can read is no parent: the span gets a trace of its own.
            Later::Continue => drop(span.set_parent(origin.restore())),
            Later::Link => span.add_link(origin.restore().span().span_context().clone()),
        }
    }
}

#[derive(Default)]
struct Headers(HashMap<String, String>);

impl Headers {
    fn into_context(mut self) -> TraceContext {
        let mut take = |name: &str, longest: usize| {
            self.0.remove(name).filter(|value| !value.trim().is_empty() && value.len() <= longest && value.is_ascii())
        };
        TraceContext {
            // 55 characters in version 00; later versions may be longer, at most by what a row can spare.
            traceparent: take("traceparent", 128),
            tracestate: take("tracestate", LONGEST_TRACESTATE),
            baggage: take("baggage", LONGEST_BAGGAGE),
        }
    }
}

impl Injector for Headers {
    fn set(&mut self, key: &str, value: String) {
        self.0.insert(key.to_ascii_lowercase(), value);
    }
}

impl Extractor for Headers {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_trace_headers_are_left_out_and_never_fail() {
        let long = "x".repeat(10_000);
        for value in ["", "   ", "00-zz-zz-01", "\u{1F600}", long.as_str()] {
            let context = TraceContext::from_headers(
                [("traceparent", value), ("tracestate", value), ("Baggage", value)].into_iter(),
            );
            assert!(context.trace_id().is_none(), "{value:.20}");
            assert!(context.entries().all(|(_, kept)| kept.len() <= LONGEST_BAGGAGE));
        }
    }
}
