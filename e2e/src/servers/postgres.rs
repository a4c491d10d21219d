//! A PostgreSQL of our own: one data directory and one port for its life, through every stop and kill. Durability is
//! the server's default, because tests that kill it prove nothing otherwise.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::child::{Child, Launch, Output, wait_gone};
use crate::servers::coordinates::{Endpoint, LOOPBACK};
use crate::servers::directory::{Fate, StateDirectory, empty};
use crate::servers::find::PostgresPrograms;
use crate::servers::orphan::MARK;
use crate::servers::ports;

/// The superuser of every cluster of ours.
const SUPERUSER: &str = "postgres";
/// Stacks side by side, each with five services, their pools and loops.
const CONNECTIONS: &str = "400";
/// A start after a kill replays the log first.
const READY_WITHIN: Duration = Duration::from_secs(60);
const STOPPED_WITHIN: Duration = Duration::from_secs(20);
/// How often a start looks for other ports.
const TRIES: usize = 3;
/// How often a restart waits for a killed server's processes to let go of its memory.
const RESTARTS: usize = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// The running server, and the same again after a stop.
pub struct Postgres {
    directory: Arc<StateDirectory>,
    programs: PostgresPrograms,
    data: PathBuf,
    log: PathBuf,
    port: u16,
    password: String,
    child: Mutex<Option<Child>>,
}

impl Postgres {
    /// Makes the cluster if it is not there yet, and starts it.
    pub(crate) async fn start_new(
        directory: Arc<StateDirectory>,
        programs: PostgresPrograms,
        password: String,
    ) -> anyhow::Result<Self> {
        let place = directory.path().join("postgres");
        let data = if place.exists() { place } else { directory.make_in_memory("postgres")? };
        let log = directory.path().join("postgres.log");
        let mut postgres = Postgres { directory, programs, data, log, port: 0, password, child: Mutex::new(None) };
        if !postgres.data.join("PG_VERSION").exists() || postgres.half_made().exists() {
            postgres.initialize().await?;
        }
        let mut more = 1..TRIES;
        loop {
            postgres.port = ports::pick_again(&postgres.directory.path().join("postgres.ports"), 1)?[0];
            match postgres.start().await {
                Err(error) if error.to_string().contains("could not bind") && more.next().is_some() => {}
                started => return started.map(|()| postgres),
            }
        }
    }

    /// How to reach it, as its superuser.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint { host: LOOPBACK, port: self.port, user: SUPERUSER.to_owned(), password: self.password.clone() }
    }

    /// The pid of the process that all others of the server descend from, while it runs.
    pub async fn pid(&self) -> Option<i32> {
        self.child.lock().await.as_ref().map(Child::pid)
    }

    /// Starts it again, on the same data and port. One that runs is left alone.
    ///
    /// # Errors
    /// It does not come up; the error ends with its log.
    pub async fn start(&self) -> anyhow::Result<()> {
        let mut child = self.child.lock().await;
        if child.as_ref().is_some_and(|running| running.exit().is_none()) {
            return Ok(());
        }
        let mut more = 1..RESTARTS;
        loop {
            let started = self.launch()?;
            match self.ready(&started).await {
                // The last processes of a killed server still hold its memory; they end by themselves.
                Err(error) if error.to_string().contains("still in use") && more.next().is_some() => {
                    sleep(PAUSE * 10).await;
                }
                ready => return ready.map(|()| *child = Some(started)),
            }
        }
    }

    /// Whether it ended although nobody stopped it.
    pub async fn has_ended(&self) -> bool {
        self.child.lock().await.as_ref().is_some_and(|child| child.exit().is_some())
    }

    /// Stops it cleanly, as `pg_ctl stop -m fast` does.
    ///
    /// # Errors
    /// It does not end.
    pub async fn stop(&self) -> anyhow::Result<()> {
        // SIGTERM would wait for the last client to leave.
        self.end(Signal::SIGINT).await
    }

    /// Kills it: what was not flushed is lost, as with a crash of the machine's power for the processes.
    ///
    /// # Errors
    /// It does not end.
    pub async fn kill(&self) -> anyhow::Result<()> {
        self.end(Signal::SIGKILL).await
    }

    /// Freezes it with all its sessions: connections stay open and nothing answers.
    pub async fn pause(&self) {
        if let Some(child) = self.child.lock().await.as_ref() {
            // The one that starts sessions first, or a new one would escape.
            child.signal(Signal::SIGSTOP);
            signal_children(child.pid(), Signal::SIGSTOP);
        }
    }

    pub async fn resume(&self) {
        if let Some(child) = self.child.lock().await.as_ref() {
            signal_children(child.pid(), Signal::SIGCONT);
            child.signal(Signal::SIGCONT);
        }
    }

    async fn end(&self, signal: Signal) -> anyhow::Result<()> {
        let Some(child) = self.child.lock().await.take() else { return Ok(()) };
        child.signal(signal);
        // Whoever is frozen hears nothing else, and would hold the server's memory for ever.
        signal_children(child.pid(), Signal::SIGCONT);
        child.signal(Signal::SIGCONT);
        match child.ended_within(STOPPED_WITHIN).await {
            Some(_) => Ok(()),
            None => bail!("PostgreSQL did not end within {} s of {signal}", STOPPED_WITHIN.as_secs()),
        }
    }

    /// Stands while a cluster is made: whoever is interrupted leaves it, and half a cluster.
    fn half_made(&self) -> PathBuf {
        self.directory.path().join("postgres.half_made")
    }

    async fn initialize(&self) -> anyhow::Result<()> {
        fs::write(self.half_made(), "")?;
        empty(&self.data)?;
        let secrets = self.directory.make("secrets")?;
        let file = secrets.join("superuser");
        self.directory.write(&file, &self.password, 0o400)?;
        let (data, file) = (self.data.display().to_string(), file.display().to_string());
        let mut arguments = vec!["-D", &data, "-U", SUPERUSER, "-A", "scram-sha-256", "--pwfile", &file];
        arguments.extend(["-E", "UTF8", "--locale=C", "--no-instructions"]);
        if self.directory.fate() == Fate::Removed {
            // Only the creation is not synced; the server itself still syncs.
            arguments.push("-N");
        }
        let child = self.run("initdb", &arguments, Signal::SIGKILL)?;
        let status = child.ended().await.context("waiting for initdb")?;
        fs::remove_dir_all(secrets)?;
        if !status.success() {
            bail!("initdb ended with {status}: {}", self.programs.root.explain(&self.log));
        }
        Ok(fs::remove_file(self.half_made())?)
    }

    fn launch(&self) -> anyhow::Result<Child> {
        if let Some(zones) = self.programs.root.time_zones() {
            let link = self.data.join("zoneinfo");
            let _ = fs::remove_file(&link);
            symlink(zones, link)?;
        }
        let data = self.data.display().to_string();
        let mut arguments = vec!["-D".to_owned(), data];
        for (name, value) in [
            ("listen_addresses", LOOPBACK.to_string().as_str()),
            ("port", self.port.to_string().as_str()),
            // The default place is not writable for everybody, and every client comes by TCP.
            ("unix_socket_directories", ""),
            ("max_connections", CONNECTIONS),
            // Its compiler costs more than it gains on queries as short as these.
            ("jit", "off"),
        ] {
            arguments.extend(["-c".to_owned(), format!("{name}={value}")]);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let _ = fs::remove_file(&self.log);
        self.run("postgres", &arguments, Signal::SIGQUIT)
    }

    fn run(&self, program: &str, arguments: &[&str], farewell: Signal) -> anyhow::Result<Child> {
        let launch = Launch {
            program: self.programs.directory.join(program),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            environment: [
                (MARK.to_owned(), self.directory.path().display().to_string()),
                ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
                ("LC_ALL".to_owned(), "C".to_owned()),
            ]
            .into_iter()
            .chain(self.programs.root.environment())
            .collect(),
            // Where an unpacked one looks for its time zones.
            directory: self.data.clone(),
            user: self.directory.user(),
            output: Output::File(self.log.clone()),
            farewell,
        };
        launch.spawn()
    }

    /// Waits until it takes connections.
    async fn ready(&self, child: &Child) -> anyhow::Result<()> {
        let begin = Instant::now();
        loop {
            if let Some(status) = child.exit() {
                bail!("PostgreSQL ended with {status}: {}", self.programs.root.explain(&self.log));
            }
            let file = fs::read_to_string(self.data.join("postmaster.pid")).unwrap_or_default();
            let lines: Vec<&str> = file.lines().map(str::trim).collect();
            // A killed server leaves its file behind, and that says ready too.
            let is_ours = lines.first().is_some_and(|pid| *pid == child.pid().to_string());
            if is_ours && lines.get(7).is_some_and(|status| *status == "ready") {
                return Ok(());
            }
            if begin.elapsed() > READY_WITHIN {
                bail!(
                    "PostgreSQL is not ready after {} s: {}",
                    READY_WITHIN.as_secs(),
                    self.programs.root.explain(&self.log)
                );
            }
            sleep(PAUSE).await;
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // A KILL, which the runtime would send in our place, leaves its shared memory behind.
        let Some(child) = self.child.get_mut().take() else { return };
        child.signal(Signal::SIGQUIT);
        signal_children(child.pid(), Signal::SIGCONT);
        child.signal(Signal::SIGCONT);
        wait_gone(child.pid());
    }
}

/// Signals the sessions and workers of a server. They are in sessions of their own, so their parent finds them.
fn signal_children(parent: i32, signal: Signal) {
    let path = Path::new("/proc").join(parent.to_string()).join("task").join(parent.to_string()).join("children");
    for child in fs::read_to_string(path).unwrap_or_default().split_whitespace() {
        if let Ok(child) = child.parse() {
            let _ = kill(Pid::from_raw(child), signal);
        }
    }
}
