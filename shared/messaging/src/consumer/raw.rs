//! A message as it came, so that it can be kept whole, and read again later as if it had just come.

use lapin::message::Delivery as AmqpDelivery;
use lapin::types::{AMQPValue, FieldTable};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::envelope::Envelope;
use crate::error::Failure;
use crate::trace::TraceContext;

/// Deepest nesting of headers that is kept: JSON that is much deeper could be stored, but not read again.
const DEEPEST_HEADER: usize = 32;

/// Longest key, in bytes, that stands in the inbox as it is: an index holds no entry of more than 2,700.
const LONGEST_KEY: usize = 512;

/// Larger bodies are parked unread.
const LARGEST_BODY: usize = 512 * 1024;

/// A message as it came.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    /// Its id; without one, `sha256:` of routing key and body.
    pub(crate) message_id: String,
    /// What it must stay in order with; its own id where that cannot be read.
    pub(crate) key: String,
    pub(crate) message_type: String,
    pub(crate) correlation_id: Option<String>,
    pub(crate) body: Vec<u8>,
    pub(crate) properties: Value,
    pub(crate) exchange: String,
    pub(crate) routing_key: String,
}

impl Raw {
    pub(crate) fn of(delivery: AmqpDelivery) -> Raw {
        let properties = &delivery.properties;
        let string = |value: &Option<lapin::types::ShortString>| value.as_ref().map(|value| text(value.as_str()));
        let message_id = string(properties.message_id()).filter(|id| !id.is_empty());
        let known = message_id.clone();
        let message_id = message_id.unwrap_or_else(|| digest(delivery.routing_key.as_str(), &delivery.data));
        let mut kept = Map::new();
        let mut keep = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                kept.insert(name.to_owned(), value);
            }
        };
        keep("messageId", known.map(Value::from));
        keep("type", string(properties.kind()).map(Value::from));
        keep("correlationId", string(properties.correlation_id()).map(Value::from));
        keep("appId", string(properties.app_id()).map(Value::from));
        keep("contentType", string(properties.content_type()).map(Value::from));
        keep("contentEncoding", string(properties.content_encoding()).map(Value::from));
        keep("deliveryMode", properties.delivery_mode().map(Value::from));
        keep("priority", properties.priority().map(Value::from));
        keep("replyTo", string(properties.reply_to()).map(Value::from));
        keep("expiration", string(properties.expiration()).map(Value::from));
        keep("userId", string(properties.user_id()).map(Value::from));
        keep("timestamp", properties.timestamp().map(Value::from));
        keep("headers", properties.headers().as_ref().map(|headers| table(headers, 0)));
        Raw {
            key: message_id.clone(),
            message_type: string(properties.kind()).unwrap_or_default(),
            correlation_id: string(properties.correlation_id()),
            body: delivery.data,
            properties: without_nul(Value::Object(kept)),
            exchange: text(delivery.exchange.as_str()),
            routing_key: text(delivery.routing_key.as_str()),
            message_id,
        }
    }

    /// Reads the envelope and takes key, type and correlation id from it.
    ///
    /// # Errors
    /// Permanent: no retry makes it readable.
    pub(crate) fn read(&mut self) -> Result<Envelope, Failure> {
        if self.properties.get("messageId").is_none() {
            return Err(Failure::permanent("message.without_id", "the message has no id"));
        }
        if self.body.len() > LARGEST_BODY {
            let context = format!("the message has {} bytes, {LARGEST_BODY} are allowed", self.body.len());
            return Err(Failure::permanent("message.too_large", context));
        }
        let mut envelope: Envelope = serde_json::from_slice(&self.body)
            .map_err(|error| Failure::permanent("message.unreadable", "the body is no envelope").caused_by(error))?;
        if envelope.event_id.to_string() != self.message_id {
            return Err(Failure::permanent("message.id_mismatch", "the body has another id than the message"));
        }
        let key = text(&envelope.key());
        self.key = if key.len() > LONGEST_KEY { digest(&key, &[]) } else { key };
        self.message_type = text(&envelope.event_type);
        self.correlation_id = Some(text(&envelope.correlation_id));
        envelope.routing_key.clone_from(&self.routing_key);
        Ok(envelope)
    }

    /// The trace it came in, by its headers.
    pub(crate) fn trace(&self) -> TraceContext {
        origin(&self.properties)
    }

    /// Its sender's outbox id.
    pub(crate) fn sequence(&self) -> Option<i64> {
        self.properties.get("headers")?.get("sequence")?.as_i64()
    }
}

/// The trace that a message came in, by its properties as they are kept.
pub(crate) fn origin(properties: &Value) -> TraceContext {
    let headers = properties.get("headers").and_then(Value::as_object);
    let strings = headers.into_iter().flatten().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)));
    TraceContext::from_headers(strings)
}

fn digest(routing_key: &str, body: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update(routing_key.as_bytes());
    hash.update([0]);
    hash.update(body);
    format!("sha256:{}", hex::encode(hash.finalize()))
}

fn table(fields: &FieldTable, depth: usize) -> Value {
    Value::Object(fields.inner().iter().map(|(name, value)| (name.to_string(), json_value(value, depth))).collect())
}

/// Header values as JSON. Bytes that are no text are kept as hexadecimal digits.
fn json_value(value: &AMQPValue, depth: usize) -> Value {
    match value {
        AMQPValue::FieldArray(_) | AMQPValue::FieldTable(_) if depth >= DEEPEST_HEADER => json!("nested too deep"),
        AMQPValue::FieldArray(values) => {
            Value::Array(values.as_slice().iter().map(|value| json_value(value, depth + 1)).collect())
        }
        AMQPValue::FieldTable(fields) => table(fields, depth + 1),
        AMQPValue::Boolean(value) => json!(value),
        AMQPValue::ShortShortInt(value) => json!(value),
        AMQPValue::ShortShortUInt(value) => json!(value),
        AMQPValue::ShortInt(value) => json!(value),
        AMQPValue::ShortUInt(value) => json!(value),
        AMQPValue::LongInt(value) => json!(value),
        AMQPValue::LongUInt(value) => json!(value),
        AMQPValue::LongLongInt(value) => json!(value),
        AMQPValue::Float(value) => json!(value),
        AMQPValue::Double(value) => json!(value),
        AMQPValue::Timestamp(value) => json!(value),
        AMQPValue::ShortString(value) => json!(value.as_str()),
        AMQPValue::LongString(value) => match std::str::from_utf8(value.as_bytes()) {
            Ok(string) => json!(string),
            Err(_) => json!(hex::encode(value.as_bytes())),
        },
        AMQPValue::ByteArray(value) => json!(hex::encode(value.as_slice())),
        AMQPValue::DecimalValue(value) => json!(format!("{value:?}")),
        AMQPValue::Void => Value::Null,
    }
}

/// PostgreSQL's text has no NUL; a message may.
pub(crate) fn text(value: &str) -> String {
    value.replace('\0', "\u{FFFD}").chars().take(2_000).collect()
}

/// Properties as JSON never have a NUL either.
fn without_nul(value: Value) -> Value {
    match value {
        Value::String(string) => Value::String(string.replace('\0', "\u{FFFD}")),
        Value::Array(values) => Value::Array(values.into_iter().map(without_nul).collect()),
        Value::Object(entries) => Value::Object(
            entries.into_iter().map(|(name, value)| (name.replace('\0', "\u{FFFD}"), without_nul(value))).collect(),
        ),
        other => other,
    }
}
