//! `saga down`: stops the shop, whoever started it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use e2e::servers::end_abandoned;
use e2e::shop::{NotRunning, Origin, native};
use e2e::{Shop, workspace};
use serde_json::json;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use super::show::show_json;
use super::{Exit, On};
use crate::cli::say::{say, timed};

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
    let shop = match Shop::find(arguments.on.on).await {
        Ok(shop) => shop,
        // Whoever kept it up was killed.
        Err(error)
            if error.is::<NotRunning>() && arguments.on.on != Some(Origin::Compose) && !native::is_running()? =>
        {
            return match end_rest().await? {
                0 => Err(NotRunning::new("no shop is running: there is nothing to stop").into()),
                ended => told(&arguments, ended),
            };
        }
        Err(error) => return Err(error),
    };
    let stopped = timed("everything is stopped", async {
        match shop.at.origin {
            Origin::Compose => compose_down().await.map(|()| 0),
            Origin::Native | Origin::Test => native_down().await,
        }
    });
    told(&arguments, stopped.await?)
}

/// `ended` programs did not stop by themselves.
fn told(arguments: &Arguments, ended: usize) -> anyhow::Result<ExitCode> {
    if ended > 0 {
        say(format!(
            "{ended} {} not been stopped, and ended now",
            if ended == 1 { "program had" } else { "programs had" }
        ));
    }
    if arguments.on.json {
        show_json(&json!({"stopped": true, "endedByForce": ended}))?;
    }
    Ok(Exit::Good.into())
}

async fn native_down() -> anyhow::Result<usize> {
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
    end_rest().await
}

/// Ends what should have ended with the shop.
async fn end_rest() -> anyhow::Result<usize> {
    end_abandoned(native::NAME).await
}

async fn compose_down() -> anyhow::Result<()> {
    let mut command = Command::new("docker");
    command.args(["compose", "--file"]).arg(workspace().join("docker-compose.yml"));
    // What was started with a profile is only stopped with it.
    command.args(["--profile", "metrics", "down"]);
    let status = command.stdout(std::io::stderr()).status().await?;
    if !status.success() {
        bail!("docker compose down ended with {status}");
    }
    Ok(())
}
