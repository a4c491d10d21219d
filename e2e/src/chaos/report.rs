//! What came of a run, for people and for programs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::act::Done;
use super::drain::Drained;
use super::history::Request;
use super::plan::Plan;
use crate::audit::Violation;

/// Of the violations, so many are shown.
const SHOWN: usize = 10;

/// How a run is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Green,
    /// Something does not hold.
    Red,
    /// Too little happened to prove anything.
    Void,
}

/// The answers of one status, and how long they took.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answers {
    pub count: usize,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub longest_ms: f64,
}

/// A violation and the invariant that it is one of.
#[derive(Clone, Debug, Serialize)]
pub struct Broken {
    pub id: &'static str,
    #[serde(flatten)]
    pub violation: Violation,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub verdict: Verdict,
    pub seed: u64,
    pub seconds: u64,
    pub rate: f64,
    pub processors: usize,
    /// Orders by their end.
    pub orders: BTreeMap<String, usize>,
    /// Cancelled orders by the reason that the shop gives.
    pub reasons: BTreeMap<String, usize>,
    pub customers: u64,
    /// What customers saw while a fault lasted, by status; `none` is no answer.
    pub answers: BTreeMap<String, Answers>,
    pub faults: BTreeMap<&'static str, usize>,
    pub messages: usize,
    pub lost: usize,
    pub unexpected: usize,
    /// Messages that the shop published more than once, and that the run repeated.
    pub sent_again: u64,
    pub repeated: u64,
    pub recognised: i64,
    pub parked: i64,
    pub recovery: Drained,
    pub violations: Vec<Broken>,
    /// Why nothing is proven.
    pub void: Vec<String>,
    /// Where everything is kept that was seen, unless the run is green.
    pub kept: Option<PathBuf>,
    /// What does the same once more.
    pub again: String,
}

/// The answers of all requests that were under way while a fault lasted.
pub(super) fn answers(requests: &[Request], done: &[Done]) -> BTreeMap<String, Answers> {
    let mut times: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let struck = |request: &&Request| {
        done.iter().any(|fault| request.at < fault.ended && request.at + request.seconds > fault.began)
    };
    for request in requests.iter().filter(struck) {
        let status = request.status.map_or_else(|| "none".to_owned(), |status| status.to_string());
        times.entry(status).or_default().push(request.seconds * 1_000.0);
    }
    times.into_iter().map(|(status, times)| (status, measured(times))).collect()
}

fn measured(mut times: Vec<f64>) -> Answers {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times.get(((times.len() as f64 - 1.0) * share).round() as usize).copied().unwrap_or_default();
    Answers { count: times.len(), p50_ms: at(0.5), p99_ms: at(0.99), longest_ms: at(1.0) }
}

/// How often each kind of fault was there.
pub(super) fn by_kind(done: &[Done]) -> BTreeMap<&'static str, usize> {
    let mut kinds = BTreeMap::new();
    for fault in done {
        *kinds.entry(fault.fault.kind()).or_default() += 1;
    }
    kinds
}

/// I13: too few orders of either end, and faults that left no trace.
pub(super) fn too_little(plan: &Plan, done: &[Done], orders: &BTreeMap<String, usize>) -> Vec<String> {
    let all: usize = orders.values().sum();
    let count = |state: &str| orders.get(state).copied().unwrap_or_default();
    let compensated = if plan.away.is_none() { all / 50 + 1 } else { 0 };
    let mut void = Vec::new();
    for (state, least) in [("completed", all / 10 + 1), ("cancelled", compensated)] {
        if count(state) < least {
            void.push(format!("{} of {all} orders are {state}, at least {least} must be", count(state)));
        }
    }
    if done.is_empty() {
        void.push("no fault was due: give it more seconds".to_owned());
    }
    let unseen = done.iter().filter_map(|done| Some((done.fault, done.evidence.as_ref().err()?)));
    void.extend(unseen.map(|(fault, why)| format!("nothing shows that this happened: {fault}: {why}")));
    void
}

impl Report {
    /// The longest that a customer waited for an answer of this status while a fault lasted.
    pub fn longest(&self, status: &str) -> Duration {
        Duration::from_secs_f64(self.answers.get(status).map_or(0.0, |answers| answers.longest_ms / 1_000.0))
    }

    pub fn count(&self, state: &str) -> usize {
        self.orders.get(state).copied().unwrap_or_default()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = |counts: Vec<String>| if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
        let all: usize = self.orders.values().sum();
        let ends = listed(self.orders.iter().map(|(state, count)| format!("{count} {state}")).collect());
        let reasons = listed(self.reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect());
        let Report { seed, seconds, rate, processors, customers, .. } = self;
        writeln!(f, "  run          seed {seed}, {seconds} s, {rate} orders/s, {processors} processors")?;
        writeln!(f, "  orders       {all} of {customers} customers: {ends}")?;
        writeln!(f, "  cancelled    {reasons}")?;
        writeln!(f, "  faults       {}", self.faults.values().sum::<usize>())?;
        for (kind, count) in &self.faults {
            writeln!(f, "    {count:>5}  {kind}")?;
        }
        let (lost, unexpected) = (self.lost, self.unexpected);
        writeln!(f, "  messages     {}: lost {lost}, unexpected {unexpected}, parked {}", self.messages, self.parked)?;
        let (again, repeated) = (self.sent_again, self.repeated);
        writeln!(
            f,
            "  duplicates   {again} by relays, {repeated} on purpose; {} recognised by inboxes",
            self.recognised
        )?;
        for (status, answers) in &self.answers {
            let Answers { count, p50_ms, p99_ms, longest_ms } = answers;
            let status = if status == "none" { "no answer" } else { status };
            writeln!(
                f,
                "  {status:<12} {count} while something was broken: p50 {p50_ms:.0} ms, p99 {p99_ms:.0} ms, longest {longest_ms:.0} ms"
            )?;
        }
        let Drained { seconds, retried, left } = &self.recovery;
        match left {
            None => writeln!(f, "  recovery     {seconds:.1} s after the last fault every order had ended")?,
            Some(left) => writeln!(f, "  recovery     after {seconds:.1} s still under way: {left}")?,
        }
        if *retried > 0 {
            writeln!(f, "               {retried} undos that waited for a person were retried")?;
        }
        for Broken { id, violation: Violation { order, what, rows } } in self.violations.iter().take(SHOWN) {
            let order = order.as_deref().map(|order| format!("order {order}: ")).unwrap_or_default();
            writeln!(f, "  NOT SO   {id} {order}{what}\n           {rows}")?;
        }
        if self.violations.len() > SHOWN {
            writeln!(f, "           and {} more", self.violations.len() - SHOWN)?;
        }
        for why in &self.void {
            writeln!(f, "  VOID     {why}")?;
        }
        if let Some(kept) = &self.kept {
            writeln!(f, "  kept         {}", kept.display())?;
            writeln!(f, "  again        {}", self.again)?;
        }
        write!(
            f,
            "  {}",
            match self.verdict {
                Verdict::Green => "green: nothing is lost, everything agrees",
                Verdict::Red => "RED: something does not hold",
                Verdict::Void => "VOID: nothing is violated, and too little happened to prove it",
            }
        )
    }
}
