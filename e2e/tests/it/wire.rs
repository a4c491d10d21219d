//! What docs/wire.md tells services in other languages is what is really sent.

use std::collections::BTreeSet;
use std::fs;

use anyhow::Context as _;
use contracts::step::{Direction, Outcome, Step};
use contracts::topology::{EXCHANGES, QUEUES};
use e2e::{Service, Settings, Stack, State, eventually, workspace};
use reqwest::Method;
use serde_json::{Value, json};

use crate::shop::{SOON, comes_to, order, place};

fn page() -> anyhow::Result<String> {
    Ok(fs::read_to_string(workspace().join("docs/wire.md"))?)
}

fn names(object: &Value) -> BTreeSet<String> {
    object.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
}

#[test]
fn the_page_names_every_exchange_queue_command_and_answer() -> anyhow::Result<()> {
    let page = page()?;
    let places = EXCHANGES.iter().map(|exchange| exchange.name).chain(QUEUES.iter().map(|queue| queue.name));
    let commands = Step::ALL.into_iter().flat_map(|step| [Direction::Do, Direction::Undo].map(|to| step.command(to)));
    let outcomes = [Outcome::Done, Outcome::Rejected, Outcome::Failed, Outcome::Undone, Outcome::UndoFailed];
    let answers = Step::ALL.into_iter().flat_map(|step| outcomes.into_iter().filter_map(move |one| step.answer(one)));
    for name in places.chain(commands).chain(answers) {
        assert!(page.contains(&format!("`{name}`")), "docs/wire.md does not name {name}");
    }
    Ok(())
}

#[tokio::test]
async fn a_command_in_the_queue_looks_as_the_page_says() -> anyhow::Result<()> {
    let page = page()?;
    let example = page.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).context("an example")?;
    let example: Value = serde_json::from_str(example)?;
    let stack = Stack::start(Settings::default()).await?;
    stack.payment().kill().await?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    let path = format!("queues/{}/payment.commands/get", stack.vhost.name());
    let ask = json!({"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"});
    let message = eventually(SOON, "the command is in the queue", async || {
        let found = stack.vhost.call(Method::POST, &path, Some(ask.clone())).await?;
        Ok(if found[0].is_object() { State::Reached(found[0].clone()) } else { State::pending(found) })
    })
    .await?;
    let body: Value = serde_json::from_str(message["payload"].as_str().context("a text")?)?;
    assert_eq!(names(&body), names(&example), "{body:#}");
    assert_eq!(names(&body["payload"]), names(&example["payload"]), "{body:#}");
    assert_eq!(body["idempotencyKey"], format!("{}:payment:do", placed.saga));
    let properties = &message["properties"];
    assert_eq!((&properties["message_id"], &properties["type"]), (&body["eventId"], &body["eventType"]));
    assert_eq!((&properties["correlation_id"], &properties["app_id"]), (&body["correlationId"], &json!("order")));
    assert_eq!((&properties["delivery_mode"], &properties["content_type"]), (&json!(2), &json!("application/json")));
    for header in names(&properties["headers"]).iter().filter(|name| !name.starts_with("x-")) {
        assert!(page.contains(&format!("`{header}`")), "docs/wire.md does not name the header {header}");
    }
    stack.process(Service::Payment).restart().await?;
    comes_to(&stack, &placed, "completed").await.map(drop)
}
