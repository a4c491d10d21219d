//! What the command line tells people while it works: on standard error, one line each. A reader who went away is no
//! reason to panic: the servers would be left running.

use std::fmt::Display;
use std::io::Write as _;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// When long work first says that it still goes on; after that, each time when twice as much has passed.
const STILL: Duration = Duration::from_secs(10);

/// Says one line.
pub(crate) fn say(line: impl Display) {
    let _ = writeln!(anstream::stderr(), "saga: {line}");
}

/// Does something, then says what was done and how long it took; meanwhile, now and then, what is waited for.
pub(crate) async fn timed<T>(what: impl Display, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let begin = Instant::now();
    tokio::pin!(work);
    let done = patiently(&what, work).await?;
    say(format!("{what} ({:.1} s)", begin.elapsed().as_secs_f64()));
    Ok(done)
}

/// Does something, and says now and then what is waited for.
pub(crate) async fn patiently<T>(
    what: impl Display,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let begin = Instant::now();
    let mut still = STILL;
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = sleep_until(begin + still) => {
                say(format!("... {what}: not yet, {} s so far", still.as_secs()));
                still *= 2;
            }
        }
    }
}
