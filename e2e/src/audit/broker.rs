//! What the broker says, through its management API. It counts with a delay of some seconds.

use anyhow::{Context as _, ensure};
use contracts::topology::QUEUES;
use serde::Deserialize;
use serde_json::json;

use super::{Told, Violation};
use crate::shop::Shop;

/// A queue as the broker tells of it. What it has not counted yet is not there.
#[derive(Debug, Deserialize)]
pub(super) struct Queue {
    name: String,
    messages_ready: Option<i64>,
    messages_unacknowledged: Option<i64>,
    consumers: Option<i64>,
}

impl Queue {
    fn is_known(&self) -> bool {
        QUEUES.iter().any(|known| known.name == self.name)
    }

    /// How many messages it has: waiting, and with a consumer.
    fn messages(&self) -> (i64, i64) {
        (self.messages_ready.unwrap_or(0), self.messages_unacknowledged.unwrap_or(0))
    }
}

pub(super) async fn look(shop: &Shop) -> anyhow::Result<Vec<Queue>> {
    let vhost = shop.at.broker.rsplit_once('/').context("a vhost")?.1;
    let url = format!("{}/api/queues/{vhost}", shop.at.broker_page);
    let answer = reqwest::Client::builder().no_proxy().build()?.get(url).send().await;
    let answer = answer.context("asking RabbitMQ's management")?;
    let status = answer.status();
    ensure!(status.is_success(), "RabbitMQ's management answers with {status}");
    Ok(answer.json().await?)
}

/// What is under way there.
pub(super) fn messages(queues: &[Queue]) -> Vec<String> {
    let known = queues.iter().filter(|queue| queue.is_known() && queue.messages() != (0, 0));
    known
        .map(|queue| {
            let (ready, unacked) = queue.messages();
            format!("in the queue {}: {ready} ready, {unacked} unacknowledged", queue.name)
        })
        .collect()
}

/// Whether a queue has nobody who takes from it, as far as is counted.
pub(super) fn lacks_consumers(queues: &[Queue]) -> bool {
    queues.iter().any(|queue| queue.is_known() && queue.consumers == Some(0))
}

pub(super) fn judge(queues: &[Queue], is_quiet: bool) -> Told {
    let violation = |what: &str, queue: &str, consumers: Option<i64>, (ready, unacked): (i64, i64)| Violation {
        order: None,
        what: what.to_owned(),
        rows: json!({"queue": queue, "consumers": consumers, "ready": ready, "unacknowledged": unacked}),
    };
    let mut violations = Vec::new();
    for queue in queues {
        let mut found = |what: &str| violations.push(violation(what, &queue.name, queue.consumers, queue.messages()));
        if !queue.is_known() {
            found("there is no other queue");
        } else if queue.consumers == Some(0) {
            found("each queue has a consumer");
        } else if is_quiet && queue.messages() != (0, 0) {
            found("no message is left in a queue");
        }
    }
    for known in QUEUES.iter().filter(|known| queues.iter().all(|queue| queue.name != known.name)) {
        violations.push(violation("each queue is there", known.name, None, (0, 0)));
    }
    Told { violations, ..Told::default() }
}
