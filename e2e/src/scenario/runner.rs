//! Runs scenarios, says what came of them, and takes back whatever they have broken.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use serde::Serialize;
use tokio::time::Instant;

use super::Scenario;
use super::observe::What;
use super::run::Run;
use crate::shop::{Act, Part, Shop};

/// From so many seconds on it is told how long a step took.
const LONG: f64 = 1.0;

/// An order that was accepted.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Placed {
    pub order_id: String,
    pub saga_id: String,
    pub correlation_id: String,
    /// Jaeger's page of its trace, where there is a Jaeger.
    pub trace: Option<String>,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    /// On the way, the name of the check; in the end, nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    pub what: What,
    pub expected: String,
    pub observed: String,
}

impl Checked {
    pub fn is_as_expected(&self) -> bool {
        self.expected == self.observed
    }
}

/// What came of a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub scenario: String,
    pub about: String,
    pub seconds: f64,
    pub orders: Vec<Placed>,
    pub checks: Vec<Checked>,
}

impl Report {
    pub fn is_as_expected(&self) -> bool {
        self.checks.iter().all(Checked::is_as_expected)
    }
}

/// What must be taken back when a scenario ends, however it ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Broken {
    Killed(Part),
    Frozen(Part),
    Switched(String),
}

/// Runs scenarios one after the other.
pub struct Runner<'a> {
    pub(super) shop: &'a Shop,
    broken: Mutex<BTreeSet<Broken>>,
}

impl<'a> Runner<'a> {
    pub fn new(shop: &'a Shop) -> Self {
        Runner { shop, broken: Mutex::default() }
    }

    /// Runs one. `tell` hears each step in words, before it is done. What it broke is whole again when this returns; whoever drops it
    /// half-way calls [`Runner::tidy`].
    ///
    /// # Errors
    /// A step could not be done: the shop does not do what the scenario needs. What is seen is no error, whatever it is.
    pub async fn run(&self, scenario: &Scenario, mut tell: impl FnMut(String)) -> anyhow::Result<Report> {
        let begin = Instant::now();
        let run = async {
            let mut run = Run::new(self, scenario).await?;
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
        let (scenario, about) = (scenario.name.clone(), scenario.about.clone());
        Ok(Report { scenario, about, seconds: begin.elapsed().as_secs_f64(), orders: placed, checks })
    }

    /// Takes back what is still broken.
    ///
    /// # Errors
    /// It could not be taken back; the error says what is still broken.
    pub async fn tidy(&self) -> anyhow::Result<()> {
        loop {
            let next = self.broken.lock().unwrap_or_else(PoisonError::into_inner).pop_first();
            match next {
                None => return Ok(()),
                Some(Broken::Killed(part)) => self.shop.act(part, Act::Start).await?,
                Some(Broken::Frozen(part)) => self.shop.act(part, Act::Thaw).await?,
                Some(Broken::Switched(name)) => self.shop.switch_off(&name).await?,
            }
        }
    }

    pub(super) fn remember(&self, broken: Broken) {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).insert(broken);
    }

    pub(super) fn forget(&self, broken: &Broken) {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).remove(broken);
    }
}
