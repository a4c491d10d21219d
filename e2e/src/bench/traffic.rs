//! The messages that relay and inbox are measured with, and what must be true of them afterwards.

use std::collections::HashMap;

use anyhow::{Context as _, ensure};
use contracts::topology::COMMANDS;
use messaging::{Aggregate, Cause, Message, Route};
use serde_json::json;
use uuid::Uuid;

/// So many aggregates share the messages of a run.
pub(super) const AGGREGATES: usize = 1_000;

/// A command as the order service sends it. Its saga is its aggregate, as far as order goes.
pub(super) fn message(number: usize, routing_key: &'static str) -> anyhow::Result<Message> {
    let aggregate = Uuid::from_u128(1 + (number % AGGREGATES) as u128);
    let payload = json!({
        "orderId": aggregate, "total": {"amount": 15_800, "currency": "EUR"}, "paymentMethod": "pm_ok",
    });
    let mut cause = Cause::new(Uuid::now_v7().to_string()).within_saga(aggregate);
    cause.causation_id = Some(Uuid::now_v7());
    let trace = Uuid::now_v7().simple().to_string();
    cause.trace.traceparent = Some(format!("00-{trace}-{}-01", &trace[16..]));
    let aggregate = Aggregate { kind: "Order".into(), id: aggregate.to_string() };
    let key = format!("{}:payment:do", aggregate.id);
    let message =
        Message::new("CapturePayment", aggregate, Route::mandatory(COMMANDS.name, routing_key), &payload, cause)?;
    Ok(message.with_idempotency_key(key))
}

/// Whether what came out, as message ids in order, is what went in: each once, and in order within each aggregate.
pub(super) fn each_once_and_in_order(sent: &[Message], came: &[String]) -> anyhow::Result<()> {
    let numbers: HashMap<String, usize> =
        sent.iter().enumerate().map(|(number, message)| (message.id.to_string(), number)).collect();
    let mut seen = vec![false; sent.len()];
    let mut last: HashMap<&str, usize> = HashMap::new();
    for id in came {
        let number = *numbers.get(id).with_context(|| format!("message {id} came out and was never sent"))?;
        ensure!(!std::mem::replace(&mut seen[number], true), "message {id} came out twice");
        let aggregate = sent[number].aggregate.id.as_str();
        if let Some(before) = last.insert(aggregate, number) {
            let overtaken = sent[before].id;
            ensure!(before < number, "message {id} of {aggregate} came out after {overtaken}, which was sent later");
        }
    }
    match seen.iter().position(|seen| !seen) {
        Some(lost) => anyhow::bail!("message {} was sent and never came out", sent[lost].id),
        None => Ok(()),
    }
}
