//! What is seen of orders that were placed, each as a short text: so that what is expected is a text too, which people
//! write and read. Money and parcels come from the third parties' ledger, stock from inventory, what became of
//! messages from the services' own figures.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use serde_json::Value;

use super::report::{Placed, What};
use super::tell::{answer, ignored, money, order, parcels, step, tally, took, undone};
use crate::shop::Shop;
use crate::stack::Service;
use crate::stack::client::Answer;

/// What the shop was like before: only changes are told.
#[derive(Clone, Debug, Default)]
pub(super) struct Before {
    stock: BTreeMap<String, Stock>,
    messages: BTreeMap<(Service, String), u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stock {
    available: i64,
    reserved: i64,
    shipped: i64,
}

impl Before {
    pub(super) async fn look(shop: &Shop, skus: &[String]) -> anyhow::Result<Before> {
        let mut before = Before { stock: BTreeMap::new(), messages: unusual(shop).await? };
        for sku in skus {
            before.stock.insert(sku.clone(), stock(shop, sku).await?);
        }
        Ok(before)
    }
}

/// What is seen now.
pub(super) async fn observe(
    shop: &Shop,
    before: &Before,
    placed: &[Placed],
    answers: &[Answer],
    what: What,
) -> anyhow::Result<String> {
    Ok(match what {
        What::Answer => tally(answers.iter().map(answer)),
        What::Order => tally(orders(shop, placed).await?.iter().map(order)),
        What::Payment | What::Inventory | What::Shipping => {
            tally(orders(shop, placed).await?.iter().map(|order| step(order, what.name())))
        }
        What::Took => tally(orders(shop, placed).await?.iter().map(took)),
        What::Undone => tally(orders(shop, placed).await?.iter().map(undone)),
        What::Ignored => tally(orders(shop, placed).await?.iter().map(ignored)),
        What::Money => money(&ledgers(shop, placed).await?),
        What::Parcels => parcels(&ledgers(shop, placed).await?),
        What::Stock => stocks(shop, before).await?,
        What::Available => {
            let mut left = Vec::new();
            for sku in before.stock.keys() {
                left.push(stock(shop, sku).await?.available.to_string());
            }
            left.join(", ")
        }
        What::Messages => messages(before, unusual(shop).await?),
    })
}

async fn orders(shop: &Shop, placed: &[Placed]) -> anyhow::Result<Vec<Value>> {
    try_join_all(
        placed
            .iter()
            .map(async |placed| Ok(shop.get(Service::Order, &format!("/orders/{}", placed.order_id)).await?.body)),
    )
    .await
}

async fn ledgers(shop: &Shop, placed: &[Placed]) -> anyhow::Result<Vec<Value>> {
    try_join_all(placed.iter().map(async |placed| {
        Ok(shop.get(Service::Sandbox, &format!("/ledger?orderId={}", placed.order_id)).await?.body)
    }))
    .await
}

async fn stock(shop: &Shop, sku: &str) -> anyhow::Result<Stock> {
    let body = shop.get(Service::Inventory, &format!("/stock/{sku}")).await?.body;
    let number = |field: &str| body[field].as_i64().unwrap_or_default();
    Ok(Stock { available: number("available"), reserved: number("reserved"), shipped: number("shipped") })
}

async fn stocks(shop: &Shop, before: &Before) -> anyhow::Result<String> {
    let mut told = Vec::new();
    for (sku, before) in &before.stock {
        let now = stock(shop, sku).await?;
        let changes = [("reserved", now.reserved - before.reserved), ("shipped", now.shipped - before.shipped)];
        let moved: i64 = changes.iter().map(|(_, change)| change).sum();
        for (name, change) in changes.into_iter().filter(|(_, change)| *change != 0) {
            told.push(format!("{change} {name}"));
        }
        if now.available != before.available - moved {
            told.push(format!("{} gone astray", before.available - moved - now.available));
        }
    }
    Ok(if told.is_empty() { "as before".to_owned() } else { told.join(", ") })
}

/// How many messages of each service ended in another way than they should.
async fn unusual(shop: &Shop) -> anyhow::Result<BTreeMap<(Service, String), u64>> {
    let mut found: BTreeMap<(Service, String), u64> = BTreeMap::new();
    for service in Service::ALL.into_iter().filter(|service| service.has_broker()) {
        let figures = shop.client(service)?.ops_get("/metrics").await?;
        let lines = figures.text.lines().filter(|line| line.starts_with("messaging_handled_total{"));
        for (labels, number) in lines.filter_map(|line| line.rsplit_once(' ')) {
            let outcome = labels.split("outcome=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
            if outcome != "done" {
                *found.entry((service, outcome.to_owned())).or_default() += number.parse::<u64>().unwrap_or_default();
            }
        }
    }
    Ok(found)
}

fn messages(before: &Before, now: BTreeMap<(Service, String), u64>) -> String {
    let told: Vec<String> = now
        .into_iter()
        .filter_map(|(key, number)| {
            // A service that was started again counts from zero.
            let known = before.messages.get(&key).copied().unwrap_or_default();
            let new = number.checked_sub(known).unwrap_or(number);
            (new > 0).then(|| format!("{new} {} at {}", key.1, key.0.name()))
        })
        .collect();
    if told.is_empty() { "all as usual".to_owned() } else { told.join(", ") }
}
