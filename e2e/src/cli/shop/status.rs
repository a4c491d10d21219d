//! `saga status`: what runs, where, and whether it is well.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use e2e::Shop;
use e2e::stack::Service;
use futures::future::join_all;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::places::places;
use super::show::{BAD, GOOD, WARNING, columns, show, show_json, styled};
use super::{Exit, On};

/// Shows what runs, where it is, and whether it is well.
///
/// Ends with 0 if every service is ready, with 1 if one is not, with 3 if nothing runs.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    on: On,
}

/// Of orders that wait for a person, so many are named.
const SHOWN: usize = 5;
/// How long a service may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Serialize)]
struct Health {
    service: Service,
    /// `ready`, `not ready` or `away`.
    status: &'static str,
    /// What is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    because: Option<String>,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let shop = Shop::find(arguments.on.on).await?;
    let disturbed = shop.disturbed().await?;
    // Whoever cannot be asked is among those that are not well.
    let switches = timeout(PATIENCE, shop.switched_on()).await.unwrap_or(Ok(Vec::new())).unwrap_or_default();
    let health = join_all(shop.at.services.keys().map(|service| look(&shop, *service))).await;
    let parked = join_all(shop.at.services.keys().map(|service| parked(&shop, *service))).await;
    let parked: BTreeMap<&str, u64> = parked.into_iter().flatten().filter(|(_, count)| *count > 0).collect();
    let waiting = waiting_for_a_person(&shop).await.unwrap_or_default();
    let all_well = health.iter().all(|health| health.status == "ready");
    if arguments.on.json {
        let all = json!({"shop": shop.at, "health": health, "disturbed": disturbed, "switchedOn": switches,
                         "parked": parked, "needAttention": waiting});
        show_json(&all)?;
    } else {
        places(&shop.at);
        columns(health.iter().map(|Health { service, status, because }| {
            let style = match *status {
                "ready" => GOOD,
                "not ready" => WARNING,
                _ => BAD,
            };
            [service.name().to_owned(), styled(style, status), because.clone().unwrap_or_default()]
        }));
        let parts = disturbed.iter().map(|(part, act)| format!("{part} ({act})"));
        let broken: Vec<String> = parts.chain(switches).collect();
        if !broken.is_empty() {
            show(styled(
                WARNING,
                format!(" broken on request: {}; `cargo saga mend` takes it back", broken.join(", ")),
            ));
        }
    }
    if !arguments.on.json && !parked.is_empty() {
        let told: Vec<String> = parked.iter().map(|(service, count)| format!("{count} at {service}")).collect();
        show(styled(
            WARNING,
            format!(" parked messages: {}; see README, \"When a person is needed\"", told.join(", ")),
        ));
    }
    if !arguments.on.json && !waiting.is_empty() {
        let (shown, more) = (waiting.iter().take(SHOWN).cloned().collect::<Vec<_>>(), waiting.len() > SHOWN);
        let more = if more { " and others" } else { "" };
        show(styled(WARNING, format!(" orders that wait for a person: {}{more}", shown.join(", "))));
    }
    Ok(if all_well { Exit::Good } else { Exit::Failed }.into())
}

async fn look(shop: &Shop, service: Service) -> Health {
    let answer = match shop.client(service) {
        // Whoever is frozen would keep us waiting.
        Ok(client) => match timeout(PATIENCE, client.ops_get("/health/ready")).await {
            Ok(answer) => answer,
            Err(_) => Err(anyhow!("no answer within {} s", PATIENCE.as_secs())),
        },
        Err(error) => Err(error),
    };
    let (status, because) = match answer {
        Ok(answer) if answer.status == 200 => ("ready", None),
        Ok(answer) => ("not ready", Some(waiting(&answer.body))),
        // The whole chain repeats the address, and ends with what is the matter.
        Err(error) => ("away", Some(error.root_cause().to_string())),
    };
    Health { service, status, because }
}

/// How many messages a service has set aside for a person.
async fn parked(shop: &Shop, service: Service) -> Option<(&'static str, u64)> {
    let figures = timeout(PATIENCE, shop.client(service).ok()?.ops_get("/metrics")).await.ok()?.ok()?.text;
    let is_it = |line: &&str| line.starts_with("inbox_open_messages{") && line.contains("status=\"parked\"");
    let count = figures.lines().find(is_it)?.rsplit_once(' ')?.1.parse::<f64>().ok()?;
    Some((service.name(), count as u64))
}

async fn waiting_for_a_person(shop: &Shop) -> anyhow::Result<Vec<String>> {
    let orders = timeout(PATIENCE, shop.get(Service::Order, "/orders?status=needs_attention&limit=100")).await??.body;
    let ids = orders["orders"].as_array().into_iter().flatten().filter_map(|order| order["orderId"].as_str());
    Ok(ids.map(str::to_owned).collect())
}

/// Which loops do not work, each reason once.
fn waiting(health: &Value) -> String {
    let loops = health["loops"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut reasons: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for one in loops.iter().filter(|one| one["state"] != "working") {
        let reason = one["reason"].as_str().unwrap_or("has not begun");
        reasons.entry(reason.to_owned()).or_default().push(one["name"].as_str().unwrap_or_default());
    }
    if health["database"] != "up" {
        reasons.entry("is away".to_owned()).or_default().push("database");
    }
    if reasons.is_empty() {
        return health["detail"].as_str().map_or_else(|| health.to_string(), str::to_owned);
    }
    let told: Vec<String> =
        reasons.into_iter().map(|(reason, names)| format!("{}: {reason}", names.join(", "))).collect();
    told.join("; ")
}
