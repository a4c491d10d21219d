//! `saga why`: why an order is where it is.

use std::process::ExitCode;

use clap::Args;
use e2e::Shop;
use e2e::stack::Service;
use serde_json::Value;

use super::show::{QUIET, TITLE, columns, show, show_json, styled};
use super::{Exit, On, Several, ops_get, resolve};

/// Says why an order is where it is: in one sentence, with the evidence and what to do next.
///
/// The order service follows the open command of the saga through every service until it finds what it waits for: its
/// own outbox, the broker, the participant's consumer, retries, a parked message, a deadline, a person.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The id of the order, of its saga, of one of its messages, or its correlation id.
    id: String,
    #[command(flatten)]
    on: On,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let shop = Shop::find(arguments.on.on).await?;
    let meant = resolve(&shop, &arguments.id, Several::Newest).await?;
    let why = ops_get(&shop, Service::Order, &format!("/ops/why/{}", meant.order_id)).await?;
    if arguments.on.json {
        show_json(&why)?;
    } else {
        tell(&why);
    }
    Ok(Exit::Good.into())
}

fn tell(why: &Value) {
    let text = |field: &str| why[field].as_str().unwrap_or_default().to_owned();
    show(styled(TITLE, format!(" {}", text("sentence"))));
    show("");
    let mut rows = vec![
        ["order".to_owned(), format!("{} ({})", text("orderId"), text("status"))],
        ["correlation id".to_owned(), text("correlationId")],
        ["cause".to_owned(), text("cause")],
    ];
    for field in ["since", "until"] {
        rows.extend(why[field].as_str().map(|at| [field.to_owned(), at.to_owned()]));
    }
    let evidence = why["evidence"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (number, seen) in evidence.iter().filter_map(Value::as_str).enumerate() {
        let name = if number == 0 { "evidence" } else { "" };
        rows.push([name.to_owned(), styled(QUIET, seen)]);
    }
    rows.push(["next".to_owned(), text("next")]);
    columns(rows);
}
