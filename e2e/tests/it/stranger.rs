//! Whoever else has access to the broker.

use anyhow::Context as _;
use e2e::Stack;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Connection, ConnectionProperties};
use serde_json::Value;

/// Publishes as the administrator, who may do everything.
pub(crate) struct Stranger {
    channel: lapin::Channel,
    _connection: Connection,
}

impl Stranger {
    pub(crate) async fn at(stack: &Stack) -> anyhow::Result<Stranger> {
        let url = stack.vhost.url("administrator");
        let connection = Connection::connect(&url, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(Stranger { channel, _connection: connection })
    }

    /// Straight into a queue.
    pub(crate) async fn send(&self, queue: &str, body: &[u8], properties: BasicProperties) -> anyhow::Result<()> {
        self.publish("", queue, body, properties).await
    }

    /// To an exchange.
    pub(crate) async fn publish(
        &self,
        exchange: &str,
        routing_key: &str,
        body: &[u8],
        properties: BasicProperties,
    ) -> anyhow::Result<()> {
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        self.channel.basic_publish(exchange.into(), routing_key.into(), options, body, properties).await?.await?;
        Ok(())
    }

    /// A message for a queue, in the way that its kind travels: answers under the key of who gives them.
    pub(crate) async fn send_envelope(&self, queue: &str, envelope: &Value) -> anyhow::Result<()> {
        let text = |field: &str| envelope[field].as_str().with_context(|| format!("no {field}"));
        let properties = BasicProperties::default().with_message_id(text("eventId")?.into());
        let body = envelope.to_string();
        if queue == "order.replies" {
            let key = format!("{}.{}", text("aggregateType")?, text("eventType")?);
            return self.publish("saga.events", &key, body.as_bytes(), properties).await;
        }
        self.send(queue, body.as_bytes(), properties).await
    }
}
