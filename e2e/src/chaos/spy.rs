//! A queue that gets everything: what was sent and never came out is lost, what came out and was never sent is
//! unexpected. The same hand sends messages again, and lets them change places.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use contracts::topology::{COMMANDS, EVENTS, receiver};
use futures::StreamExt as _;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicGetOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use messaging::Queue;
use messaging::topology::declare_queue;
use rand::seq::IteratorRandom as _;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::fault::Id;
use crate::eventually::{State, eventually};

const QUEUE: Queue = Queue {
    name: "chaos.spy",
    bindings: &[(COMMANDS, "payment"), (COMMANDS, "inventory"), (COMMANDS, "shipping"), (EVENTS, "#")],
    single_active_consumer: false,
};
const PREFETCH: u16 = 1_000;
const PAUSE: Duration = Duration::from_millis(200);
/// So many of the last messages can be sent again.
const REMEMBERED: usize = 1_000;
/// Only what is so old: its receiver has had it, unless something is broken.
const OLD: Duration = Duration::from_secs(2);
/// Messages that are sent again, or change places, at once.
const HANDFUL: usize = 20;
/// The broker may be away just then.
const BACK_WITHIN: Duration = Duration::from_secs(90);

#[derive(Clone)]
struct Message {
    at: Instant,
    exchange: String,
    routing_key: String,
    properties: BasicProperties,
    body: Vec<u8>,
}

/// Hears everything.
pub(super) struct Spy {
    /// Connects as the administrator.
    url: String,
    /// How often each message was put into the queue, as far as the broker says.
    sightings: RefCell<BTreeMap<String, u32>>,
    recent: RefCell<VecDeque<Message>>,
    /// Ids that are ours.
    invented: RefCell<BTreeSet<String>>,
    /// Copies under known ids that are ours.
    copies: Cell<u64>,
}

impl Spy {
    /// Declares its queue: from now on nothing escapes.
    pub(super) async fn hide(url: String) -> anyhow::Result<Spy> {
        let (_connection, channel) = connect(&url).await?;
        declare_queue(&channel, QUEUE).await?;
        let (sightings, recent, invented) = Default::default();
        Ok(Spy { url, sightings, recent, invented, copies: Cell::new(0) })
    }

    /// The name of its queue.
    pub(super) fn queue() -> &'static str {
        QUEUE.name
    }

    /// Listens for ever, through every outage.
    pub(super) async fn listen(&self) {
        loop {
            let _ = self.listen_once().await;
            sleep(PAUSE).await;
        }
    }

    async fn listen_once(&self) -> anyhow::Result<()> {
        let (_connection, channel) = connect(&self.url).await?;
        channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
        let options = BasicConsumeOptions::default();
        let mut deliveries =
            channel.basic_consume(QUEUE.name.into(), "spy".into(), options, FieldTable::default()).await?;
        while let Some(delivery) = deliveries.next().await {
            let delivery = delivery?;
            // Written down before it is acknowledged: what is not comes again, and is marked.
            self.take(&delivery);
            delivery.ack(BasicAckOptions::default()).await?;
        }
        Ok(())
    }

    fn take(&self, delivery: &Delivery) {
        let id = id_of(&delivery.properties);
        let mut sightings = self.sightings.borrow_mut();
        let count = sightings.entry(id).or_default();
        if !delivery.redelivered || *count == 0 {
            *count += 1;
        }
        let mut recent = self.recent.borrow_mut();
        recent.push_back(message(delivery));
        if recent.len() > REMEMBERED {
            recent.pop_front();
        }
    }

    /// Sends a handful of messages that had a receiver once more, and returns their ids.
    pub(super) async fn say_again(&self, id: Id) -> anyhow::Result<Vec<String>> {
        let mut chosen = eventually(BACK_WITHIN, "there are messages to send again", async || {
            let chosen = self.choose();
            Ok(if chosen.is_empty() { State::pending("none") } else { State::Reached(chosen) })
        })
        .await?;
        for message in &mut chosen {
            match id {
                Id::Same => self.copies.set(self.copies.get() + 1),
                Id::New => {
                    let new = Uuid::now_v7().to_string();
                    let mut envelope: Value = serde_json::from_slice(&message.body)?;
                    envelope["eventId"] = json!(new);
                    message.body = serde_json::to_vec(&envelope)?;
                    self.invented.borrow_mut().insert(new.clone());
                    message.properties = message.properties.clone().with_message_id(new.into());
                }
            }
        }
        eventually(BACK_WITHIN, "messages are sent again", async || {
            let (_connection, channel) = connect(&self.url).await?;
            for message in &chosen {
                publish(&channel, message).await?;
            }
            Ok(State::Reached(()))
        })
        .await?;
        Ok(chosen.iter().map(|message| id_of(&message.properties)).collect())
    }

    fn choose(&self) -> Vec<Message> {
        let (recent, invented) = (self.recent.borrow(), self.invented.borrow());
        let fit = recent.iter().filter(|message| {
            let has_receiver = receiver(&message.exchange, &message.routing_key).is_some();
            has_receiver && message.at.elapsed() > OLD && !invented.contains(&id_of(&message.properties))
        });
        fit.cloned().choose_multiple(&mut rand::rng(), HANDFUL)
    }

    /// Turns round the order of what waits in a queue that nobody consumes, and returns how many changed places. At
    /// the worst a message is in it twice afterwards.
    pub(super) async fn reorder(&self, queue: &str) -> anyhow::Result<usize> {
        eventually(BACK_WITHIN, &format!("messages wait in {queue}"), async || {
            let (_connection, channel) = connect(&self.url).await?;
            let mut taken = Vec::new();
            while taken.len() < HANDFUL
                && let Some(got) = channel.basic_get(queue.into(), BasicGetOptions::default()).await?
            {
                taken.push(got.delivery);
            }
            if taken.len() < 2 {
                // The connection ends here, and gives them back.
                return Ok(State::pending(taken.len()));
            }
            for delivery in taken.iter().rev() {
                self.copies.set(self.copies.get() + 1);
                publish(&channel, &message(delivery)).await?;
            }
            for delivery in &taken {
                delivery.ack(BasicAckOptions::default()).await?;
            }
            Ok(State::Reached(taken.len()))
        })
        .await
    }

    /// Waits until each of these was seen, and returns which were not.
    pub(super) async fn missing(&self, sent: &BTreeSet<String>, patience: Duration) -> Vec<String> {
        let begin = Instant::now();
        loop {
            let missing: Vec<String> = {
                let sightings = self.sightings.borrow();
                sent.iter().filter(|id| !sightings.contains_key(*id)).cloned().collect()
            };
            if missing.is_empty() || begin.elapsed() > patience {
                return missing;
            }
            sleep(PAUSE).await;
        }
    }

    /// What was seen and neither sent by the shop nor by us.
    pub(super) fn unexpected(&self, sent: &BTreeSet<String>) -> Vec<String> {
        let (sightings, invented) = (self.sightings.borrow(), self.invented.borrow());
        sightings.keys().filter(|id| !sent.contains(*id) && !invented.contains(*id)).cloned().collect()
    }

    /// How often a message was put into the queue that was there before.
    pub(super) fn again(&self) -> u64 {
        self.sightings.borrow().values().map(|count| u64::from(count.saturating_sub(1))).sum()
    }

    /// How many copies under known ids are ours, and how many messages under new ones.
    pub(super) fn ours(&self) -> (u64, usize) {
        (self.copies.get(), self.invented.borrow().len())
    }
}

async fn connect(url: &str) -> anyhow::Result<(Connection, Channel)> {
    let connection =
        Connection::connect(url, ConnectionProperties::default()).await.context("connecting to RabbitMQ")?;
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok((connection, channel))
}

async fn publish(channel: &Channel, message: &Message) -> anyhow::Result<()> {
    let Message { exchange, routing_key, properties, body, .. } = message;
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let properties = properties.clone();
    let (exchange, routing_key) = (exchange.as_str().into(), routing_key.as_str().into());
    let confirm = channel.basic_publish(exchange, routing_key, options, body, properties).await?.await?;
    ensure!(confirm.is_ack(), "RabbitMQ took no message");
    Ok(())
}

fn message(delivery: &Delivery) -> Message {
    Message {
        at: Instant::now(),
        exchange: delivery.exchange.to_string(),
        routing_key: delivery.routing_key.to_string(),
        properties: delivery.properties.clone(),
        body: delivery.data.clone(),
    }
}

fn id_of(properties: &BasicProperties) -> String {
    properties.message_id().as_ref().map(ToString::to_string).unwrap_or_default()
}
