//! What is seen of orders that were placed, each as a short text: so that what is expected is a text too, which people
//! write and read. Money and parcels come from the third parties' ledger, stock from inventory, what became of
//! messages from the services' own figures.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use futures::future::try_join_all;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::run::Placed;
use crate::shop::Shop;
use crate::stack::Service;
use crate::stack::client::Answer;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// The answers to the orders.
    Answer,
    /// The status of the orders, with the reason where there is one.
    Order,
    /// What became of the step.
    Payment,
    Inventory,
    Shipping,
    /// What the provider took and gave back.
    Money,
    /// What the carrier sent and called back.
    Parcels,
    /// How the stock of what was ordered has changed.
    Stock,
    /// How many pieces of it can be ordered.
    Available,
    /// Answers that changed nothing.
    Ignored,
    /// Messages whose end was not the ordinary one.
    Messages,
}

impl What {
    pub fn name(self) -> &'static str {
        match self {
            What::Answer => "answer",
            What::Order => "order",
            What::Payment => "payment",
            What::Inventory => "inventory",
            What::Shipping => "shipping",
            What::Money => "money",
            What::Parcels => "parcels",
            What::Stock => "stock",
            What::Available => "available",
            What::Ignored => "ignored",
            What::Messages => "messages",
        }
    }
}

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

/// The same texts together, with their number.
fn tally(texts: impl Iterator<Item = String>) -> String {
    let mut counted: BTreeMap<String, usize> = BTreeMap::new();
    for text in texts {
        *counted.entry(text).or_default() += 1;
    }
    let all: usize = counted.values().sum();
    let mut counted: Vec<(String, usize)> = counted.into_iter().collect();
    counted.sort_by_key(|(_, number)| *number);
    let one = |(text, number): (String, usize)| if all == 1 { text } else { format!("{number} {text}") };
    let texts: Vec<String> = counted.into_iter().map(one).collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join("; ") }
}

fn answer(answer: &Answer) -> String {
    let mut text = answer.status.to_string();
    if let Some(code) = answer.body["code"].as_str() {
        let _ = write!(text, " {code}");
    }
    if answer.headers.contains_key("retry-after") {
        text.push_str(" with Retry-After");
    }
    text
}

fn order(order: &Value) -> String {
    let status = text(order, "status");
    match order["reason"]["code"].as_str() {
        Some(code) => format!("{status} ({code})"),
        None => status,
    }
}

/// `done`, `failed (payment.no_answer) after 4 attempts, undone`, and so on.
fn step(order: &Value, name: &str) -> String {
    let rows = order["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |direction: &str| rows.iter().find(|row| row["step"] == name && row["direction"] == direction);
    let Some(first) = row("do") else { return "not asked".to_owned() };
    let mut told = text(first, "status");
    if let Some(code) = first["error"].as_str() {
        let _ = write!(told, " ({code})");
    }
    if let Some(attempts) = first["handlerAttempts"].as_i64().filter(|attempts| *attempts > 1) {
        let _ = write!(told, " after {attempts} attempts");
    }
    if let Some(undo) = row("undo") {
        told.push_str(match undo["status"].as_str() {
            Some("done") => ", undone",
            Some("asked") => ", undo asked",
            Some("settled") => ", undo settled",
            Some("overdue") => ", undo overdue",
            _ => ", undo failed",
        });
        if let Some(code) = undo["error"].as_str() {
            let _ = write!(told, " ({code})");
        }
        if let Some(asked) = undo["attempts"].as_i64().filter(|asked| *asked > 1) {
            let _ = write!(told, " (asked {asked} times)");
        }
    }
    told
}

fn ignored(order: &Value) -> String {
    let rows = order["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let told: Vec<String> = rows
        .iter()
        .filter(|row| row["ignored"].is_object())
        .map(|row| {
            let ignored = &row["ignored"];
            let (answer, kind) = (text(ignored, "answer"), text(ignored, "kind"));
            match ignored["count"].as_i64() {
                Some(1) | None => format!("{answer} ({kind})"),
                Some(count) => format!("{answer} ({kind}, {count} times)"),
            }
        })
        .collect();
    if told.is_empty() { "none".to_owned() } else { told.join(", ") }
}

fn entries(ledgers: &[Value]) -> impl Iterator<Item = &Value> {
    ledgers.iter().filter_map(|ledger| ledger["entries"].as_array()).flatten()
}

fn money(ledgers: &[Value]) -> String {
    // Seen from the shop: what is taken is a plus.
    let sum = |effect: &str| -> i64 {
        let lines = entries(ledgers).filter(|line| line["account"] == "shop" && line["effect"] == effect);
        lines.filter_map(|line| line["amount"].as_i64()).sum()
    };
    let (taken, given_back) = (sum("capture"), -sum("refund"));
    let mut told = match (taken, given_back) {
        (0, 0) => "nothing taken".to_owned(),
        (taken, 0) => format!("{} taken", amount(taken)),
        (taken, back) => format!("{} taken, {} given back", amount(taken), amount(back)),
    };
    told.push_str(&to_come(ledgers, "provider"));
    told
}

fn parcels(ledgers: &[Value]) -> String {
    let count = |effect: &str| entries(ledgers).filter(|line| line["effect"] == effect).count();
    let mut told = match (count("ship"), count("recall")) {
        (0, 0) => "none".to_owned(),
        (sent, 0) => format!("{sent} sent"),
        (sent, back) => format!("{sent} sent, {back} called back"),
    };
    told.push_str(&to_come(ledgers, "carrier"));
    told
}

/// Requests that timed out and may still take effect.
fn to_come(ledgers: &[Value], party: &str) -> String {
    match ledgers.iter().filter_map(|ledger| ledger["pending"][party].as_i64()).sum() {
        0 => String::new(),
        pending => format!(", {pending} still pending"),
    }
}

fn amount(minor: i64) -> String {
    format!("{}.{:02}", minor / 100, minor % 100)
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

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{money, order, step, tally};

    #[test]
    fn equal_texts_are_counted_and_a_single_one_is_not() {
        let texts = |list: &[&str]| tally(list.iter().map(|text| (*text).to_owned()));
        assert_eq!(texts(&["completed"]), "completed");
        assert_eq!(texts(&["b", "a", "b"]), "1 a; 2 b");
        assert_eq!(texts(&[]), "none");
    }

    #[test]
    fn a_step_tells_attempts_reason_and_undo() {
        let seen = json!({"status": "cancelled", "reason": {"code": "step_failed"}, "steps": [
            {"step": "payment", "direction": "do", "status": "failed", "error": "payment.no_answer", "handlerAttempts": 4},
            {"step": "payment", "direction": "undo", "status": "done", "attempts": 2},
        ]});
        assert_eq!(order(&seen), "cancelled (step_failed)");
        assert_eq!(step(&seen, "payment"), "failed (payment.no_answer) after 4 attempts, undone (asked 2 times)");
        assert_eq!(step(&seen, "shipping"), "not asked");
    }

    #[test]
    fn money_that_was_taken_twice_is_seen() {
        let line = |effect: &str, amount: i64| json!({"account": "shop", "effect": effect, "amount": amount});
        let ledger = json!({"entries": [line("capture", 7900), line("capture", 7900), line("refund", -7900)],
                            "pending": {"provider": 1, "carrier": 0}});
        assert_eq!(money(&[ledger]), "158.00 taken, 79.00 given back, 1 still pending");
    }
}
