//! A run that was killed leaves servers and data behind; the next run ends the ones and removes the others.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use e2e::{Coordinates, State, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

const SOON: Duration = Duration::from_secs(20);

/// A run of `saga servers`, without the program that would let the kernel end its servers when it is killed.
async fn run(state: &Path) -> anyhow::Result<(Child, Coordinates)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_saga"));
    command.arg("servers").env("SAGA_STATE", state).env("PATH", "/nowhere");
    let mut child = command.stderr(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut lines = BufReader::new(child.stderr.take().context("its messages")?).lines();
    let mut said = Vec::new();
    while let Some(line) = lines.next_line().await? {
        if let Some((_, path)) = line.split_once("SAGA_SERVERS=") {
            let coordinates = serde_json::from_str(&tokio::fs::read_to_string(path).await?)?;
            return Ok((child, coordinates));
        }
        said.push(line);
    }
    anyhow::bail!("no servers: {}", said.join("\n"))
}

async fn end(mut child: Child, signal: Signal) -> anyhow::Result<()> {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).context("a pid")?;
    kill(Pid::from_raw(pid), signal)?;
    child.wait().await?;
    Ok(())
}

async fn listening(coordinates: &Coordinates) -> Vec<u16> {
    let mut open = Vec::new();
    for port in [coordinates.postgres.port, coordinates.broker.port, coordinates.management_port] {
        if TcpStream::connect((coordinates.broker.host, port)).await.is_ok() {
            open.push(port);
        }
    }
    open
}

async fn all_is_gone(coordinates: &Coordinates) -> anyhow::Result<()> {
    eventually(SOON, "the servers have ended and their data is removed", async || {
        let (open, left) = (listening(coordinates).await, coordinates.directory.exists());
        Ok(if open.is_empty() && !left { State::Reached(()) } else { State::pending((open, left)) })
    })
    .await
}

#[tokio::test]
async fn the_next_run_ends_the_servers_of_a_killed_one() -> anyhow::Result<()> {
    let state = PathBuf::from(format!("/var/tmp/saga-orphans-{:08x}", rand::random::<u32>()));
    let (killed, orphans) = run(&state).await?;
    end(killed, Signal::SIGKILL).await?;
    assert_eq!(listening(&orphans).await.len(), 3);

    let (next, coordinates) = run(&state).await?;
    all_is_gone(&orphans).await?;
    assert_eq!(listening(&coordinates).await.len(), 3);

    end(next, Signal::SIGTERM).await?;
    all_is_gone(&coordinates).await?;
    tokio::fs::remove_dir_all(state).await?;
    Ok(())
}
