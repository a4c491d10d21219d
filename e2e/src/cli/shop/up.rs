//! `saga up`: the shop on this machine, until Ctrl-C or `saga down`.

mod control;
mod native;
mod ports;
mod start;

use std::env;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use e2e::servers::state_directory;
use e2e::shop::{Origin, Shop, native as native_shop};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::sleep;

pub(crate) use native::Native;

use super::places::places;
use super::show::show;
use crate::cli::say::{say, timed};
use crate::cli::{ensure_servers, until_interrupted};
use control::Control;

/// Starts the shop: both servers, the tables, and the five services.
///
/// The data stays for the next time. A service that dies is started again, after a pause that grows. Traces go to a
/// Jaeger that is named by JAEGER or on the PATH, else to where --otlp says. Ctrl-C or `cargo saga down` stops
/// everything. If a port is taken, all of them move up by a hundred.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) how: How,
    /// Return when everything is up, and leave it running: `cargo saga down` stops it.
    #[arg(long, short)]
    detach: bool,
}

/// How the shop is started.
#[derive(Args)]
pub(crate) struct How {
    /// Build and run with optimizations.
    #[arg(long)]
    release: bool,
    /// Take the programs as they were built last.
    #[arg(long)]
    no_build: bool,
    /// Fetch missing servers without asking, into a private folder; nothing is installed. `CI=true` does the same.
    #[arg(long)]
    yes: bool,
    /// Forget the data of the last time: orders, stock, everything.
    #[arg(long)]
    fresh: bool,
    /// Add this to every port: with 100, order is at 8101. Without it, 0, or the first hundred that is free.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=40_000))]
    ports: Option<u16>,
    /// So many instances of each of the four services: they share the work, and take over from each other.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=4))]
    replicas: u8,
    /// Where traces go when there is no Jaeger program.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    otlp: Option<String>,
}

/// Set for who runs in the background.
const DETACHED: &str = "SAGA_DETACHED";
/// How often a detached start is looked at.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    if Shop::find(Some(Origin::Native)).await.is_ok() {
        bail!("the shop is running already: `cargo saga status` shows it, `cargo saga down` stops it");
    }
    if arguments.detach {
        return until_interrupted(detach(&arguments.how)).await;
    }
    keep(&arguments.how, async |native: &Native| {
        // Who started it in the background shows the places when it finds them.
        if env::var_os(DETACHED).is_none() {
            places(&native.at);
            say("everything is up; Ctrl-C stops it");
        }
        std::future::pending().await
    })
    .await
}

/// Starts the shop, does something with it, and stops it again, whatever happens.
pub(crate) async fn keep(
    how: &How,
    work: impl AsyncFnOnce(&Native) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let mut started = None;
    let starting = until_interrupted(async {
        started = Some(start::start(how).await?);
        Ok(ExitCode::SUCCESS)
    });
    let code = starting.await?;
    let Some(native) = started else { return Ok(code) };
    let control = Control::listen(native.directory())?;
    let done = until_interrupted(async {
        tokio::select! {
            done = work(&native) => done,
            () = native.watch() => Ok(ExitCode::SUCCESS),
            stopped = control.serve(&native) => stopped.map(|()| ExitCode::SUCCESS),
        }
    });
    let done = done.await;
    drop(control);
    say("stopping everything");
    timed("everything is stopped", native.stop()).await?;
    done
}

/// Starts ourselves again, out of this terminal, and shows what it says until everything is up.
async fn detach(how: &How) -> anyhow::Result<ExitCode> {
    // Its log is not ours to begin anew.
    if native_shop::is_running()? {
        bail!("a shop is just starting or stopping: try again in a moment");
    }
    // Nobody could be asked later.
    ensure_servers(how.yes).await?;
    // Not in the shop's own directory, which may be emptied. Only we may read it: passwords are told.
    let log: PathBuf = state_directory("up.log")?;
    let _ = std::fs::remove_file(&log);
    let output = File::options().create(true).append(true).mode(0o600).open(&log);
    let output = output.with_context(|| format!("making {}", log.display()))?;
    let arguments = env::args_os().skip(1).filter(|argument| argument != "--detach" && argument != "-d");
    let mut command = Command::new(env::current_exe()?);
    command
        .args(arguments)
        .env(DETACHED, "1")
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .process_group(0);
    let mut child = Background(Some(command.spawn().context("starting it in the background")?));
    let mut told = File::open(&log)?;
    loop {
        sleep(LOOK).await;
        let mut new = Vec::new();
        told.read_to_end(&mut new)?;
        let _ = std::io::stderr().write_all(&new);
        if let Some(status) = child.exit()? {
            bail!("it ended with {status}; all it said is in {}", log.display());
        }
        if let Ok(shop) = Shop::find(Some(Origin::Native)).await {
            child.0 = None;
            places(&shop.at);
            show("It runs in the background: `cargo saga status` shows it, `cargo saga down` stops it.");
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// A shop that is being started in the background; ended with us until it is up.
struct Background(Option<Child>);

impl Background {
    fn exit(&mut self) -> std::io::Result<Option<ExitStatus>> {
        self.0.as_mut().map_or(Ok(None), Child::try_wait)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else { return };
        if let Ok(pid) = i32::try_from(child.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _ = child.wait();
    }
}
