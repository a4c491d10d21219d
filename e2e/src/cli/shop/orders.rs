//! `saga orders`: the orders, newest first.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use e2e::Shop;
use e2e::shop::problem;
use e2e::stack::Service;
use e2e::stack::client::send;
use reqwest::Method;
use serde_json::Value;

use super::show::{QUIET, columns, show, show_json, styled};
use super::{Exit, On};

/// Lists orders, newest first.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Only those in this state.
    #[arg(long, value_parser = ["pending", "completed", "cancelling", "cancelled", "settled", "needs_attention"])]
    status: Option<String>,
    /// So many.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=100))]
    limit: u8,
    /// Only those that are older than this order.
    #[arg(long, value_name = "ORDER")]
    before: Option<uuid::Uuid>,
    #[command(flatten)]
    on: On,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let shop = Shop::find(arguments.on.on).await?;
    let mut query = vec![("newest", "true".to_owned()), ("limit", arguments.limit.to_string())];
    query.extend(arguments.status.map(|status| ("status", status)));
    query.extend(arguments.before.map(|id| ("after", id.to_string())));
    let answer = send(shop.client(Service::Order)?.request(Method::GET, "/orders").query(&query)).await?;
    if answer.status != 200 {
        bail!("the order service answers with {}", problem(&answer));
    }
    if arguments.on.json {
        show_json(&answer.body)?;
        return Ok(Exit::Good.into());
    }
    let orders = answer.body["orders"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let title = ["placed", "order", "status", "reason", "correlation id"].map(|name| styled(QUIET, name));
    columns([title].into_iter().chain(orders.iter().map(|order| {
        [
            text(&order["createdAt"]).chars().take(19).collect(),
            text(&order["orderId"]),
            text(&order["status"]),
            text(&order["reason"]["code"]),
            text(&order["correlationId"]),
        ]
    })));
    if let Some(next) = answer.body["next"].as_str() {
        show(styled(QUIET, format!(" there are older ones: cargo saga orders --before {next}")));
    }
    Ok(Exit::Good.into())
}
