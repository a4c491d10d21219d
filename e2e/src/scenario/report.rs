//! What a run of a scenario looks at, and what came of it.

use serde::{Deserialize, Serialize};

use super::Scenario;
use super::tell::EXACTLY;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// The answers to the orders.
    Answer,
    /// The status of the orders, with the reason where there is one.
    Order,
    /// What became of the step.
    Payment,
    Inventory,
    Shipping,
    /// How long the steps took together: only that it was long, since everything is slow now and then.
    Took,
    /// What was undone, the first first.
    Undone,
    /// What the provider took and gave back.
    Money,
    /// What the carrier sent and called back.
    Parcels,
    /// How the stock of what was ordered has changed.
    Stock,
    /// How many pieces of it can be ordered.
    Available,
    /// Answers that changed nothing.
    Ignored,
    /// Messages whose end was not the ordinary one.
    Messages,
}

impl What {
    pub fn name(self) -> &'static str {
        match self {
            What::Answer => "answer",
            What::Order => "order",
            What::Payment => "payment",
            What::Inventory => "inventory",
            What::Shipping => "shipping",
            What::Took => "took",
            What::Undone => "undone",
            What::Money => "money",
            What::Parcels => "parcels",
            What::Stock => "stock",
            What::Available => "available",
            What::Ignored => "ignored",
            What::Messages => "messages",
        }
    }
}

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
    /// What was observed is what was expected; it may say more exactly how long it took.
    pub fn is_as_expected(&self) -> bool {
        let observed = match self.what {
            What::Took => self.observed.split(EXACTLY).next().unwrap_or_default(),
            _ => &self.observed,
        };
        self.expected == observed
    }
}

/// What came of a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub scenario: String,
    pub about: String,
    pub seconds: f64,
    pub orders: Vec<Placed>,
    /// Orders that others placed meanwhile: stock and messages are counted for all.
    pub others: usize,
    pub checks: Vec<Checked>,
    /// Why it was not played to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Report {
    /// Of a run that could not be ended.
    pub fn failed(scenario: &Scenario, error: &anyhow::Error) -> Self {
        let (scenario, about) = (scenario.name.clone(), scenario.about.clone());
        let (orders, checks, error) = (Vec::new(), Vec::new(), Some(format!("{error:#}")));
        Report { scenario, about, seconds: 0.0, orders, others: 0, checks, error }
    }

    pub fn is_as_expected(&self) -> bool {
        self.error.is_none() && self.checks.iter().all(Checked::is_as_expected)
    }
}
