//! Sweeps deadlines: rows, judged by the database's clock, each acted on once however many instances sweep. A
//! deadline does not run while its command still waits in our own outbox, nor while we cannot hear the answers: an
//! outage of the broker cancels nobody.

use std::time::Duration;

use contracts::step::Direction;
use messaging::{Cause, Class, Failure, Later, Poke, Pulse, State, TraceContext, hold, supervise};
use sqlx::{PgConnection, PgPool};
use tokio_util::sync::CancellationToken;
use tracing::Span;
use uuid::Uuid;

use crate::definition::Deadlines;
use crate::domain::{Attempt, Event};
use crate::progress::{self, Became, Happening};
use crate::store::sagas::{self, Locked};
use crate::store::steps::{self, StepRow};

/// The longest time between two looks: a deadline that another instance wrote is found by then.
const LOOK: Duration = Duration::from_secs(1);
/// Sagas that one transaction moves on.
const BATCH: i64 = 100;
/// So long we must have heard answers before a deadline counts, or the step's whole time if that is less. After an
/// outage the participants come back within five seconds each, one after another, and bring answers that are in time.
const HEARING: Duration = Duration::from_secs(15);

/// The loop over overdue steps.
pub(crate) struct Sweep {
    pub(crate) pool: PgPool,
    /// The consumer of the answers.
    pub(crate) replies: Pulse,
    pub(crate) deadlines: Deadlines,
    /// In which trace a deadline is shown.
    pub(crate) later: Later,
    pub(crate) poke: Poke,
}

impl Sweep {
    /// Works until `stop`.
    pub(crate) async fn run(self, pulse: Pulse, stop: CancellationToken) {
        supervise::supervise(&pulse, &stop, || async {
            while !stop.is_cancelled() {
                pulse.beat(State::Working);
                let wait = self.step().await?;
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(wait) => {}
                }
            }
            Ok(())
        })
        .await;
    }

    /// Acts on what is overdue and returns how long there is nothing to do.
    async fn step(&self) -> Result<Duration, Failure> {
        let due_in = sagas::next_deadline(&mut *self.pool.acquire().await?).await?;
        match due_in {
            Some(seconds) if seconds <= 0.0 => {}
            Some(seconds) => return Ok(Duration::from_secs_f64(seconds).min(LOOK)),
            None => return Ok(LOOK),
        }
        let needed = HEARING.min(self.deadlines.of(Direction::Do));
        let heard = self.replies.working_for().unwrap_or_default();
        if heard < needed {
            return Ok((needed - heard).min(LOOK));
        }
        let overdue = sagas::list_overdue(&mut *self.pool.acquire().await?, BATCH).await?;
        match self.act(&overdue).await {
            Err(failure) if failure.class() != Class::Unavailable => self.act_one_by_one(&overdue).await,
            acted => acted,
        }
    }

    /// One saga that cannot be moved on must not hold the others.
    async fn act_one_by_one(&self, overdue: &[Uuid]) -> Result<Duration, Failure> {
        for id in overdue {
            let Err(failure) = self.act(&[*id]).await else { continue };
            if failure.class() == Class::Unavailable {
                return Err(failure);
            }
            tracing::error!(saga.id = %id, error.type = "Technical", error.code = failure.code(),
                "a deadline cannot be acted on, its step gets its whole time again: {}", failure.chain());
            let mut connection = self.pool.acquire().await?;
            for row in steps::list(&mut connection, &[*id]).await?.iter().filter(|row| row.is_overdue) {
                let time = self.deadlines.of(row.direction);
                steps::postpone(&mut connection, row.saga_id, row.step, row.direction, time).await?;
            }
        }
        Ok(Duration::ZERO)
    }

    /// Acts on these sagas' overdue steps in one transaction.
    async fn act(&self, overdue: &[Uuid]) -> Result<Duration, Failure> {
        let mut transaction = self.pool.begin().await?;
        let acts = match self.decide(&mut transaction, overdue).await {
            Ok(acts) => acts,
            Err(failure) => {
                // Its locks must be gone when each saga is tried alone: a locked one is passed over.
                transaction.rollback().await?;
                return Err(failure);
            }
        };
        if acts.is_empty() {
            // Somebody else holds them: an answer that is just being taken, or another sweep.
            return Ok(Duration::from_millis(50));
        }
        hold::point("deadline.before_commit").await;
        // A crash before this line leaves the deadline overdue; after it, the next command is in the outbox.
        transaction.commit().await?;
        hold::point("deadline.committed").await;
        self.poke.poke();
        let mut moved = false;
        for act in &acts {
            moved |= act.tell();
        }
        Ok(if moved { Duration::ZERO } else { LOOK })
    }

    /// Decides and writes what becomes of the overdue steps of those sagas that nobody else holds.
    async fn decide(&self, connection: &mut PgConnection, overdue: &[Uuid]) -> Result<Vec<Act>, Failure> {
        let ids = sagas::lock_free(connection, overdue).await?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let locked = sagas::lock(connection, &ids).await?;
        hold::point("deadline.locked").await;
        // Read under the lock: an answer between the deadline and now counts.
        let rows = steps::list(connection, &ids).await?;
        let mut acts = Vec::new();
        let mut spans = Vec::new();
        let mut happenings = Vec::new();
        for row in rows.iter().filter(|row| row.is_overdue) {
            let Some(saga) = locked.iter().find(|saga| saga.id == row.saga_id) else { continue };
            if row.is_unsent {
                let time = self.deadlines.of(row.direction);
                steps::postpone(connection, row.saga_id, row.step, row.direction, time).await?;
                acts.push(Act::PutOff);
                continue;
            }
            let span = open_span(saga, row, self.later);
            happenings.push(happening(saga, row, &span));
            spans.push(span);
        }
        let became = progress::advance(connection, &self.deadlines, &rows, happenings).await?;
        acts.extend(spans.into_iter().zip(became).map(|(span, became)| Act::Decided(span, became)));
        Ok(acts)
    }
}

/// What became of one overdue step.
enum Act {
    /// Its command has not left the outbox: it gets its whole time again.
    PutOff,
    Decided(Span, Became),
}

fn happening<'a>(saga: &'a Locked, row: &StepRow, span: &Span) -> Happening<'a> {
    let event = match row.direction {
        Direction::Do => Event::DoDeadline(row.step),
        Direction::Undo => Event::UndoDeadline(row.step, Attempt::Latest),
    };
    let cause = Cause {
        correlation_id: saga.order.correlation_id.clone(),
        causation_id: Some(row.command_id),
        saga_id: Some(saga.id),
        trace: TraceContext::of_span(span),
    };
    Happening { saga, event, cause, answer: None }
}

/// A deadline stays in the trace of its order, or links to it.
fn open_span(saga: &Locked, row: &StepRow, later: Later) -> Span {
    let span = tracing::info_span!(
        parent: None,
        "deadline",
        otel.name = format!("deadline {} {}", row.direction.name(), row.step.name()),
        correlation.id = saga.order.correlation_id,
        saga.id = %saga.id,
        order.id = %saga.order.id,
        step.name = row.step.name(),
        attempt = i64::from(row.attempts),
        outcome = tracing::field::Empty,
    );
    later.place(&span, &saga.order.trace);
    span
}

impl Act {
    /// Logs it. True if the deadline has gone.
    fn tell(&self) -> bool {
        match self {
            Act::PutOff => true,
            Act::Decided(span, Became::Moved(transition)) => {
                let (state, _) = transition.saga.state.names();
                span.record("outcome", state);
                tracing::warn!(parent: span, status = state, error.type = "Technical", error.code = "step_overdue",
                    "no answer in time: the saga is now {state}");
                true
            }
            // The table has an asked step that its saga does not wait for: nothing here can have written that.
            Act::Decided(span, Became::Ignored(_) | Became::Nothing) => {
                tracing::error!(parent: span, status = "ignored", "a deadline of a step that nobody waits for");
                false
            }
        }
    }
}
