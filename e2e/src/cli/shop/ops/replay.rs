//! `saga ops replay`: publishes again what was published.

use anyhow::bail;
use clap::Args as ClapArgs;
use e2e::Shop;
use serde_json::{Value, json};

use super::super::{Several, resolve};
use super::list::places;
use super::message::tell;
use super::{By, Exit, On, Owner, moment, post, text};

/// Publishes again what was published, one message, those of an order, or all of a time.
///
/// For a broker that lost what it had, or a receiver that has to hear something again. The messages keep their ids, so
/// every consumer that has seen one skips it. What is older than consumers remember is refused: they would act again.
#[derive(ClapArgs)]
#[group(id = "replayed", required = true, multiple = true, args = ["id", "since", "order"])]
pub(super) struct Arguments {
    /// One message, by its id.
    #[arg(conflicts_with_all = ["since", "order"])]
    id: Option<String>,
    /// All that were published since then: 15m, 2h, or a time like 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<String>,
    /// And before then.
    #[arg(long, value_name = "TIME", value_parser = moment, requires = "since")]
    until: Option<String>,
    /// Those of one order, by any of its ids.
    #[arg(long, value_name = "ID")]
    order: Option<String>,
    /// Only those of this type.
    #[arg(long = "type", value_name = "TYPE", conflicts_with = "id")]
    message_type: Option<String>,
    /// Only those that this service has published.
    #[arg(long)]
    service: Option<Owner>,
    #[command(flatten)]
    by: By,
    #[command(flatten)]
    on: On,
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let shop = Shop::find(arguments.on.on).await?;
    let mut owners = Owner::or_all(arguments.service);
    if let Some(id) = &arguments.id {
        let found = places(&shop, id).await?;
        let sent = found.iter().find(|place| place["table"] == "outbox_history" || place["table"] == "outbox");
        let Some(sender) = sent.map(|place| text(&place["service"])) else {
            bail!("no service has {id} in its history: it is purged, or published rows are deleted there");
        };
        owners.retain(|owner| owner.service().name() == sender);
    }
    let saga_id = match &arguments.order {
        Some(id) => Some(resolve(&shop, id, Several::Refused).await?.saga_id),
        None => None,
    };
    let which = json!({
        "messageId": arguments.id, "since": arguments.since, "until": arguments.until, "sagaId": saga_id,
        "type": arguments.message_type
    });
    let body = json!({"which": which, "act": arguments.by.body()});
    let mut all = json!({"dryRun": arguments.by.dry_run, "changed": [], "unchanged": [], "more": false});
    for owner in owners {
        let outcome = post(&shop, owner.service(), "/ops/history/replay", &body).await?;
        for name in ["changed", "unchanged"] {
            let part = outcome[name].as_array().cloned().unwrap_or_default();
            if let Some(list) = all[name].as_array_mut() {
                list.extend(part);
            }
        }
        all["more"] = Value::Bool(all["more"] == true || outcome["more"] == true);
    }
    tell(&all, arguments.on.json, "replay")
}
