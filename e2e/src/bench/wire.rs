//! A bare AMQP client: the limit of what the broker takes from one sender, and the judge of what has arrived.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use lapin::message::Delivery;
use lapin::options::{
    BasicCancelOptions, BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions,
    QueuePurgeOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};
use messaging::Queue;
use messaging::topology::declare_queue;
use tokio::time::timeout;

use super::report::Rate;
use crate::stack::vhost::Vhost;

/// Messages of the bare client that the broker has not confirmed yet.
pub(crate) const WINDOW: usize = 1_000;
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
        let (exchange, routing_key) = self.queue.bindings.first().context("a queue that is bound")?;
        let channel = self.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let mut confirms = VecDeque::with_capacity(WINDOW);
        let (begin, mut count) = (Instant::now(), 0);
        for Parcel { body, properties } in parcels {
            if confirms.len() == WINDOW {
                confirmed(confirms.pop_front()).await?;
            }
            let sent = channel.basic_publish(exchange.name.into(), (*routing_key).into(), options, &body, properties);
            confirms.push_back(sent.await?);
            count += 1;
        }
        while !confirms.is_empty() {
            confirmed(confirms.pop_front()).await?;
        }
        let seconds = begin.elapsed().as_secs_f64();
        channel.close(200, "fed".into()).await?;
        Ok(Rate { count, seconds })
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

    /// How many messages wait in the queue.
    pub(crate) async fn depth(&self) -> anyhow::Result<u32> {
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let queue = self.channel.queue_declare(self.queue.name.into(), options, FieldTable::default()).await?;
        Ok(queue.message_count())
    }

    /// Forgets what is in the queue.
    pub(crate) async fn purge(&self) -> anyhow::Result<()> {
        self.channel.queue_purge(self.queue.name.into(), QueuePurgeOptions::default()).await?;
        Ok(())
    }
}

async fn confirmed(confirm: Option<lapin::PublisherConfirm>) -> anyhow::Result<()> {
    match confirm.context("a confirm is awaited")?.await? {
        Confirmation::Ack(None) => Ok(()),
        other => bail!("the broker did not take a message of the bare client: {other:?}"),
    }
}

/// The id of a message.
pub(crate) fn id_of(delivery: &Delivery) -> String {
    delivery.properties.message_id().as_ref().map(ToString::to_string).unwrap_or_default()
}
