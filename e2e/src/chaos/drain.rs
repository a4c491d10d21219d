//! After the last fault: everything that is under way comes to its end, with an operator who does what the README says
//! where an undo was refused.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::world::World;
use crate::shop::problem;
use crate::stack::Service;

/// The last wait between two tries of an undo is 30 s, and what lands late does so after 15 s.
const DRAINED_WITHIN: Duration = Duration::from_secs(180);
const LOOK: Duration = Duration::from_millis(250);
/// How often it is told what is still under way.
const TOLD: Duration = Duration::from_secs(5);

const LEFT: &str = "
    select (select count(*) from orders.sagas where state = 'running') as running,
           (select count(*) from orders.sagas where state = 'compensating') as compensating,
           (select count(*) from orders.sagas where state = 'needs_attention') as needs_attention";

/// How it came to rest.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Drained {
    /// From the end of the last fault until every order had ended.
    pub seconds: f64,
    /// Undos that an operator asked for once more.
    pub retried: usize,
    /// What was still under way when nobody waited any longer.
    pub left: Option<Value>,
}

/// Waits until every order has ended. `healed` is when the last fault was over.
pub(super) async fn drain(world: &World, healed: Instant, say: &dyn Fn(String)) -> anyhow::Result<Drained> {
    let (begin, mut told, mut retried) = (Instant::now(), Instant::now(), 0);
    loop {
        let left = world.stack.database.rows(LEFT).await?.pop().unwrap_or_default();
        let count = |state: &str| left[state].as_i64().unwrap_or_default();
        let seconds = healed.elapsed().as_secs_f64();
        if ["running", "compensating", "needs_attention"].into_iter().all(|state| count(state) == 0) {
            return Ok(Drained { seconds, retried, left: None });
        }
        if begin.elapsed() > DRAINED_WITHIN {
            return Ok(Drained { seconds, retried, left: Some(left) });
        }
        if told.elapsed() > TOLD {
            told = Instant::now();
            say(format!("  still under way: {left}"));
        }
        // Each other undo first: an order waits for one step at a time.
        if count("needs_attention") > 0 {
            retried += operate(world, say).await;
        }
        sleep(LOOK).await;
    }
}

/// Asks for every undo once more that waits for a person.
async fn operate(world: &World, say: &dyn Fn(String)) -> usize {
    let Ok(orders) = world.shop.client(Service::Order) else { return 0 };
    let Ok(waiting) = orders.ops_get("/ops/sagas?state=needs_attention&limit=100").await else { return 0 };
    let mut retried = 0;
    for saga in waiting.body.as_array().map(Vec::as_slice).unwrap_or_default() {
        let path = format!("/ops/sagas/{}/retry", saga["sagaId"].as_str().unwrap_or_default());
        let body = json!({"step": saga["step"], "reason": "the third party is back", "actor": "chaos"});
        match orders.ops_post(&path, &body).await {
            Ok(answer) if answer.status == 200 => retried += 1,
            // It went on by itself meanwhile.
            Ok(answer) if answer.status == 409 => {}
            Ok(answer) => say(format!("  the operator is refused: {}", problem(&answer))),
            Err(error) => say(format!("  the operator gets no answer: {error:#}")),
        }
    }
    retried
}
