//! A receiver for spans, as any collector would take them (OTLP over HTTP with protobuf), that tests can ask.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Router, serve};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span as Wire;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as Outcome;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// One span, in plain words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// `service.name` of the resource.
    pub service: String,
    pub name: String,
    /// `internal`, `server`, `client`, `producer`, `consumer`.
    pub kind: &'static str,
    pub trace_id: String,
    pub span_id: String,
    /// Empty for a root.
    pub parent_id: String,
    pub attributes: BTreeMap<String, String>,
    /// Trace and span id of each.
    pub links: Vec<(String, String)>,
    /// The names of its events.
    pub events: Vec<String>,
    pub is_error: bool,
    pub status_message: String,
}

impl Span {
    pub fn attribute(&self, key: &str) -> Option<&str> {
        self.attributes.get(key).map(String::as_str)
    }
}

type Spans = Arc<Mutex<Vec<Span>>>;

/// How a receiver treats those who send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It takes what comes.
    Takes,
    /// It has no room: 503.
    Refuses,
    /// It takes the request and never says a word.
    Never,
}

/// The running receiver. Dropping it closes it.
pub struct Collector {
    address: SocketAddr,
    spans: Spans,
    _server: JoinSet<()>,
}

impl Collector {
    /// # Errors
    /// No port is free.
    pub async fn start() -> io::Result<Self> {
        Self::start_as(Answer::Takes).await
    }

    /// One that may be of no use.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start_as(answer: Answer) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let spans = Spans::default();
        let router = Router::new().route("/v1/traces", post(receive)).with_state((spans.clone(), answer));
        let mut server = JoinSet::new();
        server.spawn(async move {
            let _ = serve(listener, router).await;
        });
        Ok(Collector { address, spans, _server: server })
    }

    /// What `OTEL_EXPORTER_OTLP_ENDPOINT` takes.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All spans so far.
    pub fn spans(&self) -> Vec<Span> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The spans so far that have this attribute with this value.
    pub fn spans_with(&self, key: &str, value: &str) -> Vec<Span> {
        let mut spans = self.spans();
        spans.retain(|span| span.attribute(key) == Some(value));
        spans
    }

    /// The spans so far of one trace.
    pub fn trace(&self, trace_id: &str) -> Vec<Span> {
        let mut spans = self.spans();
        spans.retain(|span| span.trace_id == trace_id);
        spans
    }
}

async fn receive(State((spans, answer)): State<(Spans, Answer)>, body: Bytes) -> impl IntoResponse {
    let protobuf = [(header::CONTENT_TYPE, "application/x-protobuf")];
    match answer {
        Answer::Takes => {}
        Answer::Refuses => return (StatusCode::SERVICE_UNAVAILABLE, protobuf, Vec::new()),
        Answer::Never => std::future::pending().await,
    }
    let Ok(request) = ExportTraceServiceRequest::decode(body) else {
        return (StatusCode::BAD_REQUEST, protobuf, Vec::new());
    };
    let received = request.resource_spans.into_iter().flat_map(|resource| {
        let attributes = plain(resource.resource.map(|resource| resource.attributes).unwrap_or_default());
        let service = attributes.get("service.name").cloned().unwrap_or_default();
        let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
        spans.map(move |span| read(service.clone(), span))
    });
    spans.lock().unwrap_or_else(PoisonError::into_inner).extend(received);
    (StatusCode::OK, protobuf, ExportTraceServiceResponse::default().encode_to_vec())
}

fn read(service: String, span: Wire) -> Span {
    let status = span.status.clone().unwrap_or_default();
    Span {
        service,
        kind: match span.kind() {
            SpanKind::Unspecified | SpanKind::Internal => "internal",
            SpanKind::Server => "server",
            SpanKind::Client => "client",
            SpanKind::Producer => "producer",
            SpanKind::Consumer => "consumer",
        },
        trace_id: hex::encode(&span.trace_id),
        span_id: hex::encode(&span.span_id),
        parent_id: hex::encode(&span.parent_span_id),
        links: span.links.iter().map(|link| (hex::encode(&link.trace_id), hex::encode(&link.span_id))).collect(),
        events: span.events.into_iter().map(|event| event.name).collect(),
        is_error: status.code() == Outcome::Error,
        status_message: status.message,
        attributes: plain(span.attributes),
        name: span.name,
    }
}

fn plain(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    attributes.into_iter().map(|attribute| (attribute.key, text(attribute.value))).collect()
}

fn text(value: Option<AnyValue>) -> String {
    match value.and_then(|value| value.value) {
        None => String::new(),
        Some(Value::StringValue(text)) => text,
        Some(Value::BoolValue(truth)) => truth.to_string(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        Some(Value::BytesValue(bytes)) => hex::encode(bytes),
        Some(Value::ArrayValue(list)) => {
            let items: Vec<String> = list.values.into_iter().map(|item| text(Some(item))).collect();
            items.join(",")
        }
        Some(other) => format!("{other:?}"),
    }
}
