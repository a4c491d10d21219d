//! What the order service tells Prometheus: how many sagas stand where, how long they take, and what is overdue.

use contracts::step::Step;
use messaging::Failure;
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use sqlx::PgPool;
use time::OffsetDateTime;

use crate::domain::State;
use crate::store::sagas;

/// Names the figures for a reader who meets them for the first time.
pub(crate) fn describe() {
    describe_gauge!("saga_open", "Sagas that have not ended, by state and step; counted up to 100,000.");
    describe_gauge!("saga_oldest_overdue_seconds", Unit::Seconds, "How long the longest overdue step is overdue.");
    describe_counter!("saga_transitions_total", "Moves of sagas, by the state that they came to.");
    describe_counter!("saga_answers_ignored_total", "Answers that changed nothing, by kind: late, repeated, stale.");
    describe_histogram!("saga_duration_seconds", Unit::Seconds, "From an order to the end of its saga, by that end.");
}

/// A saga of that time came to this state.
pub(crate) fn record(state: State, created_at: OffsetDateTime) {
    let (name, _) = state.names();
    counter!("saga_transitions_total", "state" => name).increment(1);
    if state.is_final() {
        let took = (OffsetDateTime::now_utc() - created_at).as_seconds_f64().max(0.0);
        histogram!("saga_duration_seconds", "end" => name).record(took);
    }
}

/// Reads how the sagas stand now.
pub(crate) async fn read(pool: PgPool) -> Result<(), Failure> {
    let mut connection = pool.acquire().await?;
    let open = sagas::count_open(&mut connection).await?;
    for step in Step::ALL {
        for state in [State::Running(step), State::Compensating(step), State::NeedsAttention(step)] {
            let (name, step) = (state.names().0, step.name());
            let found = open.iter().find(|open| open.state == name && open.step.as_deref() == Some(step));
            let count = found.map_or(0, |open| i32::try_from(open.count).unwrap_or(i32::MAX));
            gauge!("saga_open", "state" => name, "step" => step).set(f64::from(count));
        }
    }
    let due_in = sagas::next_deadline(&mut connection).await?;
    gauge!("saga_oldest_overdue_seconds").set(due_in.map_or(0.0, |seconds| (-seconds).max(0.0)));
    Ok(())
}
