//! What the command line tells people: on standard error, one line each. A reader who went away is no reason to panic:
//! the servers would be left running.

use std::fmt::Display;
use std::io::Write as _;
use std::time::Instant;

/// Says one line.
pub(crate) fn say(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "saga: {line}");
}

/// Does something, then says what was done and how long it took.
pub(crate) async fn timed<T>(what: impl Display, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let begin = Instant::now();
    let done = work.await?;
    say(format!("{what} ({:.1} s)", begin.elapsed().as_secs_f64()));
    Ok(done)
}
