//! The relay: publishes what the outbox has promised. One relay per schema works at a time, by an advisory lock on
//! the very connection it reads and moves rows with: who lost the lock can no longer write. A row leaves the outbox
//! only when the broker has confirmed its message, so a crash at any point sends again and never forgets.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use lapin::Connection;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::broker::Broker;
use crate::error::Failure;
use crate::hold;
use crate::pace::Pace;
use crate::retry::Backoff;
use crate::session::{Plans, Session, close, within};
use crate::supervise::{Pulse, State, supervise};
use crate::topology::Exchange;

mod holds;
mod publish;
mod rows;
mod span;
mod wire;

use holds::Holds;
use publish::{Outcome, Publisher};
use rows::Row;

/// How often a standing-by relay asks whether the lock is free: far below the take-over time that is promised.
const STANDBY: Duration = Duration::from_secs(1);
/// The code of a relay that waits because the broker takes nothing.
pub const ALARM: &str = "broker.alarm";
/// The first wait of a relay whose look has found something without a poke; each further one is twice as long.
const FIRST_IDLE: Duration = Duration::from_millis(25);

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
    /// Rows of the next batch: fewer than the setting where the broker cannot confirm so many in time. Outlives a term,
    /// so that a slow link is not tried with a full batch again and again.
    limit: AtomicI64,
}

/// What one step of a leading relay did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Nothing was due.
    Idle,
    /// Everything that was due is published or put off.
    CaughtUp,
    /// A full batch was published or put off: there may be more.
    Moved,
    /// Not every confirm came in time; what came is written down.
    Overdue,
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
        // A move that a crash of the server loses is a message that is sent again, and nobody waits for the disk twice.
        let parameters = [("idle_session_timeout", "10s"), ("synchronous_commit", "off")];
        let session = Session::new(database, &name, &parameters);
        let limit = AtomicI64::new(settings.batch);
        Relay { session, broker, exchanges, settings, poke: Poke::default(), pulse: Pulse::new("relay"), limit }
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
        let holds = within(Holds::load(&mut connection)).await?;
        let mut term = Term { holds, plans: Plans::new(), last: 0, looked: None };
        let (mut idle, mut is_poked, mut pace) = (FIRST_IDLE, false, Pace::new());
        while !stop.is_cancelled() {
            self.pulse.beat(State::Working);
            let begun = Instant::now();
            match self.step(&mut connection, &mut publisher, &mut term).await? {
                Step::Moved => continue,
                Step::Overdue => {
                    self.wait_out_an_alarm(&broker, &mut connection, stop).await?;
                    publisher.give_up_waiting().await?;
                    continue;
                }
                // Somebody appends without a poke, and may go on.
                Step::CaughtUp if !is_poked => idle = FIRST_IDLE,
                Step::CaughtUp | Step::Idle => {}
            }
            pace.ended(begun);
            if !broker.status().connected() {
                return Err(Failure::unavailable("broker.gone", "the connection to the broker is gone"));
            }
            is_poked = tokio::select! {
                () = stop.cancelled() => break,
                () = self.poke.0.notified() => true,
                () = tokio::time::sleep(idle) => false,
            };
            if !is_poked {
                idle = (idle * 2).min(self.settings.poll);
            }
            tokio::time::sleep_until(pace.next().into()).await;
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
        let limit = self.limit.load(Ordering::Relaxed);
        let rows = within(term.read(connection, limit, self.settings.poll)).await?;
        if rows.is_empty() {
            return Ok(Step::Idle);
        }
        term.plans.renew(connection).await?;
        // What is appended meanwhile brings a poke, so a batch with room left needs no second look.
        let is_full = i64::try_from(rows.len()).is_ok_and(|count| count >= limit);
        let done = if is_full { Step::Moved } else { Step::CaughtUp };
        let sorted = term.holds.sort(rows);
        within(rows::put_off(connection, &sorted.put_off)).await?;
        if sorted.publish.is_empty() {
            return Ok(done);
        }
        hold::point("relay.read").await;
        // No transaction is open while the broker is asked. A crash before the rows are moved sends them again.
        let outcome = publisher.publish(&sorted.publish).await?;
        hold::point("relay.confirmed").await;
        let settling = within(rows::settle(connection, &outcome.taken, self.settings.after_publish));
        hold::during("relay.moving", settling).await?;
        hold::point("relay.moved").await;
        for row in sorted.publish.iter().filter(|row| outcome.taken.contains(&row.id)) {
            term.holds.forget(row);
            record_published(row);
        }
        let failed = term.holds.first_failures(&sorted.publish, &outcome.refused);
        let until = within(rows::fail(connection, &failed, self.settings.backoff)).await?;
        term.holds.remember(&sorted.publish, &until);
        self.pace(&outcome);
        if outcome.taken.len() + outcome.refused.len() < sorted.publish.len() {
            // What is unknown is sent again before anything that came after it.
            (term.last, term.looked) = (0, None);
        }
        Ok(if outcome.is_overdue { Step::Overdue } else { done })
    }

    /// A broker in alarm takes nothing and confirms nothing until it has memory or disk again. Whatever is sent
    /// meanwhile, on this connection or on others, waits in a socket and arrives once more afterwards: so nothing is.
    async fn wait_out_an_alarm(
        &self,
        broker: &Connection,
        connection: &mut PgConnection,
        stop: &CancellationToken,
    ) -> Result<(), Failure> {
        while broker.status().blocked() && !stop.is_cancelled() {
            let reason = "the broker is in alarm: it lacks memory or disk".to_owned();
            self.pulse.beat(State::Waiting { code: ALARM.to_owned(), reason });
            // Else the database takes the lock of this idle session away.
            within(async { Ok(connection.ping().await?) }).await?;
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(STANDBY) => {}
            }
        }
        Ok(())
    }

    /// A batch is as large as what the broker confirmed in time, and grows again while it confirms all.
    fn pace(&self, outcome: &Outcome) {
        let limit = if outcome.is_overdue {
            i64::try_from(outcome.taken.len() + outcome.refused.len()).unwrap_or(i64::MAX)
        } else {
            self.limit.load(Ordering::Relaxed).saturating_mul(2)
        };
        self.limit.store(limit.clamp(1, self.settings.batch), Ordering::Relaxed);
    }
}

fn record_published(row: &Row) {
    let latency =
        (time::OffsetDateTime::now_utc() - row.replayed_at.unwrap_or(row.created_at)).as_seconds_f64().max(0.0);
    metrics::counter!("outbox_published_total", "type" => row.event_type.clone()).increment(1);
    metrics::histogram!("outbox_publish_latency_seconds").record(latency);
}

/// What a leading relay knows.
struct Term {
    holds: Holds,
    plans: Plans,
    /// The highest id it has read: fresh rows are read from there, past the index entries of rows that are gone.
    last: i64,
    /// When it last looked at everything that is due: ids are not commit order, so a lower one can appear later.
    looked: Option<Instant>,
}

impl Term {
    async fn read(&mut self, connection: &mut PgConnection, limit: i64, poll: Duration) -> Result<Vec<Row>, Failure> {
        let looked = self.looked.is_some_and(|at| at.elapsed() < poll);
        let mut rows = if looked { rows::fresh(connection, self.last, limit).await? } else { Vec::new() };
        if rows.is_empty() {
            rows = rows::due(connection, limit).await?;
            self.looked = Some(Instant::now());
        }
        self.last = rows.iter().map(|row| row.id).max().unwrap_or(0).max(self.last);
        Ok(rows)
    }
}
