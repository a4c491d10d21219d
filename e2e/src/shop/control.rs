//! What can be done to a part of a running shop: killed and started, frozen and thawed.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use anyhow::bail;
use futures::future::LocalBoxFuture;
use serde::{Deserialize, Serialize};

use crate::stack::Service;

/// A part that can fail on its own. Its name is that of its container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Part {
    Postgres,
    Rabbitmq,
    Service(Service),
}

/// What is done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Act {
    /// Ended at once, as by a crash; nobody starts it again by himself.
    Kill,
    /// Started again after a kill; done when it is ready.
    Start,
    /// Stopped in its tracks: connections stay open, nothing answers.
    Freeze,
    /// Goes on after a freeze.
    Thaw,
}

/// Parts that were killed or frozen on request.
pub type Disturbed = BTreeMap<Part, Act>;

/// Whoever has started the shop does this to its parts.
pub trait Control {
    /// Does it, and returns when it is done.
    fn act(&self, part: Part, act: Act) -> LocalBoxFuture<'_, anyhow::Result<()>>;

    /// What was killed or frozen on request, and not started or thawed since.
    fn disturbed(&self) -> LocalBoxFuture<'_, anyhow::Result<Disturbed>>;
}

impl Part {
    pub fn name(self) -> &'static str {
        match self {
            Part::Postgres => "postgres",
            Part::Rabbitmq => "rabbitmq",
            Part::Service(service) => service.name(),
        }
    }
}

impl Act {
    pub const ALL: [Act; 4] = [Act::Kill, Act::Start, Act::Freeze, Act::Thaw];

    pub fn name(self) -> &'static str {
        match self {
            Act::Kill => "kill",
            Act::Start => "start",
            Act::Freeze => "freeze",
            Act::Thaw => "thaw",
        }
    }

    /// What takes it back.
    pub fn opposite(self) -> Act {
        match self {
            Act::Kill => Act::Start,
            Act::Start => Act::Kill,
            Act::Freeze => Act::Thaw,
            Act::Thaw => Act::Freeze,
        }
    }
}

impl FromStr for Part {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> anyhow::Result<Part> {
        let services = Service::ALL.into_iter().map(Part::Service);
        match [Part::Postgres, Part::Rabbitmq].into_iter().chain(services).find(|part| part.name() == name) {
            Some(part) => Ok(part),
            None => bail!("there is no part {name}"),
        }
    }
}

impl TryFrom<String> for Part {
    type Error = anyhow::Error;

    fn try_from(name: String) -> anyhow::Result<Part> {
        name.parse()
    }
}

impl From<Part> for String {
    fn from(part: Part) -> String {
        part.name().to_owned()
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
