//! Runs scenarios, says what came of them, and takes back whatever they have broken.

use anyhow::Context as _;
use tokio::time::Instant;

use super::Scenario;
use super::damage::Damage;
use super::report::{Placed, Report};
use super::run::Run;
use crate::shop::Shop;
use crate::stack::Service;

/// From so many seconds on it is told how long a step took.
const LONG: f64 = 1.0;

/// Runs scenarios one after the other.
pub struct Runner<'a> {
    shop: &'a Shop,
    damage: Damage,
}

impl<'a> Runner<'a> {
    pub fn new(shop: &'a Shop) -> Self {
        Runner { shop, damage: Damage::default() }
    }

    /// Runs one. `tell` hears each step in words, before it is done. What it broke is whole again when this returns; whoever drops it
    /// half-way calls [`Runner::tidy`].
    ///
    /// # Errors
    /// A step could not be done: the shop does not do what the scenario needs. What is seen is no error, whatever it is.
    pub async fn run(&self, scenario: &Scenario, mut tell: impl FnMut(String)) -> anyhow::Result<Report> {
        let begin = Instant::now();
        // What others left broken would be taken for what this scenario does.
        for (part, act) in self.shop.mend().await? {
            tell(format!("{} {part}, which somebody left broken", act.opposite()));
        }
        for name in self.shop.switched_on().await? {
            tell(format!("note: {name} is switched on, which may change what is seen"));
        }
        let run = async {
            let mut run = Run::new(self.shop, &self.damage, scenario).await?;
            for step in &scenario.steps {
                tell(step.to_string());
                let begin = Instant::now();
                run.take(step).await.with_context(|| format!("{}: {step}", scenario.name))?;
                let seconds = begin.elapsed().as_secs_f64();
                if seconds >= LONG {
                    tell(format!("  took {seconds:.1} s"));
                }
            }
            run.look(None, &scenario.expect).await?;
            anyhow::Ok(run)
        };
        let done = run.await;
        self.tidy().await?;
        let Run { placed, checks, .. } = done?;
        let others = others(self.shop, &placed).await?;
        let (scenario, about, seconds) = (scenario.name.clone(), scenario.about.clone(), begin.elapsed().as_secs_f64());
        Ok(Report { scenario, about, seconds, orders: placed, others, checks, error: None })
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
