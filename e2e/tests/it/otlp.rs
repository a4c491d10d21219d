//! The receiver reads spans as any OpenTelemetry SDK sends them.

use e2e::{Collector, Span};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as Wire, Status};
use prost::Message as _;

/// One span with everything that tests look at.
pub(crate) fn request(trace_id: [u8; 16]) -> ExportTraceServiceRequest {
    let attribute = |key: &str, value: Value| KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    };
    let span = Wire {
        trace_id: trace_id.to_vec(),
        span_id: vec![2; 8],
        parent_span_id: vec![3; 8],
        name: "process order.replies".to_owned(),
        kind: SpanKind::Consumer.into(),
        start_time_unix_nano: now(),
        end_time_unix_nano: now() + 1_000_000,
        attributes: vec![
            attribute("correlation.id", Value::StringValue("c-4711".to_owned())),
            attribute("attempt", Value::IntValue(3)),
        ],
        events: vec![Event { name: "parked".to_owned(), ..Event::default() }],
        links: vec![Link { trace_id: vec![4; 16], span_id: vec![5; 8], ..Link::default() }],
        status: Some(Status { message: "declined".to_owned(), code: StatusCode::Error.into() }),
        ..Wire::default()
    };
    let service = attribute("service.name", Value::StringValue("order".to_owned()));
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource { attributes: vec![service], ..Resource::default() }),
            scope_spans: vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }],
            ..ResourceSpans::default()
        }],
    }
}

/// Sends it as an exporter does.
pub(crate) async fn export(endpoint: &str, request: &ExportTraceServiceRequest) -> anyhow::Result<()> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let sent = client.post(format!("{endpoint}/v1/traces")).header("content-type", "application/x-protobuf");
    sent.body(request.encode_to_vec()).send().await?.error_for_status()?;
    Ok(())
}

fn now() -> u64 {
    u64::try_from(time::OffsetDateTime::now_utc().unix_timestamp_nanos()).unwrap_or_default()
}

#[tokio::test]
async fn a_span_arrives_with_all_that_it_says() -> anyhow::Result<()> {
    let collector = Collector::start().await?;

    export(&collector.endpoint(), &request([1; 16])).await?;

    let expected = Span {
        service: "order".to_owned(),
        name: "process order.replies".to_owned(),
        kind: "consumer",
        trace_id: "01".repeat(16),
        span_id: "02".repeat(8),
        parent_id: "03".repeat(8),
        attributes: [("attempt", "3"), ("correlation.id", "c-4711")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        links: vec![("04".repeat(16), "05".repeat(8))],
        events: vec!["parked".to_owned()],
        is_error: true,
        status_message: "declined".to_owned(),
    };
    assert_eq!(collector.spans_with("correlation.id", "c-4711"), [expected]);
    assert!(collector.spans_with("correlation.id", "another").is_empty());
    assert_eq!(collector.trace(&"01".repeat(16)).len(), 1);
    Ok(())
}

#[tokio::test]
async fn what_is_not_a_span_is_refused() -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let client = reqwest::Client::builder().no_proxy().build()?;
    let answer = client.post(format!("{}/v1/traces", collector.endpoint())).body("not protobuf").send().await?;
    assert_eq!(answer.status(), 400);
    assert!(collector.spans().is_empty());
    Ok(())
}
