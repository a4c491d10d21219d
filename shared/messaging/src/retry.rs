//! When to try again: exponential back-off with jitter, a number of attempts or none.

use std::time::Duration;

use rand::Rng as _;

/// Exponential back-off with equal jitter: half of the time is fixed, half is random, so that waiters neither crowd
/// nor come at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    /// The wait after the first failure.
    pub first: Duration,
    /// By which each further wait is longer.
    pub factor: u32,
    /// No wait is longer.
    pub longest: Duration,
}

impl Backoff {
    /// The wait after the `failures`-th failure in a row (the first is 1).
    pub fn delay(&self, failures: u32) -> Duration {
        let full = self.ceiling(failures);
        let half = full / 2;
        half + half.mul_f64(rand::rng().random::<f64>())
    }

    fn ceiling(&self, failures: u32) -> Duration {
        let growth = self.factor.checked_pow(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.checked_mul(growth).map_or(self.longest, |full| full.min(self.longest))
    }
}

/// How often a message is tried, and when again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryPolicy {
    /// All runs together, the first included. `None`: until it succeeds.
    pub attempts: Option<u32>,
    /// The waits between them.
    pub backoff: Backoff,
}

impl Default for RetryPolicy {
    /// Four attempts, waits of 200 ms, 400 ms and 800 ms, less jitter.
    fn default() -> RetryPolicy {
        RetryPolicy {
            attempts: Some(4),
            backoff: Backoff { first: Duration::from_millis(200), factor: 2, longest: Duration::from_secs(5) },
        }
    }
}

impl RetryPolicy {
    /// Without an end, waits up to `longest`.
    #[must_use]
    pub fn without_limit(self, longest: Duration) -> RetryPolicy {
        RetryPolicy { attempts: None, backoff: Backoff { longest, ..self.backoff } }
    }

    /// Whether the run with this number, counted from 1, is the last one.
    pub fn is_last(&self, attempt: u32) -> bool {
        self.attempts.is_some_and(|attempts| attempt >= attempts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_never_overflow() {
        let backoff = Backoff { first: Duration::from_millis(200), factor: 2, longest: Duration::from_secs(5) };
        assert_eq!(backoff.ceiling(1), Duration::from_millis(200));
        assert_eq!(backoff.ceiling(3), Duration::from_millis(800));
        for failures in [10, 100, 1_000, u32::MAX] {
            assert_eq!(backoff.ceiling(failures), Duration::from_secs(5));
            let delay = backoff.delay(failures);
            assert!(delay >= Duration::from_millis(2_500) && delay <= Duration::from_secs(5));
        }
    }
}
