//! Runs cargo in this workspace. It gets a process group of its own, so that an interruption ends all it has started:
//! compilers and tests.

#[cfg(feature = "stack")]
pub(crate) mod release;

use std::env;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use e2e::workspace;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::Command;

/// How long it may take to leave after an interruption.
const LEAVES_WITHIN: Duration = Duration::from_secs(3);

/// A call of cargo, to be completed by the caller.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let program = env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let mut command = Command::new(program);
    command.args(arguments).current_dir(workspace()).process_group(0);
    // What `cargo run` told us about ourselves would look like a change to some build scripts.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") || name == "LD_LIBRARY_PATH" {
            command.env_remove(name.as_ref());
        }
    }
    command
}

/// Runs it to its end, with its output where ours goes.
pub(crate) async fn run(mut command: Command) -> anyhow::Result<ExitStatus> {
    let mut child = command.spawn().context("starting cargo")?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).context("cargo has just begun")?;
    let mut group = Group(Some(Pid::from_raw(pid)));
    let status = child.wait().await?;
    group.0 = None;
    Ok(status)
}

/// Runs it, and takes a failure for ours.
pub(crate) async fn run_well(command: Command) -> anyhow::Result<()> {
    let shown = command.as_std().get_args().map(|argument| argument.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let status = run(command).await?;
    if !status.success() {
        bail!("cargo {shown} ended with {status}");
    }
    Ok(())
}

/// Everything that a call of cargo has started, while it runs.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        let Some(group) = self.0 else { return };
        let _ = killpg(group, Signal::SIGINT);
        let begin = Instant::now();
        while killpg(group, None).is_ok() && begin.elapsed() < LEAVES_WITHIN {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = killpg(group, Signal::SIGKILL);
    }
}
