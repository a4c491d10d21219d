//! What a killed run left running. Every child carries the path of its state directory in its environment, and only
//! who holds the lock of that directory asks: so whatever is found has lost its owner.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};

use crate::child::is_gone;

/// The variable that every child carries.
pub(crate) const MARK: &str = "SAGA_STATE_DIRECTORY";

/// Longer than a clean stop of RabbitMQ with its management plugin.
const GENTLY: Duration = Duration::from_secs(12);
const HARD: Duration = Duration::from_secs(5);

/// How an orphan is ended.
#[derive(Clone, Copy)]
pub(crate) enum Manner {
    /// Its data is wanted: a clean stop first.
    Gently,
    /// Its data goes as well.
    AtOnce,
}

/// Ends everything that still runs for this directory, and returns how many programs that were.
///
/// # Errors
/// One of them survived.
pub(crate) async fn reap(directory: &Path, manner: Manner) -> anyhow::Result<usize> {
    let orphans = find(directory);
    for orphan in &orphans {
        let signal = match (manner, orphan.is_postgres) {
            // Postgres calls these fast and immediate; a KILL would leave its shared memory behind.
            (Manner::Gently, true) => Signal::SIGINT,
            (Manner::AtOnce, true) => Signal::SIGQUIT,
            (Manner::Gently, false) => Signal::SIGTERM,
            (Manner::AtOnce, false) => Signal::SIGKILL,
        };
        let _ = kill(Pid::from_raw(orphan.pid), signal);
        let _ = kill(Pid::from_raw(orphan.pid), Signal::SIGCONT);
    }
    if !all_gone(directory, GENTLY).await {
        for orphan in find(directory) {
            let _ = kill(Pid::from_raw(orphan.pid), Signal::SIGKILL);
        }
        if !all_gone(directory, HARD).await {
            bail!("programs of an earlier run still use {}", directory.display());
        }
    }
    Ok(orphans.len())
}

struct Orphan {
    pid: i32,
    is_postgres: bool,
}

/// Those with the mark. Without `/proc`, none.
fn find(directory: &Path) -> Vec<Orphan> {
    let mark = format!("{MARK}={}", directory.display());
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    processes
        .flatten()
        .filter_map(|process| {
            let pid = process.file_name().to_str()?.parse().ok()?;
            let environment = fs::read(process.path().join("environ")).ok()?;
            let is_ours = environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes());
            let command = fs::read(process.path().join("cmdline")).ok()?;
            let program = command.split(|byte| *byte == 0).next()?;
            (is_ours && !is_gone(pid)).then(|| Orphan { pid, is_postgres: program.ends_with(b"/postgres") })
        })
        .collect()
}

async fn all_gone(directory: &Path, limit: Duration) -> bool {
    let begin = Instant::now();
    while !find(directory).is_empty() {
        if begin.elapsed() > limit {
            return false;
        }
        sleep(Duration::from_millis(20)).await;
    }
    true
}
