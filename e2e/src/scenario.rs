//! Scenarios: what is done to a running shop and what must be seen afterwards, as data. The files in `e2e/scenarios`
//! are all there is to know about one; `cargo saga scenario` runs them on whatever shop is running, and the end-to-end
//! tests run the same files.

mod damage;
mod observe;
mod report;
mod run;
mod runner;
mod tell;
mod wire;
mod words;

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use serde::Deserialize;

pub use report::{Checked, Placed, Report, What};
pub use run::order_body;
pub use runner::Runner;

use crate::shop::Part;

/// One scenario, as its file says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    #[serde(skip)]
    pub name: String,
    /// What happens, in a sentence.
    pub about: String,
    /// What is done, in order.
    pub steps: Vec<Step>,
    /// What must be seen on the way, where a step names it.
    #[serde(default)]
    pub check: BTreeMap<String, Expected>,
    /// What must be seen in the end.
    pub expect: Expected,
}

/// What is looked at, and what must be seen there.
pub type Expected = BTreeMap<What, String>;

/// One thing that is done.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Step {
    /// Places an order, or several at once.
    Place(Order),
    /// Sends the last order again, with its key.
    Repeat,
    /// Waits until every order has this status, or has `ended`.
    Await(String),
    /// Waits until the participant of this step was asked.
    AwaitAsked(String),
    /// Cancels every order, as its customer.
    Cancel,
    Kill(Part),
    Start(Part),
    Freeze(Part),
    Thaw(Part),
    Switch(Switch),
    SwitchOff(String),
    /// As an operator: retries the undo of this step.
    Retry(String),
    /// As an operator: settles the undo of this step.
    Settle(String),
    /// Takes in pieces until so many are there.
    StockUp(StockUp),
    /// Takes the message of this type out of the queue of a participant that is away.
    Withhold(String),
    /// Delivers a message again that has been seen.
    Deliver(Deliver),
    /// Sends what nobody can read to the queue of this participant.
    Unreadable(String),
    /// Looks whether what `check` has under this name is seen.
    Check(String),
}

/// What is ordered, and how.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Order {
    pub sku: String,
    pub quantity: i64,
    pub payment: String,
    pub shipping: String,
    /// So many orders at once.
    pub count: usize,
    /// Repeat a request that is refused for now, with its key, as a client does.
    pub retry: bool,
}

impl Default for Order {
    fn default() -> Self {
        let [sku, payment, shipping] = ["KEYBOARD", "pm_ok", "standard"].map(str::to_owned);
        Order { sku, quantity: 1, payment, shipping, count: 1, retry: true }
    }
}

/// A switch of the third parties.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Switch {
    pub name: String,
    /// The share of requests that it strikes.
    #[serde(default = "all")]
    pub rate: f64,
    #[serde(default)]
    pub delay_ms: u32,
}

fn all() -> f64 {
    1.0
}

/// How many pieces of which product there must be.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StockUp {
    pub sku: String,
    pub to: i64,
}

/// Which message comes again, and under which id.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deliver {
    pub message: String,
    pub id: Id,
}

/// The id of a message that comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Id {
    Same,
    New,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../scenarios/", $name, ".toml")))),*]
    };
}

/// In the order in which one learns from them.
const FILES: &[(&str, &str)] = files![
    "happy",
    "out-of-stock",
    "payment-declined",
    "payment-timeout",
    "payment-timeout-charged",
    "payment-timeout-late",
    "payment-flaky",
    "payment-rate-limited",
    "shipping-flaky",
    "shipping-timeout",
    "shipping-timeout-created",
    "shipping-timeout-late",
    "shipping-rejected",
    "refund-fails",
    "cancel-fails-settled",
    "customer-cancel-payment",
    "customer-cancel-inventory",
    "customer-cancel-shipping",
    "duplicate-message",
    "late-answer",
    "undo-before-do",
    "broker-down",
    "service-down",
    "database-down",
    "last-piece",
    "poison-message",
];

/// The names of all scenarios.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// All scenarios.
///
/// # Errors
/// A file is not as it must be.
pub fn all_scenarios() -> anyhow::Result<Vec<Scenario>> {
    FILES.iter().map(|(name, text)| read(name, text)).collect()
}

/// Those with this name, or whose name begins with it and a dash: `customer-cancel` is three. None, if there is none.
///
/// # Errors
/// A file is not as it must be.
pub fn find(name: &str) -> anyhow::Result<Vec<Scenario>> {
    let exact = FILES.iter().filter(|(known, _)| *known == name);
    let family =
        || FILES.iter().filter(|(known, _)| known.strip_prefix(name).is_some_and(|rest| rest.starts_with('-')));
    match exact.clone().next() {
        Some(_) => exact.map(|(name, text)| read(name, text)).collect(),
        None => family().map(|(name, text)| read(name, text)).collect(),
    }
}

/// A scenario from the text of its file.
///
/// # Errors
/// It is not as it must be.
pub fn read(name: &str, text: &str) -> anyhow::Result<Scenario> {
    let scenario: Scenario = toml::from_str(text).with_context(|| format!("e2e/scenarios/{name}.toml"))?;
    for step in &scenario.steps {
        if let Step::Check(check) = step
            && !scenario.check.contains_key(check)
        {
            bail!("e2e/scenarios/{name}.toml looks for a check {check:?} that it does not have");
        }
    }
    Ok(Scenario { name: name.to_owned(), ..scenario })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{all_scenarios, find, names};
    use crate::workspace;

    #[test]
    fn every_file_is_listed_and_can_be_read() {
        let files = std::fs::read_dir(workspace().join("e2e/scenarios")).unwrap();
        let files: BTreeSet<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(files, names().map(|name| format!("{name}.toml")).collect());
        assert!(all_scenarios().unwrap().iter().all(|scenario| !scenario.expect.is_empty()));
    }

    #[test]
    fn a_name_finds_itself_or_its_family() {
        let found = |name: &str| find(name).unwrap().into_iter().map(|scenario| scenario.name).collect::<Vec<_>>();
        assert_eq!(found("payment-timeout"), ["payment-timeout"]);
        assert_eq!(found("customer-cancel").len(), 3);
        assert!(find("nothing").is_ok_and(|found| found.is_empty()));
    }
}
