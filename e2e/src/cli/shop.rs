//! The verbs that work on a shop: they start one, stop it, order, break things and look.

mod audit;
mod demo;
mod down;
mod drill;
mod mend;
mod ops;
mod order;
mod orders;
mod part;
mod places;
mod scenario;
mod show;
mod status;
mod switch;
mod timeline;
mod up;
mod why;

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use e2e::Shop;
use e2e::shop::{Act, Origin, problem};
use e2e::stack::Service;
use serde_json::Value;

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
    Orders(orders::Arguments),
    Timeline(timeline::Arguments),
    Why(why::Arguments),
    Ops(ops::Arguments),
    Audit(audit::Arguments),
    Scenario(scenario::Arguments),
    Drill(drill::Arguments),
    Switch(switch::Arguments),
    /// Kills a part of the shop, as a crash would; it stays away until it is started.
    Kill(part::Arguments),
    /// Starts a part that was killed.
    Start(part::Arguments),
    /// Stops a part in its tracks: its connections stay open, and it answers nothing.
    Freeze(part::Arguments),
    /// Lets a frozen part go on.
    Thaw(part::Arguments),
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
        Verb::Drill(arguments) => drill::run(arguments).await,
        Verb::Down(arguments) => until_interrupted(down::run(arguments)).await,
        Verb::Status(arguments) => until_interrupted(status::run(arguments)).await,
        Verb::Order(arguments) => until_interrupted(order::order(arguments)).await,
        Verb::Cancel(arguments) => until_interrupted(order::cancel(arguments)).await,
        Verb::Timeline(arguments) => until_interrupted(timeline::run(arguments)).await,
        Verb::Orders(arguments) => until_interrupted(orders::run(arguments)).await,
        Verb::Why(arguments) => until_interrupted(why::run(arguments)).await,
        Verb::Ops(arguments) => until_interrupted(ops::run(arguments)).await,
        Verb::Kill(arguments) => until_interrupted(part::run(arguments, Act::Kill)).await,
        Verb::Start(arguments) => until_interrupted(part::run(arguments, Act::Start)).await,
        Verb::Freeze(arguments) => until_interrupted(part::run(arguments, Act::Freeze)).await,
        Verb::Thaw(arguments) => until_interrupted(part::run(arguments, Act::Thaw)).await,
        Verb::Audit(arguments) => until_interrupted(audit::run(arguments)).await,
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
    /// The only one that waits for a person, if there is only one.
    Waiting,
}

/// For somebody who mistyped a name: the one that was probably meant.
fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> String {
    let near = names.map(|name| (strsim::jaro_winkler(typed, name), name)).max_by(|(a, _), (b, _)| a.total_cmp(b));
    near.filter(|(likeness, _)| *likeness > 0.8).map_or_else(String::new, |(_, name)| format!(", perhaps {name}"))
}

/// An order that somebody means.
struct Meant {
    order_id: String,
    saga_id: String,
}

/// The order that somebody means: by its id, that of its saga or of one of its messages, or by its correlation id.
async fn resolve(shop: &Shop, id: &str, several: Several) -> anyhow::Result<Meant> {
    // What else there may be is no id of anything, and would be another path.
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte));
    let unknown =
        || format!("no order, saga, message or correlation id is called {id}: `cargo saga orders` lists the orders");
    if !is_id {
        bail!(unknown());
    }
    let answer = shop.client(Service::Order)?.ops_get(&format!("/ops/orders/{id}")).await;
    let answer = answer.context("the order service does not answer")?;
    match answer.status {
        200 => {}
        404 => bail!(unknown()),
        _ => bail!("the order service answers with {}", problem(&answer)),
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let meant = |order: &Value| Meant { order_id: text(&order["orderId"]), saga_id: text(&order["sagaId"]) };
    let found = answer.body.as_array().map(Vec::as_slice).unwrap_or_default();
    let waiting: Vec<&Value> = found.iter().filter(|order| order["status"] == "needs_attention").collect();
    if let (Several::Waiting, [only]) = (several, waiting.as_slice()) {
        return Ok(meant(only));
    }
    let mut orders: Vec<Meant> = found.iter().map(meant).collect();
    let newest = orders.pop().context("the order service tells of no order")?;
    if orders.is_empty() {
        return Ok(newest);
    }
    let before: Vec<&str> = orders.iter().map(|order| order.order_id.as_str()).collect();
    if several != Several::Newest {
        let all = [before.as_slice(), &[&newest.order_id]].concat();
        bail!("{} orders have this correlation id, name one: {}", all.len(), all.join(", "));
    }
    say(format!(
        "{} orders have this correlation id: this is the newest; before it {}",
        before.len() + 1,
        before.join(", ")
    ));
    Ok(newest)
}

/// Asks a service's operators' listener, and takes nothing but a success for an answer.
async fn ops_get(shop: &Shop, service: Service, path: &str) -> anyhow::Result<Value> {
    let answer = shop.client(service)?.ops_get(path).await;
    let answer = answer.with_context(|| format!("{} does not answer", service.name()))?;
    if answer.status != 200 {
        bail!("{} answers {path} with {}", service.name(), problem(&answer));
    }
    Ok(answer.body)
}
