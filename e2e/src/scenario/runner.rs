//! Runs scenarios, says what came of them, and takes back whatever they have broken.

use std::time::Duration;

use anyhow::Context as _;
use tokio::time::{Instant, sleep};

use super::Scenario;
use super::damage::Damage;
use super::report::{Placed, Report};
use super::run::{Run, Tell};
use crate::shop::Shop;
use crate::stack::Service;

/// From so many seconds on it is told how long a step took.
const LONG: f64 = 1.0;

/// How long orders of before are waited for.
const END_WITHIN: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(200);

/// Runs scenarios one after the other.
pub struct Runner<'a> {
    shop: &'a Shop,
    damage: Damage,
}

impl<'a> Runner<'a> {
    pub fn new(shop: &'a Shop) -> Self {
        Runner { shop, damage: Damage::default() }
    }

    /// Runs one. `tell` hears each step in words, before it is done. What it broke is whole again when this returns;
    /// whoever drops it half-way calls [`Runner::tidy`].
    ///
    /// # Errors
    /// A step could not be done: the shop does not do what the scenario needs. What is seen is no error, whatever it is.
    pub async fn run(&self, scenario: &Scenario, mut tell: impl FnMut(String)) -> anyhow::Result<Report> {
        let begin = Instant::now();
        // What others left broken would be taken for what this scenario does.
        for (part, act) in self.shop.mend().await? {
            tell(format!("{} {part}, which somebody left broken", act.opposite()));
        }
        self.wait_for_orders_of_before(&mut tell).await?;
        for name in self.shop.switched_on().await? {
            tell(format!("note: {name} is switched on, which may change what is seen"));
        }
        let run = async {
            let mut run = Run::new(self.shop, &self.damage, scenario).await?;
            for step in &scenario.steps {
                tell(step.to_string());
                let begin = Instant::now();
                run.take(step, &mut tell).await.with_context(|| format!("{}: {step}", scenario.name))?;
                let seconds = begin.elapsed().as_secs_f64();
                if seconds >= LONG {
                    tell(format!("  took {seconds:.1} s"));
                }
            }
            run.look(None, &scenario.expect, &mut tell).await?;
            anyhow::Ok(run)
        };
        let done = run.await;
        self.tidy().await?;
        let Run { placed, checks, .. } = done?;
        let others = others(self.shop, &placed).await?;
        let (scenario, about, seconds) = (scenario.name.clone(), scenario.about.clone(), begin.elapsed().as_secs_f64());
        Ok(Report { scenario, about, seconds, orders: placed, others, checks, error: None })
    }

    /// Orders that are still under way would change stock meanwhile.
    async fn wait_for_orders_of_before(&self, tell: Tell<'_>) -> anyhow::Result<()> {
        let (begin, mut is_told) = (Instant::now(), false);
        loop {
            let open = under_way(self.shop).await?;
            if open == 0 {
                return Ok(());
            }
            if !is_told {
                tell(format!("still under way, and waited for: {open} of the orders that were placed before"));
                is_told = true;
            }
            if begin.elapsed() > END_WITHIN {
                tell(format!("note: {open} orders do not end, and may change what is seen"));
                return Ok(());
            }
            sleep(LOOK).await;
        }
    }

    /// Takes back what is still broken.
    ///
    /// # Errors
    /// It could not be taken back; the error says what is still broken.
    pub async fn tidy(&self) -> anyhow::Result<()> {
        self.damage.mend(self.shop).await
    }
}

/// How many orders were placed since the first of these that are none of these.
async fn others(shop: &Shop, placed: &[Placed]) -> anyhow::Result<usize> {
    // Ids rise with time, and so do their texts.
    let Some(first) = placed.iter().map(|placed| &placed.order_id).min() else { return Ok(0) };
    let since = shop.get(Service::Order, &format!("/orders?after={first}&limit=100")).await?.body;
    let ids = since["orders"].as_array().into_iter().flatten().filter_map(|order| order["orderId"].as_str());
    Ok(ids.filter(|id| placed.iter().all(|placed| placed.order_id != *id)).count())
}

/// How many orders are under way, a hundred of each kind at most.
async fn under_way(shop: &Shop) -> anyhow::Result<usize> {
    let mut open = 0;
    for status in ["pending", "cancelling"] {
        let orders = shop.get(Service::Order, &format!("/orders?status={status}&limit=100")).await?.body;
        open += orders["orders"].as_array().map_or(0, Vec::len);
    }
    Ok(open)
}
