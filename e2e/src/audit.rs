//! What must hold whatever happened: the invariants I1 to I14, as data, and one look at all of them. `cargo saga audit`
//! looks at a running shop, the end-to-end tests at theirs.
//!
//! Everything in the database is read in one snapshot, as a role that can only read, so orders that are under way
//! cannot look like violations. I7, that what was sent is what arrived, needs a spy on every exchange: the tests of the
//! messaging core have one, and of the rows I5 tells the same.

mod answers;
mod books;
mod broker;
mod invariants;
mod logs;
mod traces;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::shop::Shop;
use crate::stack::Service;
use crate::stack::client::Client;
use books::{Ended, Snapshot};
pub use invariants::{INVARIANTS, Invariant};

/// How long the end of what is under way is waited for.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks whether it has come.
const PAUSE: Duration = Duration::from_millis(500);

/// What to look at. What is not there is skipped, and said so.
pub struct Sources<'a> {
    /// Connects as the auditor.
    pub database: &'a str,
    /// Asks the order service.
    pub orders: Option<&'a Client>,
    /// Broker, traces and logs.
    pub shop: Option<&'a Shop>,
}

impl<'a> Sources<'a> {
    /// All that a shop has.
    pub fn of(shop: &'a Shop) -> Self {
        Sources { database: &shop.at.auditor, orders: shop.client(Service::Order).ok(), shop: Some(shop) }
    }
}

/// Something that does not hold.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Violation {
    pub order: Option<String>,
    pub what: String,
    /// What shows it.
    pub rows: Value,
}

/// How it is with an invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Ok,
    Violated,
    /// What always holds does; the rest could not be looked at, because something is under way.
    Partly,
    /// There is nothing to look at.
    Skipped,
    /// There is, and it could not be looked at.
    Unknown,
}

/// An invariant and how it is.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub id: &'static str,
    pub name: &'static str,
    pub says: &'static str,
    pub verdict: Verdict,
    /// What was looked at, or why nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    pub violations: Vec<Violation>,
}

/// What one look saw.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// What was under way: then not everything was looked at.
    pub under_way: Vec<String>,
    /// How many orders there are in each state.
    pub orders: BTreeMap<String, i64>,
    pub invariants: Vec<Finding>,
}

impl Report {
    pub fn has(&self, verdict: Verdict) -> bool {
        self.invariants.iter().any(|finding| finding.verdict == verdict)
    }
}

/// What one source tells about an invariant.
#[derive(Default)]
struct Told {
    violations: Vec<Violation>,
    note: Option<String>,
    verdict: Option<Verdict>,
}

impl Told {
    fn skipped(why: impl Into<String>) -> Told {
        Told { verdict: Some(Verdict::Skipped), note: Some(why.into()), ..Told::default() }
    }

    fn unknown(error: &anyhow::Error) -> Told {
        Told { verdict: Some(Verdict::Unknown), note: Some(format!("{error:#}")), ..Told::default() }
    }
}

/// Waits until nothing is under way, `patience` at most, then looks at everything. Without patience it looks at once,
/// and only at what always holds.
///
/// # Errors
/// The database could not be asked.
pub async fn audit(sources: &Sources<'_>, patience: Option<Duration>) -> anyhow::Result<Report> {
    let mut database = books::connect(sources.database).await?;
    let begin = Instant::now();
    loop {
        let queues = match sources.shop {
            Some(shop) => Some(broker::look(shop).await),
            None => None,
        };
        let mut snapshot = Snapshot::begin(&mut database).await?;
        let mut under_way = snapshot.under_way().await?;
        under_way.extend(queues.iter().flatten().flat_map(|queues| broker::messages(queues)));
        // A broker that was just started has consumers some seconds before it counts them.
        let is_unsettled = queues.iter().flatten().any(|queues| broker::lacks_consumers(queues));
        let is_patient = patience.is_some_and(|patience| begin.elapsed() < patience);
        if is_patient && (is_unsettled || !under_way.is_empty()) {
            snapshot.end().await?;
            sleep(PAUSE).await;
            continue;
        }
        let is_quiet = patience.is_some() && under_way.is_empty();
        let orders = snapshot.count().await?;
        let ended = snapshot.ended(is_quiet).await?;
        let mut told = BTreeMap::new();
        for invariant in INVARIANTS {
            let violations = match invariant.sql {
                Some(sql) => snapshot.violations(sql, is_quiet).await?,
                None => Vec::new(),
            };
            told.insert(invariant.id, Told { violations, ..Told::default() });
        }
        // Whoever is asked from here on may take his time: nothing holds the snapshot.
        snapshot.end().await?;
        let mut others = look_elsewhere(sources, queues, &ended, is_quiet).await;
        let finding = |invariant: &Invariant| {
            let mut said = told.remove(invariant.id).unwrap_or_default();
            if let Some(other) = others.remove(invariant.id) {
                said.violations.extend(other.violations);
                (said.note, said.verdict) = (other.note, other.verdict);
            }
            conclude(invariant, said, is_quiet)
        };
        let invariants = INVARIANTS.iter().map(finding).collect();
        return Ok(Report { under_way, orders, invariants });
    }
}

/// What is not in the database.
async fn look_elsewhere(
    sources: &Sources<'_>,
    queues: Option<anyhow::Result<Vec<broker::Queue>>>,
    ended: &[Ended],
    is_quiet: bool,
) -> BTreeMap<&'static str, Told> {
    let mut told = BTreeMap::new();
    let or_unknown = |told: anyhow::Result<Told>| told.unwrap_or_else(|error| Told::unknown(&error));
    told.insert(
        "I8",
        match queues {
            Some(queues) => or_unknown(queues.map(|queues| broker::judge(&queues, is_quiet))),
            None => Told::skipped("the broker is not looked at"),
        },
    );
    told.insert(
        "I10",
        match sources.orders {
            Some(orders) => or_unknown(answers::compare(orders, ended).await),
            None => Told { note: Some("the order service is not asked".to_owned()), ..Told::default() },
        },
    );
    let none = || Told::skipped("no Jaeger is known");
    told.insert(
        "I12",
        match sources.shop.and_then(|shop| Some((shop, shop.at.jaeger.as_deref()?))) {
            Some((shop, page)) => or_unknown(traces::look(shop, page, ended).await),
            None => none(),
        },
    );
    told.insert(
        "I14",
        match sources.shop {
            Some(shop) => or_unknown(logs::look(shop).await),
            None => Told::skipped("the logs are not read"),
        },
    );
    told
}

fn conclude(invariant: &Invariant, told: Told, is_quiet: bool) -> Finding {
    let Invariant { id, name, says, needs_quiet, .. } = *invariant;
    let verdict = match told.verdict {
        _ if !told.violations.is_empty() => Verdict::Violated,
        Some(verdict) => verdict,
        None if needs_quiet && !is_quiet => Verdict::Partly,
        None => Verdict::Ok,
    };
    Finding { id, name, says, verdict, note: told.note, violations: told.violations }
}
