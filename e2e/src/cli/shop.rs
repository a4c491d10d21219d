//! The verbs that work on a shop: they start one, stop it, order, break things and look.

mod demo;
mod down;
mod mend;
mod order;
mod places;
mod scenario;
mod show;
mod status;
mod switch;
mod timeline;
mod up;

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use e2e::Shop;
use e2e::shop::{Origin, problem};
use e2e::stack::Service;
use uuid::Uuid;

use crate::cli::say::say;
use crate::cli::until_interrupted;

#[derive(Subcommand)]
pub(crate) enum Verb {
    Demo(demo::Arguments),
    Up(up::Arguments),
    Down(down::Arguments),
    Status(status::Arguments),
    Order(order::OrderArguments),
    Cancel(order::CancelArguments),
    Timeline(timeline::Arguments),
    Scenario(scenario::Arguments),
    Switch(switch::Arguments),
    Mend(mend::Arguments),
}

/// On which shop, and for whom.
#[derive(Args)]
pub(crate) struct On {
    /// Which shop, if both run: that of `cargo saga up`, or that of `docker compose up`.
    #[arg(long, value_name = "SHOP")]
    on: Option<Origin>,
    /// Show the result as JSON.
    #[arg(long)]
    json: bool,
}

/// How a command ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Good = 0,
    Failed = 1,
    /// Everything was done, and something else came of it than was expected.
    Otherwise = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

pub(crate) async fn run(verb: Verb) -> anyhow::Result<ExitCode> {
    let code = dispatch(verb).await?;
    show::all_shown()?;
    Ok(code)
}

async fn dispatch(verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        // These stop what they have started.
        Verb::Demo(arguments) => Box::pin(demo::run(arguments)).await,
        Verb::Up(arguments) => up::run(arguments).await,
        Verb::Scenario(arguments) => scenario::run(arguments).await,
        Verb::Down(arguments) => until_interrupted(down::run(arguments)).await,
        Verb::Status(arguments) => until_interrupted(status::run(arguments)).await,
        Verb::Order(arguments) => until_interrupted(order::order(arguments)).await,
        Verb::Cancel(arguments) => until_interrupted(order::cancel(arguments)).await,
        Verb::Timeline(arguments) => until_interrupted(timeline::run(arguments)).await,
        Verb::Mend(arguments) => until_interrupted(mend::run(arguments)).await,
        Verb::Switch(arguments) => until_interrupted(switch::run(arguments)).await,
    }
}

/// What to do where a correlation id is that of several orders.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Several {
    /// The newest is meant; the others are told.
    Newest,
    /// Nobody knows which one is meant.
    Refused,
}

/// For somebody who mistyped a name: the one that was probably meant.
fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> String {
    let near = names.map(|name| (strsim::jaro_winkler(typed, name), name)).max_by(|(a, _), (b, _)| a.total_cmp(b));
    near.filter(|(likeness, _)| *likeness > 0.8).map_or_else(String::new, |(_, name)| format!(", perhaps {name}"))
}

/// The order that somebody means: by its id, or by its correlation id.
async fn resolve(shop: &Shop, id: &str, several: Several) -> anyhow::Result<String> {
    let orders = shop.client(Service::Order)?;
    if id.parse::<Uuid>().is_ok() {
        let answer = orders.get(&format!("/orders/{id}")).await?;
        match answer.status {
            200 => return Ok(id.to_owned()),
            404 => {}
            _ => bail!("the order service answers with {}", problem(&answer)),
        }
    }
    let list = orders.request(reqwest::Method::GET, "/orders").query(&[("correlationId", id)]);
    let answer = e2e::stack::client::send(list).await?;
    if answer.status != 200 {
        bail!("the order service answers with {}", problem(&answer));
    }
    let found = answer.body["orders"].as_array().map(Vec::as_slice).unwrap_or_default();
    match found {
        [] => bail!("there is no order with the id or the correlation id {id}"),
        [order] => Ok(order["orderId"].as_str().unwrap_or_default().to_owned()),
        orders => {
            let mut ids: Vec<&str> = orders.iter().filter_map(|order| order["orderId"].as_str()).collect();
            // Ids rise with time, and so do their texts.
            ids.sort_unstable();
            if several == Several::Refused {
                bail!("{} orders have this correlation id, name one: {}", ids.len(), ids.join(", "));
            }
            let newest = ids.pop().unwrap_or_default().to_owned();
            say(format!(
                "{} orders have this correlation id: this is the newest; before it {}",
                orders.len(),
                ids.join(", ")
            ));
            Ok(newest)
        }
    }
}
