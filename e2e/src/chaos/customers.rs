//! Customers who place orders at a steady rate, whatever the answers, and behave as good clients do: without an answer,
//! or with *not now*, they try again later, with the same key, and each time wait longer.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use rand::Rng as _;
use reqwest::RequestBuilder;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::history::{History, Request, Wanted};
use super::plan::Plan;
use super::wish::Wish;
use crate::stack::client::{Answer, send};

/// Longer than any request may take in a service; who is frozen answers later, or never.
const PATIENCE: Duration = Duration::from_secs(30);
/// Without an answer, the first wait.
const AGAIN: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// After the last fault has healed, whoever has no answer after so long gets none.
const ANSWERED_WITHIN: Duration = Duration::from_secs(90);

/// All customers of a run.
pub(super) struct Customers<'a> {
    client: reqwest::Client,
    /// Of the order service.
    url: String,
    plan: &'a Plan,
    history: &'a History,
}

impl<'a> Customers<'a> {
    pub(super) fn new(url: String, plan: &'a Plan, history: &'a History) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build()?;
        Ok(Customers { client, url, plan, history })
    }

    /// Lets them come until the token says that it is over, then waits until each has an answer. Returns how many
    /// came, and how many went without one.
    pub(super) async fn come(&self, over: &CancellationToken) -> (u64, usize) {
        let (mut number, mut at_work) = (0, FuturesUnordered::new());
        loop {
            let next = self.history.began() + Duration::from_secs_f64(number as f64 / self.plan.rate);
            tokio::select! {
                () = over.cancelled() => break,
                () = sleep_until(next) => {
                    at_work.push(self.serve(number));
                    number += 1;
                }
                Some(()) = at_work.next() => {}
            }
        }
        let last = Instant::now() + ANSWERED_WITHIN;
        while let Ok(Some(())) = timeout_at(last, at_work.next()).await {}
        (number, at_work.len())
    }

    /// One customer, to the end.
    async fn serve(&self, number: u64) {
        let wish = Wish::of(self.plan, number);
        let key = format!("chaos-{number}");
        let order = || self.client.post(format!("{}/orders", self.url)).json(&wish.body);
        let Some(id) = self.insist(number, Wanted::Order, &key, order).await else { return };
        if let Some(after) = wish.repeats_after {
            sleep(after).await;
            self.insist(number, Wanted::Repeat, &key, order).await;
        }
        if let Some(after) = wish.cancels_after {
            sleep(after).await;
            let cancel = || self.client.post(format!("{}/orders/{id}/cancel", self.url)).json(&serde_json::json!({}));
            self.insist(number, Wanted::Cancel, &format!("{key}-cancel"), cancel).await;
        }
    }

    /// Asks until there is an answer, and returns the order's id if the answer has one.
    async fn insist(
        &self,
        number: u64,
        wanted: Wanted,
        key: &str,
        request: impl Fn() -> RequestBuilder,
    ) -> Option<String> {
        let mut wait = AGAIN;
        for attempt in 1.. {
            let at = self.history.now();
            let answer = send(request().header("Idempotency-Key", key)).await;
            let asked_to_wait = answer.as_ref().ok().and_then(retry_after);
            let order = answer.as_ref().ok().and_then(|answer| answer.body["orderId"].as_str().map(str::to_owned));
            let status = answer.as_ref().ok().map(|answer| answer.status);
            self.history.request(Request {
                at,
                seconds: self.history.now() - at,
                number,
                wanted,
                key: key.to_owned(),
                attempt,
                status,
                retry_after: asked_to_wait.is_some(),
                order: order.clone(),
                said: match &answer {
                    Ok(answer) if answer.status == 202 => None,
                    Ok(answer) => Some(answer.text.clone()),
                    Err(error) => Some(format!("{error:#}")),
                },
            });
            if status.is_some_and(|status| status != 503) {
                return order;
            }
            let least = asked_to_wait.unwrap_or_default().max(wait);
            // Not all at once, who were sent away together.
            sleep(least.mul_f64(rand::rng().random_range(1.0..1.5))).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        None
    }
}

fn retry_after(answer: &Answer) -> Option<Duration> {
    let seconds = answer.headers.get("retry-after")?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}
