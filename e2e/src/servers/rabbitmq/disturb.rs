//! What a test does to a broker that goes on running: it is frozen, or short of memory.

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;

use super::RabbitMq;

/// More than anybody here needs, as its configuration says.
pub(super) const MEMORY: &str = "512MB";

impl RabbitMq {
    /// Freezes it: connections stay open and nothing answers.
    pub async fn pause(&self) {
        if let Some(node) = self.node.lock().await.as_ref() {
            node.signal(Signal::SIGSTOP);
        }
    }

    pub async fn resume(&self) {
        if let Some(node) = self.node.lock().await.as_ref() {
            node.signal(Signal::SIGCONT);
        }
    }

    /// Raises its memory alarm: whoever publishes is blocked, who only consumes is not.
    ///
    /// # Errors
    /// It does not do what its command line asks.
    pub async fn lack_memory(&self) -> anyhow::Result<()> {
        self.limit_memory("1").await
    }

    /// Ends the alarm.
    ///
    /// # Errors
    /// As [`RabbitMq::lack_memory`].
    pub async fn have_memory(&self) -> anyhow::Result<()> {
        self.limit_memory(MEMORY).await
    }

    async fn limit_memory(&self, most: &str) -> anyhow::Result<()> {
        let arguments = ["set_vm_memory_high_watermark", "absolute", most].map(str::to_owned).to_vec();
        let control = self.launch(self.programs.server.with_file_name("rabbitmqctl"), arguments, Signal::SIGKILL)?;
        let status = control.ended().await.context("waiting for rabbitmqctl")?;
        ensure!(status.success(), "rabbitmqctl ended with {status}, see {}", self.log().display());
        Ok(())
    }
}
