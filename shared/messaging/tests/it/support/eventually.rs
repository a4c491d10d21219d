//! Waiting for a named state.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Generous: it only passes when something is wrong.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Looks until `reached` likes what it sees. A look that fails counts as not yet.
pub(crate) async fn eventually<T: Debug>(
    what: &str,
    mut look: impl AsyncFnMut() -> anyhow::Result<T>,
    reached: impl Fn(&T) -> bool,
) -> anyhow::Result<T> {
    let begun = Instant::now();
    loop {
        let seen = look().await;
        match seen {
            Ok(value) if reached(&value) => return Ok(value),
            last if begun.elapsed() > DEADLINE => {
                anyhow::bail!("not yet after {DEADLINE:?}: {what}. Last seen: {last:?}")
            }
            _ => tokio::time::sleep(Duration::from_millis(15)).await,
        }
    }
}
