//! What the order service answers about orders that have ended.

use std::collections::BTreeMap;

use anyhow::ensure;
use serde_json::{Value, json};

use super::books::Ended;
use super::{Told, Violation};
use crate::stack::client::Client;

/// Compares the answers with the tables.
pub(super) async fn compare(orders: &Client, ended: &[Ended]) -> anyhow::Result<Told> {
    let oldest = ended.last().map(|ended| ended.order.as_str()).unwrap_or_default();
    let answers = if ended.is_empty() { BTreeMap::new() } else { newest_until(orders, oldest).await? };
    let mut violations = Vec::new();
    for Ended { order, answer: stored, .. } in ended {
        let answer = answers.get(order).unwrap_or(&Value::Null);
        let fields = ["sagaId", "correlationId", "status", "total", "reason"];
        let differing: Vec<&str> = fields.into_iter().filter(|field| answer[*field] != stored[*field]).collect();
        if !differing.is_empty() {
            violations.push(Violation {
                order: Some(order.clone()),
                what: "the order service answers what the tables say".to_owned(),
                rows: json!({"differing": differing, "tables": stored, "answer": answer}),
            });
        }
    }
    let note = format!("{} answers compared with the tables", ended.len());
    Ok(Told { violations, note: Some(note), ..Told::default() })
}

/// What it answers about its orders, the newest first, until this one.
async fn newest_until(orders: &Client, oldest: &str) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut answers = BTreeMap::new();
    let mut after = String::new();
    loop {
        let page = orders.get(&format!("/orders?newest=true&limit=100{after}")).await?;
        ensure!(page.status == 200, "the order service answers with {} {}", page.status, page.text);
        for order in page.body["orders"].as_array().into_iter().flatten() {
            answers.insert(order["orderId"].as_str().unwrap_or_default().to_owned(), order.clone());
        }
        // Ids rise with time.
        let is_there = answers.keys().next().is_some_and(|last| last.as_str() <= oldest);
        match page.body["next"].as_str() {
            Some(next) if !is_there => after = format!("&after={next}"),
            _ => return Ok(answers),
        }
    }
}
