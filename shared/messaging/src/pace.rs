//! How close together batches begin. A transaction costs much the same for one message as for twenty, so under load it
//! is cheaper to come a little later and find more: after a batch the next one waits as long as that one took. Where
//! batches become slow because the machine is busy they become larger by this, and the machine less busy. What comes
//! after a quiet moment waits for nothing.

use std::time::{Duration, Instant};

/// The longest wait, whatever a batch took: what was slow for another reason than load is not made slower.
const LONGEST: Duration = Duration::from_millis(50);

/// When the next batch may begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace(Instant);

impl Pace {
    pub(crate) fn new() -> Pace {
        Pace(Instant::now())
    }

    /// A batch that began then has just ended.
    pub(crate) fn ended(&mut self, begun: Instant) {
        let now = Instant::now();
        self.0 = now + (now - begun).min(LONGEST);
    }

    /// From when on the next batch may begin.
    pub(crate) fn next(self) -> Instant {
        self.0
    }

    pub(crate) fn is_due(self) -> bool {
        Instant::now() >= self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_batch_waits_as_long_as_the_last_one_took_and_no_longer_than_the_longest() {
        let mut pace = Pace::new();
        assert!(pace.is_due(), "the first one waits for nothing");
        let took = Duration::from_millis(20);
        let ended = Instant::now();
        pace.ended(ended - took);
        assert!(pace.next() >= ended + took && !pace.is_due());
        pace.ended(Instant::now() - Duration::from_secs(5));
        assert!(pace.next() <= Instant::now() + LONGEST);
    }
}
