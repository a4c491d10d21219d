//! `saga kill`, `start`, `freeze` and `thaw`: what can be done to a part of the shop.

use std::process::ExitCode;

use clap::Args;
use e2e::Shop;
use e2e::shop::{Act, Part};
use e2e::stack::Service;
use serde_json::json;

use super::show::{QUIET, show, show_json, styled};
use super::{Exit, On};

/// Which part.
#[derive(Args)]
pub(crate) struct Arguments {
    /// postgres, rabbitmq, order, payment, inventory, shipping or sandbox.
    #[arg(value_parser = part)]
    part: Part,
    #[command(flatten)]
    on: On,
}

fn part(name: &str) -> Result<Part, String> {
    let services = Service::ALL.into_iter().map(Part::Service);
    let parts: Vec<&str> = [Part::Postgres, Part::Rabbitmq].into_iter().chain(services).map(Part::name).collect();
    name.parse().map_err(|_| {
        let near = super::nearest(name, parts.iter().copied());
        format!("there is no such part{near}: it is one of {}", parts.join(", "))
    })
}

pub(crate) async fn run(arguments: Arguments, act: Act) -> anyhow::Result<ExitCode> {
    let Arguments { part, on } = arguments;
    let shop = Shop::find(on.on).await?;
    shop.act(part, act).await?;
    if on.json {
        show_json(&json!({"part": part, "done": act}))?;
        return Ok(Exit::Good.into());
    }
    let done = match act {
        Act::Kill => "is killed, as by a crash",
        Act::Start => "runs",
        Act::Freeze => "is frozen: its connections stay open, and it answers nothing",
        Act::Thaw => "goes on",
    };
    show(format!(" {part} {done}"));
    if matches!(act, Act::Kill | Act::Freeze) {
        let back = format!(" take it back with `cargo saga {} {part}`, or all with `cargo saga mend`", act.opposite());
        show(styled(QUIET, back));
    }
    Ok(Exit::Good.into())
}
