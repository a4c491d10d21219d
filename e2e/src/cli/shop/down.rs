//! `saga down`: stops the shop, whoever started it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use e2e::shop::{Origin, native};
use e2e::{Shop, workspace};
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use super::{Exit, On};
use crate::cli::say::timed;

/// Stops the shop; its data stays for the next time.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    on: On,
}

/// Services finish what they have begun, within 20 s.
const STOPS_WITHIN: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let shop = Shop::find(arguments.on.on).await?;
    timed("everything is stopped", async {
        match shop.at.origin {
            Origin::Compose => compose_down().await,
            Origin::Native | Origin::Test => native_down().await,
        }
    })
    .await?;
    Ok(Exit::Good.into())
}

async fn native_down() -> anyhow::Result<()> {
    if let Some((_, supervisor)) = native::find().await? {
        supervisor.stop().await?;
    }
    let begin = Instant::now();
    while native::is_running()? {
        if begin.elapsed() > STOPS_WITHIN {
            bail!("it does not stop within {} s: look at its terminal", STOPS_WITHIN.as_secs());
        }
        sleep(LOOK).await;
    }
    Ok(())
}

async fn compose_down() -> anyhow::Result<()> {
    let mut command = Command::new("docker");
    command.args(["compose", "--file"]).arg(workspace().join("docker-compose.yml")).arg("down");
    let status = command.stdout(std::io::stderr()).status().await?;
    if !status.success() {
        bail!("docker compose down ended with {status}");
    }
    Ok(())
}
