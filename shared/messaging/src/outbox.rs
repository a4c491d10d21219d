//! The outbox: what the caller's transaction has promised to publish. A row is there exactly as long as the broker
//! has not confirmed its message; who commits the transaction commits the promise with it.

use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::error::Failure;
use crate::message::Message;
use crate::trace::TraceContext;

/// Largest payload, in bytes: what is larger belongs into a store of its own, with a reference in the message.
pub const LARGEST_PAYLOAD: usize = 256 * 1024;

/// Longest name, in bytes: AMQP's short strings hold no more.
const LONGEST_NAME: usize = 255;

/// What stands in the column `headers`: everything that travels with the message and is not a column of its own.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct RowHeaders {
    #[serde(flatten)]
    pub(crate) trace: TraceContext,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) causation_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) idempotency_key: Option<String>,
}

/// Appends messages in the caller's transaction, in one statement. After the commit, poke the relay.
///
/// Messages of one aggregate are published in the order in which they were appended, provided that their writers lock
/// the aggregate before they append.
///
/// # Errors
/// Permanent if a payload is larger than [`LARGEST_PAYLOAD`], or a type, correlation id, exchange or routing key longer
/// than AMQP can carry: such a row could never be published. Else as the database says.
pub async fn append(transaction: &mut PgConnection, messages: &[Message]) -> Result<(), Failure> {
    if messages.is_empty() {
        return Ok(());
    }
    messages.iter().try_for_each(check)?;
    let headers: Vec<Json<RowHeaders>> = messages
        .iter()
        .map(|message| {
            Json(RowHeaders {
                trace: message.cause.trace.clone(),
                causation_id: message.cause.causation_id,
                idempotency_key: message.idempotency_key.clone(),
            })
        })
        .collect();
    sqlx::query!(
        r#"insert into outbox (event_id, aggregate_type, aggregate_id, event_type, schema_version, saga_id,
                               correlation_id, exchange, routing_key, mandatory, payload, headers)
           select * from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::smallint[], $6::uuid[],
                                $7::text[], $8::text[], $9::text[], $10::boolean[], $11::jsonb[], $12::jsonb[])"#,
        &messages.iter().map(|m| m.id).collect::<Vec<_>>(),
        &messages.iter().map(|m| m.aggregate.kind.to_string()).collect::<Vec<_>>(),
        &messages.iter().map(|m| m.aggregate.id.clone()).collect::<Vec<_>>(),
        &messages.iter().map(|m| m.message_type.to_string()).collect::<Vec<_>>(),
        &messages.iter().map(|m| m.schema_version).collect::<Vec<_>>(),
        &messages.iter().map(|m| m.cause.saga_id).collect::<Vec<_>>() as &[Option<Uuid>],
        &messages.iter().map(|m| m.cause.correlation_id.clone()).collect::<Vec<_>>(),
        &messages.iter().map(|m| m.route.exchange.to_string()).collect::<Vec<_>>(),
        &messages.iter().map(|m| m.route.routing_key.to_string()).collect::<Vec<_>>(),
        &messages.iter().map(|m| m.route.mandatory).collect::<Vec<_>>(),
        &messages.iter().map(|m| Json(m.payload.clone())).collect::<Vec<_>>()
            as &[Json<Box<serde_json::value::RawValue>>],
        &headers as &[Json<RowHeaders>],
    )
    .execute(transaction)
    .await?;
    Ok(())
}

fn check(message: &Message) -> Result<(), Failure> {
    let (kind, size) = (&message.message_type, message.payload.get().len());
    if size > LARGEST_PAYLOAD {
        let context = format!("the payload of {kind} has {size} bytes, {LARGEST_PAYLOAD} are allowed");
        return Err(Failure::permanent("outbox.payload_too_large", context));
    }
    let names = [kind, &*message.cause.correlation_id, &message.route.exchange, &message.route.routing_key];
    if names.iter().any(|name| name.len() > LONGEST_NAME) {
        let context = format!("a name in the message is longer than {LONGEST_NAME} bytes: {kind:.300}");
        return Err(Failure::permanent("outbox.name_too_long", context));
    }
    Ok(())
}
