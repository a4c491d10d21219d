//! A bare AMQP client: the limit of what the broker takes from one sender, and the judge of what has arrived.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use lapin::message::Delivery;
use lapin::options::{
    BasicCancelOptions, BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions, QueuePurgeOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, PublisherConfirm};
use messaging::topology::declare_queue;
use messaging::{Envelope, Message, Queue};
use time::OffsetDateTime;
use tokio::time::timeout;

use super::report::Rate;
use crate::stack::vhost::Vhost;

/// Messages of the bare client that the broker has not confirmed yet.
pub(crate) const WINDOW: usize = 1_000;
/// AMQP's delivery mode for messages that the broker keeps on disk.
const PERSISTENT: u8 = 2;
/// The longest silence of a queue that should have messages.
const SILENCE: Duration = Duration::from_secs(10);

/// A connection with all rights, and one queue.
pub(crate) struct Wire {
    connection: Connection,
    channel: Channel,
    queue: Queue,
}

/// A message as the bare client sends it.
#[derive(Clone)]
pub(crate) struct Parcel {
    pub(crate) body: Vec<u8>,
    pub(crate) properties: BasicProperties,
}

impl Parcel {
    /// A message as a relay would send it.
    pub(crate) fn of(message: &Message) -> anyhow::Result<Parcel> {
        let envelope = Envelope {
            event_id: message.id,
            event_type: message.message_type.to_string(),
            schema_version: message.schema_version.unsigned_abs(),
            aggregate_type: message.aggregate.kind.to_string(),
            aggregate_id: message.aggregate.id.clone(),
            correlation_id: message.cause.correlation_id.clone(),
            causation_id: message.cause.causation_id,
            saga_id: message.cause.saga_id,
            idempotency_key: message.idempotency_key.clone(),
            traceparent: message.cause.trace.traceparent.clone(),
            occurred_at: OffsetDateTime::now_utc(),
            payload: message.payload.clone(),
            routing_key: String::new(),
        };
        let properties = BasicProperties::default()
            .with_message_id(message.id.to_string().into())
            .with_type(message.message_type.as_ref().into())
            .with_app_id("bench".into())
            .with_correlation_id(message.cause.correlation_id.as_str().into())
            .with_content_type("application/json".into())
            .with_delivery_mode(PERSISTENT);
        Ok(Parcel { body: serde_json::to_vec(&envelope)?, properties })
    }
}

impl Wire {
    /// Declares the queue, as its consumer would.
    pub(crate) async fn open(vhost: &Vhost, user: &str, queue: Queue) -> anyhow::Result<Wire> {
        let connection = Connection::connect(&vhost.url(user), ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        declare_queue(&channel, queue).await?;
        Ok(Wire { connection, channel, queue })
    }

    /// Sends all of them to the queue's first binding, with at most [`WINDOW`] unconfirmed.
    pub(crate) async fn feed(&self, parcels: impl IntoIterator<Item = Parcel>) -> anyhow::Result<Rate> {
        let channel = self.confirming().await?;
        let mut confirms = VecDeque::with_capacity(WINDOW);
        let (begin, mut count) = (Instant::now(), 0);
        for parcel in parcels {
            if confirms.len() == WINDOW {
                confirmed(confirms.pop_front()).await?;
            }
            confirms.push_back(self.send(&channel, parcel).await?);
            count += 1;
        }
        while !confirms.is_empty() {
            confirmed(confirms.pop_front()).await?;
        }
        let seconds = begin.elapsed().as_secs_f64();
        channel.close(200, "fed".into()).await?;
        Ok(Rate { count, seconds })
    }

    /// A channel on which the broker confirms what it takes.
    pub(crate) async fn confirming(&self) -> anyhow::Result<Channel> {
        let channel = self.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }

    /// Sends one to the queue's first binding.
    pub(crate) async fn send(&self, channel: &Channel, parcel: Parcel) -> anyhow::Result<PublisherConfirm> {
        let (exchange, routing_key) = self.queue.bindings.first().context("a queue that is bound")?;
        let Parcel { body, properties } = parcel;
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        Ok(channel.basic_publish(exchange.name.into(), (*routing_key).into(), options, &body, properties).await?)
    }

    /// Takes so many messages out, and makes sure that there is no further one.
    pub(crate) async fn take(&self, count: usize) -> anyhow::Result<Vec<Delivery>> {
        let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
        let tag = "bench".into();
        let mut deliveries =
            self.channel.basic_consume(self.queue.name.into(), tag, options, FieldTable::default()).await?;
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            match timeout(SILENCE, deliveries.next()).await {
                Ok(Some(delivery)) => taken.push(delivery?),
                Ok(None) => bail!("the broker ended the consumer"),
                Err(_) => bail!("{} has {} messages in place of {count}", self.queue.name, taken.len()),
            }
        }
        let further = timeout(Duration::from_millis(200), deliveries.next()).await;
        self.channel.basic_cancel("bench".into(), BasicCancelOptions::default()).await?;
        match further {
            Ok(Some(further)) => bail!("{} has one more message: {:?}", self.queue.name, further?.properties),
            Ok(None) | Err(_) => Ok(taken),
        }
    }

    /// What arrives from now on, at the moment it arrives.
    pub(crate) async fn arrivals(&self) -> anyhow::Result<lapin::Consumer> {
        let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
        let tag = "arrivals".into();
        Ok(self.channel.basic_consume(self.queue.name.into(), tag, options, FieldTable::default()).await?)
    }

    /// Forgets what is in the queue.
    pub(crate) async fn purge(&self) -> anyhow::Result<()> {
        self.channel.queue_purge(self.queue.name.into(), QueuePurgeOptions::default()).await?;
        Ok(())
    }
}

async fn confirmed(confirm: Option<PublisherConfirm>) -> anyhow::Result<()> {
    match confirm.context("a confirm is awaited")?.await? {
        Confirmation::Ack(None) => Ok(()),
        other => bail!("the broker did not take a message of the bare client: {other:?}"),
    }
}

/// The id of a message.
pub(crate) fn id_of(delivery: &Delivery) -> String {
    delivery.properties.message_id().as_ref().map(ToString::to_string).unwrap_or_default()
}
