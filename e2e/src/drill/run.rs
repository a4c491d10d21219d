//! One drill on a running shop: places its orders, waits for their end, and writes down what the logs say about them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::answers::{Answers, ENDS, Question, Sealed, undone};
use super::plan::Plan;
use crate::eventually::{State, eventually};
use crate::scenario::order_body;
use crate::shop::{Line, Shop, problem};
use crate::stack::Service;

/// Longer than all attempts of a step, and of its undo, on a busy machine.
const ENDS_WITHIN: Duration = Duration::from_secs(90);
/// How long a service that answers *not now* is asked again.
const TOLD_WITHIN: Duration = Duration::from_secs(30);
/// What was decided is written at once; containers may hand it over a moment later.
const WRITTEN_WITHIN: Duration = Duration::from_secs(30);
const SHIPPED: &str = "completed";

/// What came of a drill: what its learner may know.
#[derive(Clone, Debug)]
pub struct Drill {
    pub seed: u64,
    /// How many orders were placed.
    pub orders: usize,
    /// What the services wrote meanwhile.
    pub log: PathBuf,
}

/// Lets something fail as the seed says, and leaves the log and the sealed answers in the directory. An order that
/// waits for a person in the end is settled afterwards: no drill leaves work behind.
///
/// # Errors
/// Something is broken in the shop already, or something else fails than was planned.
pub async fn run(shop: &Shop, seed: u64, directory: &Path) -> anyhow::Result<Drill> {
    is_whole(shop).await?;
    let begin = OffsetDateTime::now_utc();
    let mut placed = Vec::new();
    for order in Plan::of(seed).orders {
        // Ids of the drill tell nothing, and no two drills share one.
        let (key, id) = (format!("drill-{:016x}", rand::random::<u64>()), format!("{:08x}", rand::random::<u32>()));
        let answer = shop.order(&order_body(&order), &key, Some(&id)).await?;
        if answer.status != 202 {
            bail!("an order is not accepted: {}", problem(&answer));
        }
        placed.push(answer.body["orderId"].as_str().context("the id of an accepted order")?.to_owned());
    }
    let mut ended = Vec::new();
    for id in &placed {
        ended.push(end(shop, id).await?);
    }
    let failed: Vec<&Value> = ended.iter().filter(|order| order["status"] != SHIPPED).collect();
    let [failed] = failed.as_slice() else {
        let told = "something else is broken in this shop, or out of stock: see `cargo saga status`";
        bail!("{} of {} orders failed, and one was meant to: {told}", failed.len(), ended.len());
    };
    let lines = written(shop, begin, &ended).await?;
    fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    let log = directory.join(format!("drill-{seed}.log"));
    fs::write(&log, lines).with_context(|| format!("writing {}", log.display()))?;
    Sealed::new(&right(failed)?).keep(&log)?;
    settle(shop, failed).await?;
    Ok(Drill { seed, orders: ended.len(), log })
}

/// A shop in which something else is broken teaches the wrong thing.
async fn is_whole(shop: &Shop) -> anyhow::Result<()> {
    let parts = shop.disturbed().await?.into_iter().map(|(part, act)| format!("{part} ({act})"));
    let what = "the sandbox tells what is switched on";
    let switches = eventually(TOLD_WITHIN, what, async || Ok(State::Reached(shop.switched_on().await?))).await?;
    let broken: Vec<String> = parts.chain(switches).collect();
    if !broken.is_empty() {
        bail!("a drill needs a shop that is whole, and broken on request is {}: `cargo saga mend`", broken.join(", "));
    }
    Ok(())
}

/// The order as it has ended, or as it waits for a person.
async fn end(shop: &Shop, id: &str) -> anyhow::Result<Value> {
    let path = format!("/orders/{id}");
    eventually(ENDS_WITHIN, "every order of the drill has ended", async || {
        let seen = shop.get(Service::Order, &path).await?.body;
        let status = seen["status"].as_str().unwrap_or_default();
        Ok(if is_end(status) { State::Reached(seen) } else { State::pending(status) })
    })
    .await
}

fn is_end(status: &str) -> bool {
    status == SHIPPED || ENDS.contains(&status)
}

/// The lines about these orders and about none, once they tell how each order ended.
async fn written(shop: &Shop, begin: OffsetDateTime, orders: &[Value]) -> anyhow::Result<String> {
    let ids = |field: &str| orders.iter().filter_map(|order| order[field].as_str()).collect::<BTreeSet<&str>>();
    let (correlations, orders) = (ids("correlationId"), ids("orderId"));
    let is_ours = |line: &Line| {
        let is_foreign =
            |field: &str, ours: &BTreeSet<&str>| line.fields[field].as_str().is_some_and(|id| !ours.contains(id));
        !is_foreign("correlationId", &correlations) && !is_foreign("orderId", &orders)
    };
    let what = format!("the logs ({}) tell as JSON how every order ended", shop.at.logs);
    eventually(WRITTEN_WITHIN, &what, async || {
        let lines: Vec<Line> = shop.log_lines(begin).await?.into_iter().filter(is_ours).collect();
        let ends = lines.iter().filter(|line| line.fields["service"] == Service::Order.name());
        let ends = ends.filter(|line| line.fields["status"].as_str().is_some_and(is_end));
        let told: BTreeSet<&str> = ends.filter_map(|line| line.fields["correlationId"].as_str()).collect();
        if told.len() < correlations.len() {
            return Ok(State::pending(format!("{} lines, {} ends", lines.len(), told.len())));
        }
        Ok(State::Reached(lines.into_iter().map(|line| line.text + "\n").collect()))
    })
    .await
}

/// The right answers, from the order service's own books.
fn right(order: &Value) -> anyhow::Result<Answers> {
    let text = |value: &Value| value.as_str().map(str::to_owned).context("an order that tells how it failed");
    let steps = order["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is = |row: &&Value, direction: &str, ends: &[&str]| {
        row["direction"] == direction && row["status"].as_str().is_some_and(|status| ends.contains(&status))
    };
    let failed = steps.iter().find(|row| is(row, "do", &["rejected", "failed"])).context("a step that failed")?;
    let done = steps.iter().filter(|row| is(row, "undo", &["done"])).filter_map(|row| row["step"].as_str());
    let done: Vec<&str> = done.collect();
    let undone =
        undone(&if done.is_empty() { "nothing".to_owned() } else { done.join(",") }).map_err(anyhow::Error::msg)?;
    Ok(Answers::from([
        (Question::CorrelationId, text(&order["correlationId"])?),
        (Question::Step, text(&failed["step"])?),
        (Question::Attempt, failed["handlerAttempts"].as_i64().context("its attempts")?.to_string()),
        (Question::Undone, undone),
        (Question::End, text(&order["status"])?),
    ]))
}

/// Ends an order that waits for a person, as the person would who accepts it as it is.
async fn settle(shop: &Shop, order: &Value) -> anyhow::Result<()> {
    let steps = order["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let waits = |row: &&Value| row["direction"] == "undo" && row["status"] == "failed";
    let (true, Some(row)) = (order["status"] == "needs_attention", steps.iter().find(waits)) else { return Ok(()) };
    let saga = order["sagaId"].as_str().context("a saga")?;
    let body = json!({"step": row["step"], "reason": "the drill is over", "actor": "drill"});
    let orders = shop.client(Service::Order)?;
    // Harmless to repeat: a settled step stays settled.
    eventually(TOLD_WITHIN, "the order that waits for a person is settled", async || {
        let answer = orders.ops_post(&format!("/ops/sagas/{saga}/settle"), &body).await?;
        Ok(match answer.status {
            200 => State::Reached(()),
            503 => State::pending(problem(&answer)),
            _ => State::Lost(problem(&answer)),
        })
    })
    .await
}
