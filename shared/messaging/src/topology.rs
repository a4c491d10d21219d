//! Exchanges, queues and bindings as values. Who consumes declares its own queue; everybody declares the exchanges.
//! Declaring again what is there is harmless; what is there with other arguments is one clear error.

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, ExchangeKind};

use crate::error::Failure;

/// A durable exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exchange {
    /// Its name.
    pub name: &'static str,
    /// Whether the routing key is matched by pattern (topic) or by equality (direct).
    pub kind: Kind,
}

/// How an exchange matches routing keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// By equality.
    Direct,
    /// By pattern: `*` is one word, `#` any number.
    Topic,
}

/// A durable quorum queue and its bindings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queue {
    /// Its name; also the consumer's name in the inbox.
    pub name: &'static str,
    /// Exchange and routing key of each binding.
    pub bindings: &'static [(Exchange, &'static str)],
    /// Only one consumer at a time gets messages; the others stand by. Needed where order matters.
    pub single_active_consumer: bool,
}

/// So high that the broker never drops a message by itself: since 4.0 its default is 20 deliveries. Parking is ours.
const DELIVERY_LIMIT: i64 = 1_000_000_000;

/// Declares an exchange.
///
/// # Errors
/// Permanent if it exists with other arguments, unavailable if the broker is away. Either way the channel is closed.
pub async fn declare_exchange(channel: &Channel, exchange: Exchange) -> Result<(), Failure> {
    let kind = match exchange.kind {
        Kind::Direct => ExchangeKind::Direct,
        Kind::Topic => ExchangeKind::Topic,
    };
    // Durable: a restart of the broker must not lose the way to the queues.
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    channel
        .exchange_declare(exchange.name.into(), kind, options, FieldTable::default())
        .await
        .map_err(|error| refused("exchange", exchange.name, error))
}

/// Declares a queue, the exchanges it is bound to, and its bindings.
///
/// # Errors
/// Permanent if one of them exists with other arguments (the broker's reason names the argument), unavailable if the
/// broker is away. Either way the channel is closed.
pub async fn declare_queue(channel: &Channel, queue: Queue) -> Result<(), Failure> {
    let mut arguments = FieldTable::default();
    // Quorum: on disk before it is confirmed, and redeliveries are counted.
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    arguments.insert("x-delivery-limit".into(), AMQPValue::LongLongInt(DELIVERY_LIMIT));
    if queue.single_active_consumer {
        arguments.insert("x-single-active-consumer".into(), AMQPValue::Boolean(true));
    }
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel
        .queue_declare(queue.name.into(), options, arguments)
        .await
        .map_err(|error| refused("queue", queue.name, error))?;
    for (exchange, routing_key) in queue.bindings {
        declare_exchange(channel, *exchange).await?;
        channel
            .queue_bind(
                queue.name.into(),
                exchange.name.into(),
                (*routing_key).into(),
                QueueBindOptions::default(),
                FieldTable::default(),
            )
            .await
            .map_err(|error| refused("binding of", queue.name, error))?;
    }
    Ok(())
}

/// 406 `PRECONDITION_FAILED` is a contradiction between two declarations: no retry can help, a person must decide.
fn refused(what: &str, name: &str, error: lapin::Error) -> Failure {
    let text = error.to_string();
    let contradicts = matches!(error.kind(), lapin::ErrorKind::ProtocolError(error)
        if error.get_id() == 406 || error.get_id() == 403);
    if contradicts {
        Failure::permanent("topology.contradiction", format!("the broker refuses the {what} {name}: {text}"))
    } else {
        Failure::from(error)
    }
}
