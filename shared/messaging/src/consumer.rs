//! The consumer: takes what its queue has, remembers it in the inbox, and runs the handler in the same transaction.
//! A message is acknowledged only after its effect, or the message itself, is committed. So an effect is once per
//! message id, and nothing is lost; a message that fails is kept in the inbox, where it can be seen.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use tokio_util::sync::CancellationToken;

use crate::broker::Broker;
use crate::error::Failure;
use crate::relay::Poke;
use crate::session::{Session, close, within};
use crate::supervise::{Pulse, State, supervise};
use crate::topology::Queue;
use crate::trace::Later;

mod acks;
mod apply;
mod claims;
pub mod handler;
mod intake;
mod item;
mod look;
mod pipeline;
pub(crate) mod raw;
mod slots;
mod span;
mod verdict;

use claims::Claims;
use handler::Handler;
use pipeline::Pipeline;

/// How a consumer works. The default suits most.
#[derive(Clone, Copy, Debug)]
pub struct ConsumerSettings {
    /// Messages that the broker hands out before the first is acknowledged: the bound of what is in memory.
    pub prefetch: u16,
    /// Messages that are applied in one transaction.
    pub batch: usize,
    /// Kept messages that run at once.
    pub retries_at_once: i64,
    /// How long `apply` may take; what takes longer is rolled back and counts as a transient failure.
    pub apply_deadline: Duration,
    /// After so many runs in a row that never told their end a message is parked unrun.
    pub deadly_after: u32,
    /// How long a claimed message belongs to its run. Longer than any run: another one may begin after it.
    pub lease: Duration,
    /// How often queue, exchanges and bindings are declared again: what somebody deleted is back by then.
    pub redeclare: Duration,
    /// In which trace later attempts of a message are shown.
    pub later: Later,
}

impl Default for ConsumerSettings {
    fn default() -> ConsumerSettings {
        ConsumerSettings {
            prefetch: 300,
            batch: 100,
            retries_at_once: 32,
            apply_deadline: Duration::from_secs(10),
            deadly_after: 5,
            lease: Duration::from_secs(15),
            redeclare: Duration::from_secs(30),
            later: Later::Continue,
        }
    }
}

/// Consumes one queue with one handler.
#[derive(Debug)]
pub struct Consumer<H> {
    queue: Queue,
    handler: Arc<H>,
    session: Session,
    broker: Broker,
    poke: Poke,
    pulse: Pulse,
    settings: ConsumerSettings,
    is_ordered: bool,
    claims: Claims,
}

impl<H: Handler> Consumer<H> {
    /// A consumer of `queue`, whose inbox `database`'s search path names. What the handler appends is published soon
    /// because the consumer pokes the relay after each commit.
    pub fn new(queue: Queue, handler: H, database: &PgConnectOptions, broker: Broker, poke: Poke) -> Consumer<H> {
        let name = format!("{}.consumer.{}", broker.process(), queue.name);
        // A lock that somebody else holds delays one message, not the loop. A session that was given up in the middle
        // of a statement ends soon: until then it locks the very message whose failure is to be written down.
        let settings = [("lock_timeout", "2s"), ("client_connection_check_interval", "500ms")];
        let session = Session::new(database, &name, &settings);
        Consumer {
            queue,
            handler: Arc::new(handler),
            session,
            broker,
            poke,
            pulse: Pulse::new(format!("consumer.{}", queue.name)),
            settings: ConsumerSettings::default(),
            is_ordered: false,
            claims: Claims::default(),
        }
    }

    /// Other settings.
    #[must_use]
    pub fn with_settings(mut self, settings: ConsumerSettings) -> Consumer<H> {
        self.settings = settings;
        self
    }

    /// Keeps the order within a key: while a message of a key is retrying or parked, later ones of that key wait in
    /// the inbox and run after it; other keys go on. The queue gets a single active consumer.
    #[must_use]
    pub fn ordered(mut self) -> Consumer<H> {
        self.is_ordered = true;
        self.queue.single_active_consumer = true;
        self
    }

    /// This consumer's sign of life.
    pub fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }

    /// Works until `stop`, whatever happens to the database or the broker. When asked to stop it takes nothing more,
    /// finishes what runs, and leaves the rest to the broker; no attempt is counted for what it leaves.
    pub async fn run(self, stop: CancellationToken) {
        supervise(&self.pulse, &stop, || self.generation(&stop)).await;
    }

    /// Database session, connection, channel and deliveries of one generation: they end together.
    async fn generation(&self, stop: &CancellationToken) -> Result<(), Failure> {
        let mut database = self.session.open().await?;
        within(self.claims.give_back(&mut database, self.queue.name)).await?;
        let broker = self.broker.connect(self.queue.name).await?;
        let mut pipeline = Pipeline::open(self, &broker, database).await?;
        self.pulse.beat(State::Working);
        let ended = pipeline.run(&self.pulse, stop).await;
        if ended.is_ok() {
            drop(tokio::time::timeout(Duration::from_secs(1), broker.close(200, "bye".into())).await);
            close(pipeline.into_database()).await;
        }
        ended
    }
}

/// Counts what became of a message.
fn count(queue: &'static str, outcome: &'static str) {
    metrics::counter!("messaging_handled_total", "consumer" => queue, "outcome" => outcome).increment(1);
}
