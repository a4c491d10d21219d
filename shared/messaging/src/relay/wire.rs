//! How a row looks on the wire: the envelope in its body, and the properties around it.

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};

use super::rows::Row;
use super::span::PublishSpan;
use crate::envelope::Envelope;

/// AMQP's delivery mode for messages that the broker keeps on disk.
const PERSISTENT: u8 = 2;

pub(super) fn body(row: &Row) -> Vec<u8> {
    let envelope = Envelope {
        event_id: row.event_id,
        event_type: row.event_type.clone(),
        schema_version: row.schema_version.unsigned_abs(),
        aggregate_type: row.aggregate_type.clone(),
        aggregate_id: row.aggregate_id.clone(),
        correlation_id: row.correlation_id.clone(),
        causation_id: row.headers.causation_id,
        saga_id: row.saga_id,
        idempotency_key: row.headers.idempotency_key.clone(),
        traceparent: row.headers.trace.traceparent.clone(),
        occurred_at: row.created_at,
        payload: row.payload.0.clone(),
        routing_key: String::new(),
    };
    // Every part of it was JSON or text before.
    serde_json::to_vec(&envelope).unwrap_or_default()
}

pub(super) fn properties(process: &str, row: &Row, span: &PublishSpan) -> BasicProperties {
    let mut headers = FieldTable::default();
    let mut set = |name: &str, value: &str| {
        headers.insert(name.into(), AMQPValue::LongString(value.into()));
    };
    for (name, value) in span.context().entries() {
        set(name, value);
    }
    if let Some(saga_id) = row.saga_id {
        set("saga-id", &saga_id.to_string());
    }
    if let Some(causation_id) = row.headers.causation_id {
        set("causation-id", &causation_id.to_string());
    }
    headers.insert("schema-version".into(), AMQPValue::ShortInt(row.schema_version));
    headers.insert("sequence".into(), AMQPValue::LongLongInt(row.id));
    BasicProperties::default()
        .with_message_id(row.event_id.to_string().into())
        .with_type(row.event_type.as_str().into())
        .with_app_id(process.into())
        .with_correlation_id(row.correlation_id.as_str().into())
        .with_timestamp(row.created_at.unix_timestamp().unsigned_abs())
        .with_content_type("application/json".into())
        .with_delivery_mode(PERSISTENT)
        .with_headers(headers)
}
