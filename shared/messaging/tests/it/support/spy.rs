//! A queue of its own that sees everything on an exchange, and counts what comes twice.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use lapin::options::{BasicConsumeOptions, BasicPublishOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use messaging::{Exchange, topology};
use serde_json::Value;

use super::eventually::eventually;
use super::site::Site;

/// A message as it came.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) properties: BasicProperties,
    pub(crate) body: Vec<u8>,
}

pub(crate) struct Spy {
    seen: Arc<Mutex<Vec<Seen>>>,
    channel: Channel,
    queue: String,
    _connection: Connection,
}

const SENTINEL: &str = "sentinel";

impl Spy {
    /// Sees what is published to `exchange` from now on.
    pub(crate) async fn on(site: &Site, exchange: Exchange, routing_key: &str) -> anyhow::Result<Spy> {
        let properties = ConnectionProperties::default().with_connection_name("spy".into());
        let connection = Connection::connect(&site.broker_url(), properties).await?;
        let channel = connection.create_channel().await?;
        topology::declare_exchange(&channel, exchange).await?;
        let options = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
        let queue = channel.queue_declare("".into(), options, FieldTable::default()).await?.name().to_string();
        let (name, key) = (exchange.name.into(), routing_key.into());
        channel
            .queue_bind(queue.as_str().into(), name, key, QueueBindOptions::default(), FieldTable::default())
            .await?;
        let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
        let mut deliveries =
            channel.basic_consume(queue.as_str().into(), "".into(), options, FieldTable::default()).await?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let notebook = seen.clone();
        tokio::spawn(async move {
            while let Some(Ok(delivery)) = deliveries.next().await {
                let seen = Seen { properties: delivery.properties, body: delivery.data };
                notebook.lock().unwrap().push(seen);
            }
        });
        Ok(Spy { seen, channel, queue, _connection: connection })
    }

    /// Everything that was published up to now. The queue keeps the order, so what comes last shows that all is here.
    pub(crate) async fn all(&self) -> anyhow::Result<Vec<Seen>> {
        let properties = BasicProperties::default().with_type(SENTINEL.into());
        let queue = self.queue.as_str().into();
        self.channel.basic_publish("".into(), queue, BasicPublishOptions::default(), b"", properties).await?;
        let is_sentinel = |seen: &Seen| seen.properties.kind().as_ref().is_some_and(|kind| kind.as_str() == SENTINEL);
        let look = async || Ok(self.seen.lock().unwrap().iter().any(is_sentinel));
        eventually("the spy has seen everything", look, |complete| *complete).await?;
        let mut seen = self.seen.lock().unwrap();
        seen.retain(|seen| !is_sentinel(seen));
        Ok(seen.clone())
    }

    /// The texts of all messages up to now, in their order.
    pub(crate) async fn texts(&self) -> anyhow::Result<Vec<String>> {
        Ok(self.all().await?.iter().map(text).collect())
    }

    /// How many different messages it has seen.
    pub(crate) fn distinct(&self) -> usize {
        let seen = self.seen.lock().unwrap();
        seen.iter().map(|seen| seen.properties.message_id().clone()).collect::<HashSet<_>>().len()
    }

    /// Waits until it has seen at least so many different messages.
    pub(crate) async fn saw_some(&self, expected: usize) -> anyhow::Result<()> {
        let what = format!("the spy sees {expected} different messages or more");
        eventually(&what, async || Ok(self.distinct()), |distinct| *distinct >= expected).await.map(drop)
    }

    /// Waits until it has seen exactly so many different messages.
    pub(crate) async fn saw(&self, expected: usize) -> anyhow::Result<()> {
        let what = format!("the spy sees {expected} different messages");
        eventually(&what, async || Ok(self.distinct()), |distinct| *distinct == expected).await.map(drop)
    }
}

fn text(seen: &Seen) -> String {
    let body: Value = serde_json::from_slice(&seen.body).unwrap_or_default();
    body["payload"]["text"].as_str().unwrap_or_default().to_owned()
}
