//! The fixed way of a message through the consumer: decode, known or held, key slot, prepare, apply, commit,
//! acknowledge. One task owns channel and database session; only `prepare` runs beside it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures::{FutureExt as _, StreamExt as _};
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection};
use sqlx::PgConnection;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::acks::Acks;
use super::claims::Claims;
use super::handler::{Handler, Ready};
use super::item::{Item, Origin, Prepared, Ticket, Tried};
use super::slots::Slots;
use super::{Consumer, ConsumerSettings};
use crate::error::{Class, Failure};
use crate::hold;
use crate::pace::Pace;
use crate::relay::Poke;
use crate::session::{Plans, Session};
use crate::supervise::{Pulse, State, panic_text};
use crate::topology::{Queue, declare_queue};

/// How long the broker may take to open channel, queue and consumer: several answers, perhaps over a slow link.
const OPEN: Duration = Duration::from_secs(20);
/// How long a stopping consumer waits for what it has begun.
const DRAIN: Duration = Duration::from_secs(10);
/// How long a message waits whose preparation found our own database away.
const HOLD: Duration = Duration::from_secs(1);

/// One generation of a consumer.
pub(super) struct Pipeline<H: Handler> {
    pub(super) queue: &'static str,
    topology: Queue,
    pub(super) is_ordered: bool,
    pub(super) handler: Arc<H>,
    pub(super) settings: ConsumerSettings,
    pub(super) session: Session,
    pub(super) database: PgConnection,
    pub(super) plans: Plans,
    pub(super) channel: Channel,
    pub(super) poke: Poke,
    pub(super) claims: Claims,
    pub(super) acks: Acks,
    pub(super) slots: Slots<Item<H::Message>>,
    pub(super) ready: Vec<Prepared<H>>,
    pub(super) next_look: Instant,
    next_declare: Instant,
    /// A kept message runs that may be deadly: no other one beside it.
    pub(super) runs_alone: bool,
    preparing: JoinSet<Tried<H>>,
    deliveries: lapin::Consumer,
    pace: Pace,
}

enum Event<T> {
    Stop,
    Prepared(Result<T, tokio::task::JoinError>),
    Arrived(Option<Vec<Result<lapin::message::Delivery, lapin::Error>>>),
    /// What is ready may be applied.
    Due,
    Look,
}

impl<H: Handler> Pipeline<H> {
    pub(super) async fn open(
        consumer: &Consumer<H>,
        connection: &Connection,
        database: PgConnection,
    ) -> Result<Pipeline<H>, Failure> {
        let queue = consumer.queue;
        let opening = async {
            let channel = connection.create_channel().await?;
            declare_queue(&channel, queue).await?;
            // The buffer behind the stream has no bound of its own: prefetch is the only limit.
            channel.basic_qos(consumer.settings.prefetch, BasicQosOptions::default()).await?;
            let tag = format!("{}.{}", consumer.broker.process(), uuid::Uuid::now_v7());
            let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
            let deliveries = channel.basic_consume(queue.name.into(), tag.into(), options, arguments).await?;
            Ok::<_, Failure>((channel, deliveries))
        };
        let (channel, deliveries) = in_time(opening).await?;
        Ok(Pipeline {
            queue: queue.name,
            topology: queue,
            is_ordered: consumer.is_ordered,
            handler: consumer.handler.clone(),
            settings: consumer.settings,
            session: consumer.session.clone(),
            database,
            plans: Plans::new(),
            channel,
            poke: consumer.poke.clone(),
            claims: consumer.claims.clone(),
            acks: Acks::default(),
            slots: Slots::new(),
            ready: Vec::new(),
            next_look: Instant::now(),
            next_declare: Instant::now() + consumer.settings.redeclare,
            runs_alone: false,
            preparing: JoinSet::new(),
            deliveries,
            pace: Pace::new(),
        })
    }

    pub(super) fn into_database(self) -> PgConnection {
        self.database
    }

    /// Works until `stop` or until something breaks.
    pub(super) async fn run(&mut self, pulse: &Pulse, stop: &CancellationToken) -> Result<(), Failure> {
        let worked = self.work(pulse, stop).await;
        if worked.is_ok() {
            return self.drain().await;
        }
        // What is being prepared may be in the middle of a query: it ends by itself, and nobody takes its result.
        self.preparing.detach_all();
        worked
    }

    async fn work(&mut self, pulse: &Pulse, stop: &CancellationToken) -> Result<(), Failure> {
        let mut arrivals = self.deliveries.clone().ready_chunks(self.settings.batch);
        let mut intake = Pace::new();
        loop {
            if Instant::now() >= self.next_look {
                pulse.beat(State::Working);
                self.look().await?;
                // What it claimed may be ready: the next event can be a second away.
                self.advance().await?;
                self.declare_again().await?;
            }
            // Nothing here touches the database, so dropping the branches that lose drops no work.
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => Event::Stop,
                Some(prepared) = self.preparing.join_next() => Event::Prepared(prepared),
                () = tokio::time::sleep_until(self.pace.next().into()), if !self.ready.is_empty() => Event::Due,
                arrived = async { tokio::time::sleep_until(intake.next().into()).await; arrivals.next().await } => {
                    Event::Arrived(arrived)
                }
                () = tokio::time::sleep_until(self.next_look.into()) => Event::Look,
            };
            match event {
                Event::Stop => return Ok(()),
                Event::Prepared(prepared) => self.prepared(prepared).await?,
                Event::Arrived(Some(deliveries)) => {
                    let begun = Instant::now();
                    self.take_in(deliveries).await?;
                    // What has to be prepared is asked for first, together.
                    if H::PREPARES {
                        intake.ended(begun);
                    }
                }
                // A deleted queue and a cancelled consumer end the stream without an error.
                Event::Arrived(None) => {
                    return Err(Failure::unavailable("broker.consumer_ended", "the broker ended the consumer"));
                }
                Event::Look | Event::Due => {}
            }
            self.advance().await?;
        }
    }

    /// An exchange or a binding that somebody has deleted is there again: the broker tells nobody that it is gone.
    async fn declare_again(&mut self) -> Result<(), Failure> {
        if Instant::now() < self.next_declare {
            return Ok(());
        }
        self.next_declare = Instant::now() + self.settings.redeclare;
        in_time(declare_queue(&self.channel, self.topology)).await
    }

    /// Applies everything that is ready, and what becomes ready by that.
    async fn advance(&mut self) -> Result<(), Failure> {
        while let Some(prepared) = self.preparing.try_join_next() {
            self.prepared(prepared).await?;
        }
        while !self.ready.is_empty() && (self.ready.len() >= self.settings.batch || self.pace.is_due()) {
            let begun = Instant::now();
            let count = self.ready.len().min(self.settings.batch);
            let batch = self.ready.drain(..count).collect();
            self.apply(batch).await?;
            self.pace.ended(begun);
        }
        self.acks.flush(&self.channel).await
    }

    /// Takes nothing more, finishes what runs, and gives the claims of the rest back.
    async fn drain(&mut self) -> Result<(), Failure> {
        let tag = self.deliveries.tag();
        let cancelling = self.channel.basic_cancel(tag, BasicCancelOptions::default());
        drop(tokio::time::timeout(Duration::from_secs(1), cancelling).await);
        let deadline = tokio::time::Instant::now() + DRAIN;
        loop {
            self.pace = Pace::new();
            self.advance().await?;
            if !self.ready.is_empty() {
                continue;
            }
            if self.preparing.is_empty() {
                break;
            }
            match tokio::time::timeout_at(deadline, self.preparing.join_next()).await {
                Ok(Some(prepared)) => self.prepared(prepared).await?,
                Ok(None) | Err(_) => break,
            }
        }
        self.preparing.detach_all();
        self.claims.give_back(&mut self.database, self.queue).await
    }

    /// Runs the first half of the handler: in place if it has nothing to wait for, else beside the pipeline.
    pub(super) async fn begin(&mut self, item: Item<H::Message>) {
        let mut preparing = Box::pin(prepare(self.handler.clone(), item, Duration::ZERO));
        match futures::poll!(&mut preparing) {
            Poll::Ready((item, Ok(prepared))) => self.push_ready(item, prepared),
            Poll::Ready((item, Err(failure))) => {
                self.preparing.spawn(async move { (item, Err(failure)) });
            }
            Poll::Pending => {
                self.preparing.spawn(preparing);
            }
        }
    }

    fn push_ready(&mut self, item: Item<H::Message>, prepared: H::Prepared) {
        self.ready.push((Ready { delivery: item.delivery, prepared }, item.ticket));
    }

    async fn prepared(&mut self, prepared: Result<Tried<H>, tokio::task::JoinError>) -> Result<(), Failure> {
        let (item, result) = prepared.map_err(|error| {
            Failure::permanent("consumer.task", "a preparing task ended without its message").caused_by(error)
        })?;
        match result {
            Ok(prepared) => self.push_ready(item, prepared),
            Err(failure) if failure.class() == Class::Unavailable => {
                tracing::warn!(parent: item.delivery.span(), error.type = "Technical", error.code = failure.code(),
                    "{} holds until the database is back: {}", self.queue, failure.chain());
                self.preparing.spawn(prepare(self.handler.clone(), item, HOLD));
            }
            Err(failure) => self.fail(item.delivery, item.ticket, failure).await?,
        }
        Ok(())
    }

    /// Frees the slot of a message that is settled, and begins with the next one in line.
    pub(super) async fn leave(&mut self, ticket: &Ticket) {
        if let Origin::Fresh(tag) = ticket.origin {
            self.acks.settle(tag);
        }
        if let Some(next) = self.slots.leave(&ticket.raw.key) {
            self.begin(next).await;
        }
    }
}

/// What the broker is asked for is done by then, or the connection is given up.
async fn in_time<T>(asking: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(OPEN, asking).await.unwrap_or_else(|_| {
        Err(Failure::unavailable(
            "broker.channel_timeout",
            "the broker did not open channel, queue and consumer in time",
        ))
    })
}

/// Runs `prepare` in the message's span. A panic is a failure of this one message.
async fn prepare<H: Handler>(handler: Arc<H>, item: Item<H::Message>, wait: Duration) -> Tried<H> {
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
    hold::point_of("consumer.preparing", &item.ticket.raw.key).await;
    let span = item.delivery.span().clone();
    let preparing = AssertUnwindSafe(handler.prepare(&item.delivery).instrument(span)).catch_unwind().await;
    let result = preparing.unwrap_or_else(|panic| Err(panicked(panic.as_ref())));
    // A crash here has asked a third party: the next attempt asks under the same key.
    hold::point("consumer.prepared").await;
    (item, result)
}

/// A bug that shows with this message, in this state of the world: tried again, then parked.
pub(super) fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    Failure::transient("handler.panicked", format!("the handler panicked: {}", panic_text(panic)))
}
