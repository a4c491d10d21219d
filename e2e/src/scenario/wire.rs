//! The broker as a scenario uses it: listening to everything that is said, and saying it again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicGetOptions, BasicPublishOptions, BasicRejectOptions,
    ConfirmSelectOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use serde_json::{Value, json};
use uuid::Uuid;

use super::Id;
use crate::eventually::{State, eventually};

const SOON: Duration = Duration::from_secs(20);

/// A message as it was seen.
#[derive(Clone, Debug)]
struct Seen {
    exchange: String,
    routing_key: String,
    properties: BasicProperties,
    body: Vec<u8>,
}

/// A connection of an administrator.
pub(super) struct Wire {
    channel: Channel,
    seen: Arc<Mutex<Vec<Seen>>>,
    _connection: Connection,
}

impl Wire {
    /// Connects and listens to all commands and events from now on.
    pub(super) async fn listen(url: &str) -> anyhow::Result<Wire> {
        let connection = Connection::connect(url, ConnectionProperties::default()).await;
        let connection = connection.context("connecting to RabbitMQ")?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let options = QueueDeclareOptions { exclusive: true, auto_delete: true, ..QueueDeclareOptions::default() };
        let queue = channel.queue_declare("".into(), options, FieldTable::default()).await?;
        let queue = queue.name().clone();
        for (exchange, key) in [
            ("saga.commands", "payment"),
            ("saga.commands", "inventory"),
            ("saga.commands", "shipping"),
            ("saga.events", "#"),
        ] {
            let bind = channel.queue_bind(
                queue.clone(),
                exchange.into(),
                key.into(),
                QueueBindOptions::default(),
                FieldTable::default(),
            );
            bind.await?;
        }
        let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
        let mut deliveries = channel.basic_consume(queue, "".into(), options, FieldTable::default()).await?;
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let into = seen.clone();
        tokio::spawn(async move {
            while let Some(Ok(delivery)) = deliveries.next().await {
                into.lock().unwrap_or_else(PoisonError::into_inner).push(Seen {
                    exchange: delivery.exchange.to_string(),
                    routing_key: delivery.routing_key.to_string(),
                    properties: delivery.properties,
                    body: delivery.data,
                });
            }
        });
        Ok(Wire { channel, seen, _connection: connection })
    }

    /// Says again what was seen of this type in this saga.
    pub(super) async fn deliver(&self, message: &str, saga: &str, id: Id) -> anyhow::Result<()> {
        let what = format!("a {message} of saga {saga} is seen");
        let seen = eventually(SOON, &what, async || {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let found = seen.iter().find(|seen| is(&seen.body, message, saga)).cloned();
            Ok(found.map_or_else(|| State::pending(seen.len()), State::Reached))
        });
        let Seen { exchange, routing_key, mut properties, mut body } = seen.await?;
        if id == Id::New {
            let new = Uuid::now_v7().to_string();
            let mut envelope: Value = serde_json::from_slice(&body)?;
            envelope["eventId"] = json!(new);
            body = serde_json::to_vec(&envelope)?;
            properties = properties.with_message_id(new.into());
        }
        self.publish(&exchange, &routing_key, properties, &body).await
    }

    /// Takes a message out of the queue of a participant that is away, for good.
    pub(super) async fn withhold(&self, message: &str, saga: &str, queue: &str) -> anyhow::Result<()> {
        eventually(SOON, &format!("a {message} of saga {saga} waits in {queue}"), async || {
            let Some(got) = self.channel.basic_get(queue.into(), BasicGetOptions::default()).await? else {
                return Ok(State::pending("the queue is empty"));
            };
            if is(&got.delivery.data, message, saga) {
                got.delivery.acker.ack(BasicAckOptions::default()).await?;
                return Ok(State::Reached(()));
            }
            got.delivery.acker.reject(BasicRejectOptions { requeue: true }).await?;
            Ok(State::pending("another message is first"))
        })
        .await
    }

    /// Sends what is no message of ours, under this id.
    pub(super) async fn send_unreadable(&self, participant: &str, id: &str) -> anyhow::Result<()> {
        let properties = BasicProperties::default().with_message_id(id.into());
        self.publish("saga.commands", participant, properties, b"{\"this is\": \"no message of ours\"").await
    }

    async fn publish(&self, exchange: &str, key: &str, properties: BasicProperties, body: &[u8]) -> anyhow::Result<()> {
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let confirm = self.channel.basic_publish(exchange.into(), key.into(), options, body, properties).await?.await?;
        if !confirm.is_ack() || confirm.take_message().is_some() {
            bail!("RabbitMQ took no message for {key}");
        }
        Ok(())
    }
}

fn is(body: &[u8], message: &str, saga: &str) -> bool {
    let envelope: Value = serde_json::from_slice(body).unwrap_or_default();
    envelope["eventType"] == message && envelope["sagaId"] == saga
}
