//! Which quorum queues RabbitMQ has written down. It does so half a second after a declaration (`ra_directory`, its
//! table `names.dets`); killed before, it comes back with a queue that never has a leader again. That is a fault of
//! the broker, none that our tests are about: so a kill waits until all queues are written down.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;
use tokio::time::{Instant, sleep};

const WRITTEN_WITHIN: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until the node that keeps its data in `data` has written down all its quorum queues. A node that does not
/// answer is not waited for.
pub(super) async fn written(data: &Path, management: &str, user: &str, password: &str) {
    let Ok(queues) = quorum_queues(management, user, password).await else { return };
    let begin = Instant::now();
    while begin.elapsed() < WRITTEN_WITHIN {
        let table = fs::read(data.join("names.dets")).unwrap_or_default();
        if queues.iter().all(|name| table.windows(name.len()).any(|part| part == name.as_bytes())) {
            return;
        }
        sleep(PAUSE).await;
    }
}

/// Their names, as the node's table has them.
async fn quorum_queues(management: &str, user: &str, password: &str) -> anyhow::Result<Vec<String>> {
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(1)).build()?;
    let url = format!("{management}/queues?columns=name,vhost,type");
    let queues: Value = client.get(url).basic_auth(user, Some(password)).send().await?.json().await?;
    let text = |queue: &Value, key: &str| queue[key].as_str().unwrap_or_default().to_owned();
    let quorum = queues.as_array().context("a list")?.iter().filter(|queue| queue["type"] == "quorum");
    Ok(quorum.map(|queue| format!("{}_{}", text(queue, "vhost").replace('/', "%2F"), text(queue, "name"))).collect())
}
