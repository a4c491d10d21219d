//! Waiting for a named state, with a deadline, in place of sleeping.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::bail;
use tokio::time::{Instant, sleep};

/// What one look saw.
pub enum State<T> {
    /// The state that was waited for.
    Reached(T),
    /// What is there so far: shown when the deadline passes.
    Pending(String),
    /// It can no longer be reached, and why.
    Lost(String),
}

impl<T> State<T> {
    /// Not yet; `seen` is shown when the deadline passes.
    pub fn pending(seen: impl Debug) -> Self {
        State::Pending(format!("{seen:#?}"))
    }
}

/// How long we wait between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks until the state is reached. A look that fails counts as *not yet*: a service may be on its way up.
///
/// # Errors
/// The deadline passed; the error shows what was seen last.
pub async fn eventually<T>(
    deadline: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> anyhow::Result<State<T>>,
) -> anyhow::Result<T> {
    let begin = Instant::now();
    loop {
        let last = match look().await {
            Ok(State::Reached(value)) => return Ok(value),
            Ok(State::Pending(seen)) => seen,
            Ok(State::Lost(why)) => bail!("never: {what}, because {why}"),
            Err(error) => format!("error: {error:#}"),
        };
        if begin.elapsed() >= deadline {
            bail!("after {:.1} s not yet: {what}. Last seen: {last}", begin.elapsed().as_secs_f64());
        }
        sleep(PAUSE).await;
    }
}
