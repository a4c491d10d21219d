//! How to reach the broker. Each loop has a connection of its own: a broker in alarm blocks publishing connections,
//! and a consumer must still be able to acknowledge.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lapin::options::QueueDeclareOptions;
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::FieldTable;
use lapin::uri::AMQPUri;
use lapin::{Connection, ConnectionProperties};

use crate::error::Failure;

/// A connection that is not there by then is given up and tried again.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Seconds between heartbeats: a link that went silent is found after two of them.
const HEARTBEAT: u16 = 10;
/// Bytes of a frame: the most that the broker's own default lets anybody send. No less, although messages are small: a
/// message's headers are never split, and one that does not fit would end every connection that it is delivered to.
const FRAME_MAX: u32 = 131_072;

/// The address of a broker and the name under which a process appears there.
#[derive(Clone)]
pub struct Broker {
    uri: Arc<AMQPUri>,
    process: Arc<str>,
}

impl Broker {
    /// # Errors
    /// Permanent if `url` is no AMQP URL (`amqp://user:password@host:5672/vhost`).
    pub fn new(url: &str, process: &str) -> Result<Broker, Failure> {
        let mut uri: AMQPUri = url.parse().map_err(|reason: String| {
            Failure::permanent("broker.url", format!("the broker's URL cannot be read: {reason}"))
        })?;
        uri.query.heartbeat.get_or_insert(HEARTBEAT);
        uri.query.frame_max.get_or_insert(FRAME_MAX);
        Ok(Broker { uri: Arc::new(uri), process: process.into() })
    }

    /// The name under which this process appears at the broker.
    pub fn process(&self) -> &str {
        &self.process
    }

    /// Opens a connection that appears as `process.purpose`. It never recovers by itself: whoever owns it rebuilds
    /// connection, channel and deliveries together.
    ///
    /// # Errors
    /// Unavailable if the broker does not answer or refuses.
    pub async fn connect(&self, purpose: &str) -> Result<Connection, Failure> {
        let name = format!("{}.{purpose}", self.process);
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        let connecting = Connection::connect_uri((*self.uri).clone(), properties);
        match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(connected) => Ok(connected?),
            Err(_) => Err(Failure::unavailable("broker.connect_timeout", "the broker did not answer in time")),
        }
    }
}

/// A queue as it is at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueNow {
    /// Messages that nobody has taken yet.
    pub ready: u32,
    /// Who takes from it.
    pub consumers: u32,
}

impl Broker {
    /// Asks for a queue, with a connection of its own that ends with the answer. `None`: there is no such queue.
    ///
    /// # Errors
    /// Unavailable if the broker does not answer or refuses.
    pub async fn look_at(&self, queue: &str) -> Result<Option<QueueNow>, Failure> {
        let connection = self.connect("look").await?;
        let asking = async {
            let channel = connection.create_channel().await?;
            let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            channel.queue_declare(queue.into(), passive, FieldTable::default()).await
        };
        let Ok(answer) = tokio::time::timeout(CONNECT_TIMEOUT, asking).await else {
            return Err(Failure::unavailable("broker.channel_timeout", "the broker did not answer in time"));
        };
        drop(tokio::time::timeout(Duration::from_secs(1), connection.close(200, "bye".into())).await);
        match answer {
            Ok(found) => Ok(Some(QueueNow { ready: found.message_count(), consumers: found.consumer_count() })),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn is_missing(error: &lapin::Error) -> bool {
    let not_found = AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND);
    matches!(error.kind(), lapin::ErrorKind::ProtocolError(error) if *error.kind() == not_found)
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Broker({}:{})", self.uri.authority.host, self.uri.authority.port)
    }
}
