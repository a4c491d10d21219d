//! A program that we started: its signals, its end, and that it does not outlive us. Where `setpriv` can ask the
//! kernel for a signal at our death it does; elsewhere the next run finds the orphans by their environment.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::path::on_path;

/// What is started, and how.
pub struct Launch {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// All of it: nothing is inherited, because a stray `PGDATA` or `ERL_FLAGS` would change a server.
    pub environment: BTreeMap<String, String>,
    pub directory: PathBuf,
    /// User and group to become; only root may ask for it.
    pub user: Option<(u32, u32)>,
    pub output: Output,
    /// Sent when we die or drop the child.
    pub farewell: Signal,
}

/// Where the output of a child goes.
pub enum Output {
    File(PathBuf),
    Files { output: PathBuf, errors: PathBuf },
}

/// A running program. Dropping it sends its farewell signal.
pub struct Child {
    pid: Pid,
    farewell: Signal,
    exit: watch::Receiver<Option<ExitStatus>>,
}

impl Launch {
    /// Starts the program, in a process group of its own so that Ctrl-C in the terminal reaches only us.
    ///
    /// # Errors
    /// The program, its directory or its log cannot be opened.
    pub fn spawn(self) -> anyhow::Result<Child> {
        let mut command = match setpriv() {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                // The signal comes when the thread that spawned ends: ours is the main thread or the test's.
                command.args(["--pdeathsig", self.farewell.as_str().trim_start_matches("SIG"), "--"]);
                command.arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command.args(&self.arguments).env_clear().envs(&self.environment).current_dir(&self.directory);
        command.stdin(Stdio::null()).process_group(0).kill_on_drop(true);
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        match &self.output {
            Output::File(path) => {
                let file = append(path)?;
                command.stdout(file.try_clone()?).stderr(file);
            }
            Output::Files { output, errors } => {
                command.stdout(append(output)?).stderr(append(errors)?);
            }
        }
        let what = || match self.user {
            Some((user, _)) => {
                format!("starting {} as user {user}, who must be able to reach it", self.program.display())
            }
            None => format!("starting {}", self.program.display()),
        };
        let mut child = command.spawn().with_context(what)?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).context("a child that has just begun has a pid")?;
        let (ended, exit) = watch::channel(None);
        tokio::spawn(async move {
            if let Ok(status) = child.wait().await {
                ended.send_replace(Some(status));
            }
        });
        Ok(Child { pid: Pid::from_raw(pid), farewell: self.farewell, exit })
    }
}

impl Child {
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// The exit status, if it has ended.
    pub fn exit(&self) -> Option<ExitStatus> {
        *self.exit.borrow()
    }

    /// Sends a signal; one that comes too late is no error.
    pub fn signal(&self, signal: Signal) {
        if self.exit().is_none() {
            let _ = kill(self.pid, signal);
        }
    }

    /// Waits for the end, for ever.
    pub async fn ended(&self) -> Option<ExitStatus> {
        let mut exit = self.exit.clone();
        exit.wait_for(Option::is_some).await.ok().and_then(|status| *status)
    }

    /// Waits for the end, at most so long.
    pub async fn ended_within(&self, limit: Duration) -> Option<ExitStatus> {
        timeout(limit, self.ended()).await.ok().flatten()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Who is killed cannot end its own children.
        if self.farewell == Signal::SIGKILL && self.exit().is_none() {
            let _ = killpg(self.pid, Signal::SIGKILL);
        }
        // A stopped process takes no other signal than KILL before it is continued.
        self.signal(self.farewell);
        self.signal(Signal::SIGCONT);
    }
}

/// Waits, without a runtime, until nothing runs under this pid: for whoever is being dropped.
pub(crate) fn wait_gone(pid: i32) {
    let begin = Instant::now();
    while !is_gone(pid) && begin.elapsed() < Duration::from_secs(1) {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether nothing runs under this pid any more. A zombie is gone: whoever should reap it may be late.
pub(crate) fn is_gone(pid: i32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with(['Z', 'X'])),
        Err(_) => kill(Pid::from_raw(pid), None).is_err() || Path::new("/proc/self/stat").exists(),
    }
}

fn append(path: &Path) -> anyhow::Result<File> {
    File::options().create(true).append(true).open(path).with_context(|| format!("opening {}", path.display()))
}

/// The `setpriv` of util-linux; that of busybox knows no `--pdeathsig`.
fn setpriv() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let path = on_path("setpriv")?;
        let help = std::process::Command::new(&path).arg("--help").output().ok()?;
        String::from_utf8_lossy(&help.stdout).contains("--pdeathsig").then_some(path)
    });
    found.as_deref()
}
