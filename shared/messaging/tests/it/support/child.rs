//! A real process that runs relay and consumer, so that its death is a real one.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Command;

use super::eventually::{DEADLINE, eventually};
use super::site::Site;

pub(crate) struct Child {
    process: Option<tokio::process::Child>,
    holds: PathBuf,
}

impl Child {
    /// Starts an example of this package. `points` are hold points and what happens there: `hold`, `abort`.
    pub(crate) fn start(
        site: &Site,
        example: &str,
        arguments: &[&str],
        points: &[(&str, &str)],
    ) -> anyhow::Result<Child> {
        Child::start_with(site, example, arguments, points, &[])
    }

    /// The same with variables in its environment.
    pub(crate) fn start_with(
        site: &Site,
        example: &str,
        arguments: &[&str],
        points: &[(&str, &str)],
        variables: &[(&str, &str)],
    ) -> anyhow::Result<Child> {
        anyhow::ensure!(cfg!(feature = "hold-points"), "this test needs hold points: run `cargo saga test`");
        let holds = std::env::temp_dir().join(format!("messaging-holds-{}", uuid::Uuid::now_v7()));
        std::fs::create_dir_all(&holds)?;
        for (point, act) in points {
            std::fs::write(holds.join(point), act)?;
        }
        let tests = std::env::current_exe()?;
        let program = tests.parent().and_then(Path::parent).expect("target").join("examples").join(example);
        let process = Command::new(&program)
            .args(arguments)
            .env("DATABASE_URL", site.database_url())
            .env("AMQP_URL", site.broker_url())
            .env("SAGA_HOLDS", &holds)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| anyhow::anyhow!("starting {}: {error}", program.display()))?;
        Ok(Child { process: Some(process), holds })
    }

    /// Waits until the process has come to the hold point.
    pub(crate) async fn reached(&self, point: &str) -> anyhow::Result<()> {
        let mark = self.holds.join(format!("{point}.reached"));
        eventually(&format!("hold point {point}"), async || Ok(mark.exists()), |reached| *reached).await.map(drop)
    }

    /// Lets it go on from the hold point.
    pub(crate) fn release(&self, point: &str) -> anyhow::Result<()> {
        Ok(std::fs::remove_file(self.holds.join(point))?)
    }

    /// Kills it: no code of it runs any more.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        self.process.take().expect("it runs").kill().await.map_err(anyhow::Error::from)
    }

    /// Asks it to stop.
    pub(crate) fn terminate(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGTERM)
    }

    /// Freezes it: its connections stay open and nothing of it runs.
    pub(crate) fn freeze(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = self.process.as_ref().and_then(tokio::process::Child::id).expect("it runs");
        Ok(kill(Pid::from_raw(id.cast_signed()), signal)?)
    }

    /// Asks it to stop, and returns how it ended and what it printed.
    pub(crate) async fn stop(self) -> anyhow::Result<(ExitStatus, String)> {
        self.terminate()?;
        self.ended().await
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn died(&mut self) {
        drop(self.process.as_mut().expect("it runs").wait().await);
    }

    /// Waits until it has ended by itself, and returns how and what it printed.
    pub(crate) async fn ended(mut self) -> anyhow::Result<(ExitStatus, String)> {
        let process = self.process.take().expect("it runs");
        let output = tokio::time::timeout(DEADLINE, process.wait_with_output()).await??;
        Ok((output.status, String::from_utf8_lossy(&output.stdout).into_owned()))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.holds));
    }
}
