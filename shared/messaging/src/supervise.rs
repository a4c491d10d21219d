//! Keeps a loop alive for ever: whatever ends it, a lost connection, an error, a panic, it is started again with
//! back-off, until the process is asked to stop. Its pulse tells whether it really works.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;

use crate::error::{Class, Failure};
use crate::retry::Backoff;

/// Waits between two starts of a loop: short enough that a restarted broker is used again at once.
const RESTART: Backoff = Backoff { first: Duration::from_millis(200), factor: 2, longest: Duration::from_secs(5) };
/// A loop that ran this long was healthy: its next end is a new story.
const HEALTHY: Duration = Duration::from_secs(10);
/// The same trouble is told again after this time, so that an outage does not fill the log.
const REMIND: Duration = Duration::from_secs(30);

/// What a loop says about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// It has not reached what it needs yet.
    Starting,
    /// It has what it needs and does its work.
    Working,
    /// Another instance does the work; this one would take over.
    Standby,
    /// It lacks something.
    Waiting {
        /// The code of the [`Failure`] that ended its last round.
        code: String,
        /// The same for a person.
        reason: String,
    },
    /// It was asked to stop, and did.
    Stopped,
}

/// The sign of life of one loop: its state, and when it last went round.
#[derive(Clone, Debug)]
pub struct Pulse {
    name: Arc<str>,
    inner: Arc<Mutex<Beat>>,
}

#[derive(Debug)]
struct Beat {
    state: State,
    /// Since when it is in this state.
    since: Instant,
    last: Instant,
}

impl Pulse {
    /// The pulse of a loop that has not begun.
    pub fn new(name: impl Into<Arc<str>>) -> Pulse {
        let now = Instant::now();
        Pulse { name: name.into(), inner: Arc::new(Mutex::new(Beat { state: State::Starting, since: now, last: now })) }
    }

    /// The loop's name: `relay`, `consumer.payment.commands`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Says that the loop went round and how it is.
    pub fn beat(&self, state: State) {
        let name = || self.name.to_string();
        metrics::gauge!("messaging_loop_last_beat_timestamp_seconds", "loop" => name()).set(unix_seconds());
        let works = matches!(state, State::Working | State::Standby);
        metrics::gauge!("messaging_loop_working", "loop" => name()).set(f64::from(u8::from(works)));
        let now = Instant::now();
        let mut beat = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let since = if beat.state == state { beat.since } else { now };
        *beat = Beat { state, since, last: now };
    }

    /// The last state, and how long ago the loop went round.
    pub fn read(&self) -> (State, Duration) {
        let beat = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        (beat.state.clone(), beat.last.elapsed())
    }

    /// How long the loop has worked without a break; `None` if it does not.
    pub fn working_for(&self) -> Option<Duration> {
        let beat = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        (beat.state == State::Working).then(|| beat.since.elapsed())
    }
}

fn unix_seconds() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |age| age.as_secs_f64())
}

/// Runs `generation` again and again until `stop`: with back-off after an error or a panic, at once after `Ok`.
/// Everything that a generation opened ends with it. Returns only after `stop`, when the last generation has ended.
pub async fn supervise<F, Fut>(pulse: &Pulse, stop: &CancellationToken, mut generation: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<(), Failure>>,
{
    let mut failures = 0;
    let mut last_told: Option<(String, Instant)> = None;
    while !stop.is_cancelled() {
        let begun = Instant::now();
        let failure = match AssertUnwindSafe(generation()).catch_unwind().await {
            Ok(Ok(())) => {
                failures = 0;
                continue;
            }
            Ok(Err(failure)) => failure,
            Err(panic) => Failure::permanent("loop.panicked", format!("panicked: {}", panic_text(panic.as_ref()))),
        };
        if begun.elapsed() > HEALTHY {
            failures = 0;
        }
        failures += 1;
        let reason = failure.chain();
        let repeated = last_told.as_ref().is_some_and(|(told, at)| *told == reason && at.elapsed() < REMIND);
        if !repeated {
            tell(pulse, &failure);
            last_told = Some((reason.clone(), Instant::now()));
        }
        pulse.beat(State::Waiting { code: failure.code().to_owned(), reason });
        let pause = RESTART.delay(failures);
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(pause) => {}
        }
    }
    pulse.beat(State::Stopped);
}

fn tell(pulse: &Pulse, failure: &Failure) {
    let (name, code, reason) = (pulse.name(), failure.code(), failure.chain());
    if failure.class() == Class::Unavailable {
        tracing::warn!(loop.name = name, error.type = "Technical", error.code = code, "{name} waits and will start again: {reason}");
    } else {
        tracing::error!(loop.name = name, error.type = "Technical", error.code = code, "{name} failed and will start again: {reason}");
    }
}

/// What a panic said, if it said something.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a word")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_loop_that_fails_or_panics_is_started_again_until_it_is_stopped() {
        let (pulse, stop) = (Pulse::new("test"), CancellationToken::new());
        let mut starts = 0;
        supervise(&pulse, &stop, || {
            starts += 1;
            let (starts, stop) = (starts, stop.clone());
            async move {
                match starts {
                    1 => Err(Failure::unavailable("test", "away")),
                    2 => panic!("once"),
                    3 => Ok(()),
                    _ => {
                        stop.cancel();
                        Ok(())
                    }
                }
            }
        })
        .await;
        assert_eq!(starts, 4);
        assert_eq!(pulse.read().0, State::Stopped);
    }
}
