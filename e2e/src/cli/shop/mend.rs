//! `saga mend`: takes back what was broken on purpose, whoever broke it and then went away.

use std::process::ExitCode;

use clap::Args;
use e2e::Shop;
use serde_json::json;

use super::show::{show, show_json};
use super::{Exit, On};

/// Starts and thaws every part that was killed or frozen on request, and switches every fault off.
///
/// A scenario does this itself when it ends, also when it is interrupted. One that was killed cannot.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    on: On,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let shop = Shop::find(arguments.on.on).await?;
    let parts = shop.mend().await?;
    let switches = shop.switched_on().await?;
    for name in &switches {
        shop.switch_off(name).await?;
    }
    if arguments.on.json {
        show_json(&json!({"mended": parts, "switchedOff": switches}))?;
        return Ok(Exit::Good.into());
    }
    for (part, act) in &parts {
        show(format!("{part} is well again: {}", act.opposite()));
    }
    for name in &switches {
        show(format!("{name} is off"));
    }
    if parts.is_empty() && switches.is_empty() {
        show("nothing was broken");
    }
    Ok(Exit::Good.into())
}
