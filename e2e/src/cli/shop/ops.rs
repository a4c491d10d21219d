//! `saga ops`: what a person can do with orders and messages that wait for one.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use e2e::Shop;
use e2e::shop::problem;
use e2e::stack::Service;
use e2e::stack::client::send;
use reqwest::Method;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Exit, On};

mod list;
mod message;
mod replay;
mod saga;

/// Looks at what waits, and acts on it.
///
/// Every act needs a reason, is written down with who did it, and shows in the timeline; with `--dry-run` it only says
/// what it would do. Done twice, it does nothing more.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cargo saga ops sagas --state needs_attention
  cargo saga ops retry ORDER --step payment --reason 'the provider is back'
  cargo saga ops inbox --status parked
  cargo saga ops show MESSAGE
  cargo saga ops message retry MESSAGE --reason 'mended in 1.4.2'
  cargo saga ops message retry --service payment --status parked --code database.42P01 --reason 'table is there'
  cargo saga ops replay --since 15m --reason 'the broker lost its disk' --dry-run")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Ask a failed or overdue undo again, after its cause is gone.
    Retry(saga::StepAct),
    /// Accept the effect of a step as it is; the rest is undone, and the order ends as settled.
    Settle(saga::StepAct),
    /// Cancel an order and have everything undone, as its customer could.
    Cancel(saga::CancelAct),
    /// The sagas, oldest first.
    Sagas(saga::List),
    /// The messages that consumers keep: waiting, retrying, parked or skipped.
    Inbox(list::Inbox),
    /// What is not published yet.
    Outbox(list::Outbox),
    /// A message whole, wherever a service has it.
    Show(list::Show),
    /// Act on a message that waits in an outbox or is kept in an inbox.
    #[command(subcommand)]
    Message(message::Verb),
    /// Publish again what was published; whoever has seen it skips it.
    Replay(replay::Arguments),
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let code = match arguments.verb {
        Verb::Retry(act) => saga::on_step(act, "retry").await?,
        Verb::Settle(act) => saga::on_step(act, "settle").await?,
        Verb::Cancel(act) => saga::cancel(act).await?,
        Verb::Sagas(list) => saga::list(list).await?,
        Verb::Inbox(list) => list::inbox(list).await?,
        Verb::Outbox(list) => list::outbox(list).await?,
        Verb::Show(show) => list::show(show).await?,
        Verb::Message(verb) => message::run(verb).await?,
        Verb::Replay(arguments) => replay::run(arguments).await?,
    };
    Ok(code.into())
}

/// Who acts and why.
#[derive(Args)]
struct By {
    /// Why, in 3 to 500 characters; kept with the act.
    #[arg(long, value_parser = reason)]
    reason: String,
    /// Who; your login name (USER) if not said, `operator` where there is none.
    #[arg(long)]
    actor: Option<String>,
    /// Say what it would do, and do nothing.
    #[arg(long)]
    dry_run: bool,
}

impl By {
    fn body(&self) -> Value {
        let actor = self.actor.clone().or_else(|| std::env::var("USER").ok().filter(|user| !user.trim().is_empty()));
        json!({"reason": self.reason, "actor": actor, "dryRun": self.dry_run})
    }
}

/// As the service takes it.
fn reason(text: &str) -> Result<String, String> {
    let is_fine = (3..=500).contains(&text.chars().count());
    is_fine.then(|| text.to_owned()).ok_or_else(|| "3 to 500 characters, for those who ask later".to_owned())
}

/// A step of the saga.
#[derive(Clone, Copy, ValueEnum)]
enum Step {
    Payment,
    Inventory,
    Shipping,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Step::Payment => "payment",
            Step::Inventory => "inventory",
            Step::Shipping => "shipping",
        }
    }
}

/// A service that has an outbox.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Owner {
    Order,
    Payment,
    Inventory,
    Shipping,
}

impl Owner {
    const ALL: [Owner; 4] = [Owner::Order, Owner::Payment, Owner::Inventory, Owner::Shipping];

    fn service(self) -> Service {
        match self {
            Owner::Order => Service::Order,
            Owner::Payment => Service::Payment,
            Owner::Inventory => Service::Inventory,
            Owner::Shipping => Service::Shipping,
        }
    }

    /// The one that was named, or all.
    fn or_all(named: Option<Owner>) -> Vec<Owner> {
        named.map_or_else(|| Owner::ALL.to_vec(), |one| vec![one])
    }
}

/// `90s`, `5m`, `2h`, `3days`.
fn age(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; say 90s, 5m, 2h or 3days"))
}

/// A time, or how long ago it was.
fn moment(text: &str) -> Result<String, String> {
    let at = match humantime::parse_duration(text) {
        Ok(ago) => OffsetDateTime::now_utc() - ago,
        Err(_) => OffsetDateTime::parse(text, &Rfc3339)
            .map_err(|_| "say how long ago (15m, 2h) or a time like 2026-01-31T12:00:00Z".to_owned())?,
    };
    at.format(&Rfc3339).map_err(|error| error.to_string())
}

/// Asks a service for a list.
async fn fetch(shop: &Shop, service: Service, path: &str, query: &[(&str, String)]) -> anyhow::Result<Value> {
    let answer = send(shop.client(service)?.ops_request(Method::GET, path).query(query)).await;
    let answer = answer.with_context(|| format!("{} does not answer", service.name()))?;
    anyhow::ensure!(answer.status == 200, "{} answers with {}", service.name(), problem(&answer));
    Ok(answer.body)
}

/// Asks a service for an act.
async fn post(shop: &Shop, service: Service, path: &str, body: &Value) -> anyhow::Result<Value> {
    let answer = shop.client(service)?.ops_post(path, body).await;
    let answer = answer.with_context(|| format!("{} does not answer", service.name()))?;
    anyhow::ensure!(answer.status == 200, "{} refuses: {}", service.name(), problem(&answer));
    Ok(answer.body)
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// To the second, in universal time.
fn clock(value: &Value) -> String {
    text(value).chars().take(19).collect()
}
