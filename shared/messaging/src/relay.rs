//! The relay: publishes what the outbox has promised. One relay per schema works at a time, by an advisory lock on
//! the very connection it reads and moves rows with: who lost the lock can no longer write. A row leaves the outbox
//! only when the broker has confirmed its message, so a crash at any point sends again and never forgets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::broker::Broker;
use crate::error::Failure;
use crate::hold;
use crate::retry::Backoff;
use crate::session::{Session, close, within};
use crate::supervise::{Pulse, State, supervise};
use crate::topology::Exchange;

mod holds;
mod publish;
mod rows;
mod span;

use holds::Holds;
use publish::Publisher;
use rows::Row;

/// How often a standing-by relay asks whether the lock is free: far below the take-over time that is promised.
const STANDBY: Duration = Duration::from_secs(1);
/// The first wait of an idle relay; each further one is twice as long.
const FIRST_IDLE: Duration = Duration::from_millis(10);

/// What becomes of a row whose message the broker has confirmed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AfterPublish {
    /// It moves to `outbox_history`, for replay and for questions.
    #[default]
    Archive,
    /// It is deleted.
    Delete,
}

/// How a relay works. The default suits most.
#[derive(Clone, Debug)]
pub struct RelaySettings {
    /// Rows that are published together.
    pub batch: i64,
    /// The longest time between two looks at the outbox. A poke makes it look at once.
    pub poll: Duration,
    /// How long the broker may take to confirm a batch.
    pub confirm_deadline: Duration,
    /// The waits of a row that the broker did not take.
    pub backoff: Backoff,
    /// What becomes of published rows.
    pub after_publish: AfterPublish,
}

impl Default for RelaySettings {
    fn default() -> RelaySettings {
        RelaySettings {
            batch: 500,
            poll: Duration::from_millis(200),
            confirm_deadline: Duration::from_secs(5),
            backoff: Backoff { first: Duration::from_millis(200), factor: 2, longest: Duration::from_secs(30) },
            after_publish: AfterPublish::Archive,
        }
    }
}

/// Wakes the relay of this process. Call it after a commit that appended; it costs nothing and never waits.
#[derive(Clone, Debug, Default)]
pub struct Poke(Arc<Notify>);

impl Poke {
    /// There may be something to publish.
    pub fn poke(&self) {
        self.0.notify_one();
    }
}

/// Publishes the rows of one schema's outbox.
#[derive(Debug)]
pub struct Relay {
    session: Session,
    broker: Broker,
    exchanges: &'static [Exchange],
    settings: RelaySettings,
    poke: Poke,
    pulse: Pulse,
}

/// What one step of a leading relay did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Nothing was due.
    Idle,
    /// Rows were published or put off; there may be more.
    Moved,
}

impl Relay {
    /// A relay for the outbox that `database`'s search path names. It declares `exchanges` whenever it connects.
    pub fn new(
        database: &PgConnectOptions,
        broker: Broker,
        exchanges: &'static [Exchange],
        settings: RelaySettings,
    ) -> Relay {
        // A leader that is paused or cut off is idle to the server: it loses its session, and the lock with it.
        let name = format!("{}.relay", broker.process());
        let session = Session::new(database, &name, &[("idle_session_timeout", "10s")]);
        Relay { session, broker, exchanges, settings, poke: Poke::default(), pulse: Pulse::new("relay") }
    }

    /// Wakes this relay.
    pub fn poke(&self) -> Poke {
        self.poke.clone()
    }

    /// This relay's sign of life.
    pub fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }

    /// Works until `stop`, whatever happens to the database or the broker. When asked to stop it finishes its batch.
    pub fn run(self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        // Boxed, so that it is compiled here and not again in each program.
        Box::pin(async move { supervise(&self.pulse, &stop, || self.lead(&stop)).await })
    }

    /// One term: takes the lock, connects, and publishes until something breaks.
    async fn lead(&self, stop: &CancellationToken) -> Result<(), Failure> {
        let mut connection = self.session.open().await?;
        while !within(rows::try_lock(&mut connection)).await? {
            self.pulse.beat(State::Standby);
            tokio::select! {
                () = stop.cancelled() => { close(connection).await; return Ok(()) }
                () = tokio::time::sleep(STANDBY) => {}
            }
        }
        let broker = self.broker.connect("relay").await?;
        let mut publisher =
            Publisher::open(self.broker.process(), &broker, self.exchanges, self.settings.confirm_deadline).await?;
        let mut term = Term { holds: within(Holds::load(&mut connection)).await?, last: 0, looked: None };
        let mut idle = FIRST_IDLE;
        while !stop.is_cancelled() {
            self.pulse.beat(State::Working);
            match self.step(&mut connection, &mut publisher, &mut term).await? {
                Step::Moved => idle = FIRST_IDLE,
                Step::Idle => {
                    if !broker.status().connected() {
                        return Err(Failure::unavailable("broker.gone", "the connection to the broker is gone"));
                    }
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = self.poke.0.notified() => idle = FIRST_IDLE,
                        () = tokio::time::sleep(idle) => idle = (idle * 2).min(self.settings.poll),
                    }
                }
            }
        }
        drop(tokio::time::timeout(Duration::from_secs(1), broker.close(200, "bye".into())).await);
        close(connection).await;
        Ok(())
    }

    /// Reads one batch, publishes it, and writes down what came of it.
    async fn step(
        &self,
        connection: &mut PgConnection,
        publisher: &mut Publisher<'_>,
        term: &mut Term,
    ) -> Result<Step, Failure> {
        let rows = within(term.read(connection, &self.settings)).await?;
        if rows.is_empty() {
            return Ok(Step::Idle);
        }
        let sorted = term.holds.sort(rows);
        within(rows::put_off(connection, &sorted.put_off)).await?;
        if sorted.publish.is_empty() {
            return Ok(Step::Moved);
        }
        hold::point("relay.read").await;
        // No transaction is open while the broker is asked. A crash before the rows are moved sends them again.
        let outcome = publisher.publish(&sorted.publish).await?;
        hold::point("relay.confirmed").await;
        within(rows::settle(connection, &outcome.taken, self.settings.after_publish)).await?;
        for row in sorted.publish.iter().filter(|row| outcome.taken.contains(&row.id)) {
            term.holds.forget(row);
            record_published(row);
        }
        let failed = term.holds.first_failures(&sorted.publish, &outcome.refused);
        let until = within(rows::fail(connection, &failed, self.settings.backoff)).await?;
        term.holds.remember(&sorted.publish, &until);
        Ok(Step::Moved)
    }
}

fn record_published(row: &Row) {
    let latency = (time::OffsetDateTime::now_utc() - row.created_at).as_seconds_f64().max(0.0);
    metrics::counter!("outbox_published_total", "type" => row.event_type.clone()).increment(1);
    metrics::histogram!("outbox_publish_latency_seconds").record(latency);
}

/// What a leading relay knows.
struct Term {
    holds: Holds,
    /// The highest id it has read: fresh rows are read from there, past the index entries of rows that are gone.
    last: i64,
    /// When it last looked at everything that is due: ids are not commit order, so a lower one can appear later.
    looked: Option<Instant>,
}

impl Term {
    async fn read(&mut self, connection: &mut PgConnection, settings: &RelaySettings) -> Result<Vec<Row>, Failure> {
        let looked = self.looked.is_some_and(|at| at.elapsed() < settings.poll);
        let mut rows = if looked { rows::fresh(connection, self.last, settings.batch).await? } else { Vec::new() };
        if rows.is_empty() {
            rows = rows::due(connection, settings.batch).await?;
            self.looked = Some(Instant::now());
        }
        self.last = rows.iter().map(|row| row.id).max().unwrap_or(0).max(self.last);
        Ok(rows)
    }
}
