//! Exchanges, queues and messages of the tests, and a hand of its own to publish what no outbox would.

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use messaging::{Aggregate, Cause, Exchange, Kind, Message, Queue, Route, topology};
use serde_json::{Value, json};
use uuid::Uuid;

use super::site::Site;

pub(crate) const EVENTS: Exchange = Exchange { name: "shop.events", kind: Kind::Topic };
pub(crate) const COMMANDS: Exchange = Exchange { name: "shop.commands", kind: Kind::Direct };
pub(crate) const EXCHANGES: &[Exchange] = &[EVENTS, COMMANDS];

/// The queue that the scripted consumer works on.
pub(crate) const WORK: Queue = Queue { name: "work", bindings: &[(COMMANDS, "work")], single_active_consumer: false };

/// An event about the aggregate `key`; nobody needs to listen.
pub(crate) fn event(key: &str, text: &str) -> Message {
    message(key, Route::optional(EVENTS.name, "Note.NoteWritten"), text)
}

/// A command to the queue with this routing key, which must be there.
pub(crate) fn command(key: &str, routing_key: &'static str, text: &str) -> Message {
    message(key, Route::mandatory(COMMANDS.name, routing_key), text)
}

fn message(key: &str, route: Route, text: &str) -> Message {
    let aggregate = Aggregate { kind: "Note".into(), id: key.to_owned() };
    let payload = json!({ "text": text });
    Message::new("NoteWritten", aggregate, route, &payload, Cause::new("test")).expect("JSON")
}

/// A connection that publishes by hand.
pub(crate) struct Wire {
    pub(crate) channel: Channel,
    _connection: Connection,
}

impl Wire {
    pub(crate) async fn open(site: &Site) -> anyhow::Result<Wire> {
        Wire::open_on(site, WORK).await
    }

    /// With another form of the queue.
    pub(crate) async fn open_on(site: &Site, queue: Queue) -> anyhow::Result<Wire> {
        let properties = ConnectionProperties::default().with_connection_name("wire".into());
        let connection = Connection::connect(&site.broker_url(), properties).await?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        topology::declare_queue(&channel, queue).await?;
        Ok(Wire { channel, _connection: connection })
    }

    /// A valid message to [`WORK`]. Returns its id.
    pub(crate) async fn send(&self, key: &str, text: &str) -> anyhow::Result<Uuid> {
        let id = Uuid::now_v7();
        self.send_body(id, &envelope(id, key, text)).await?;
        Ok(id)
    }

    pub(crate) async fn send_body(&self, id: Uuid, body: &Value) -> anyhow::Result<()> {
        self.send_raw(body.to_string().as_bytes(), properties(id)).await
    }

    /// Anything at all to [`WORK`]; returns when the broker has it.
    pub(crate) async fn send_raw(&self, body: &[u8], properties: BasicProperties) -> anyhow::Result<()> {
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let publishing =
            self.channel.basic_publish(COMMANDS.name.into(), "work".into(), options, body, properties).await?;
        anyhow::ensure!(publishing.await?.is_ack(), "the broker did not take it");
        Ok(())
    }

    /// Many valid messages, key and text as given, without waiting for each.
    pub(crate) async fn send_all(
        &self,
        messages: impl IntoIterator<Item = (String, String)>,
    ) -> anyhow::Result<Vec<Uuid>> {
        let (mut ids, mut confirms) = (Vec::new(), Vec::new());
        for (key, text) in messages {
            let id = Uuid::now_v7();
            let body = envelope(id, &key, &text).to_string();
            let options = BasicPublishOptions::default();
            let publish = self.channel.basic_publish(
                COMMANDS.name.into(),
                "work".into(),
                options,
                body.as_bytes(),
                properties(id),
            );
            confirms.push(publish.await?);
            ids.push(id);
        }
        for confirm in confirms {
            anyhow::ensure!(confirm.await?.is_ack(), "the broker did not take it");
        }
        Ok(ids)
    }

    /// How many messages wait in a queue.
    pub(crate) async fn depth(&self, queue: &str) -> anyhow::Result<u32> {
        let options = lapin::options::QueueDeclareOptions { passive: true, ..Default::default() };
        let queue = self.channel.queue_declare(queue.into(), options, FieldTable::default()).await?;
        Ok(queue.message_count())
    }
}

impl Wire {
    pub(crate) fn envelope(id: Uuid, key: &str, text: &str) -> Value {
        envelope(id, key, text)
    }

    pub(crate) fn properties(id: Uuid) -> BasicProperties {
        properties(id)
    }
}

fn envelope(id: Uuid, key: &str, text: &str) -> Value {
    json!({
        "eventId": id, "eventType": "NoteWritten", "schemaVersion": 1, "aggregateType": "Note", "aggregateId": key,
        "correlationId": "test", "occurredAt": "2026-01-02T03:04:05Z", "payload": { "text": text },
    })
}

fn properties(id: Uuid) -> BasicProperties {
    BasicProperties::default()
        .with_message_id(id.to_string().into())
        .with_type("NoteWritten".into())
        .with_delivery_mode(2)
}
