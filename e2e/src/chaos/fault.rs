//! The kinds of fault, by name and how long they last. What they do is in `act`.

use std::fmt;
use std::ops::RangeInclusive;

use serde::Serialize;

use crate::shop::Part;
use crate::stack::Service;

/// One of the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Server {
    Broker,
    Database,
}

/// Under which id a message comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Id {
    Same,
    New,
}

/// What is done to the shop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Fault {
    /// Ended as by a crash, and started again.
    Kill(Part),
    /// Stopped in its tracks: connections stay open, nothing answers.
    Freeze(Part),
    /// Ended as an administrator does it, and started again.
    Stop(Server),
    /// The broker lacks memory: who publishes is blocked.
    Alarm,
    /// The broker closes all connections.
    Connections,
    /// The database only reads, as after a fail-over that went wrong.
    ReadOnly,
    /// The database ends the sessions of all services.
    Sessions,
    /// A service reaches a server late, and hears of it late, by so many milliseconds each way.
    Slow(Service, Server, u32),
    /// Nothing passes between them, and nobody is told; in the end it is lost with the connections.
    Silent(Service, Server),
    /// Their connections are closed, and none can be opened.
    Cut(Service, Server),
    /// Messages that were sent a while ago are sent once more.
    Again(Id),
    /// Messages that wait for a service change places while it is away.
    Reorder(Service),
    /// A fault of the third parties, for so many per cent of all requests.
    Switch(&'static str, u32),
}

impl Server {
    pub(super) fn part(self) -> Part {
        match self {
            Server::Broker => Part::Rabbitmq,
            Server::Database => Part::Postgres,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Server::Broker => "broker",
            Server::Database => "database",
        }
    }
}

impl Fault {
    /// What is counted together.
    pub fn kind(self) -> &'static str {
        match self {
            Fault::Kill(Part::Rabbitmq) => "broker killed",
            Fault::Kill(Part::Postgres) => "database killed",
            Fault::Kill(Part::Service(Service::Sandbox)) => "third parties killed",
            Fault::Kill(Part::Service(_)) => "service killed",
            Fault::Freeze(Part::Rabbitmq) => "broker frozen",
            Fault::Freeze(Part::Postgres) => "database frozen",
            Fault::Freeze(Part::Service(Service::Sandbox)) => "third parties frozen",
            Fault::Freeze(Part::Service(_)) => "service frozen",
            Fault::Stop(Server::Broker) => "broker stopped",
            Fault::Stop(Server::Database) => "database stopped",
            Fault::Alarm => "broker out of memory",
            Fault::Connections => "connections closed by the broker",
            Fault::ReadOnly => "database read-only",
            Fault::Sessions => "sessions killed in the database",
            Fault::Slow(..) => "line slow",
            Fault::Silent(..) => "line silent",
            Fault::Cut(..) => "line cut",
            Fault::Again(Id::Same) => "messages repeated",
            Fault::Again(Id::New) => "intents repeated under new ids",
            Fault::Reorder(_) => "messages reordered",
            Fault::Switch(..) => "third parties failing",
        }
    }

    /// Milliseconds between its begin and its end.
    pub(super) fn lasts(self) -> RangeInclusive<u64> {
        match self {
            Fault::Kill(_) | Fault::Stop(_) => 200..=5_000,
            Fault::Freeze(Part::Postgres) => 500..=8_000,
            // Longer than a relay's lock and a consumer's lease last.
            Fault::Freeze(_) | Fault::Silent(..) => 500..=25_000,
            Fault::Alarm | Fault::ReadOnly | Fault::Slow(..) | Fault::Cut(..) => 1_000..=10_000,
            Fault::Reorder(_) => 500..=2_000,
            Fault::Switch(..) => 1_000..=12_000,
            Fault::Connections | Fault::Sessions | Fault::Again(_) => 0..=0,
        }
    }

    /// Milliseconds that it takes longer than it lasts, on a busy machine: a server comes up, a service becomes ready.
    pub(super) fn costs(self) -> u64 {
        match self {
            Fault::Stop(Server::Broker) => 12_000,
            Fault::Kill(Part::Rabbitmq) => 9_000,
            Fault::Alarm => 4_000,
            Fault::Kill(_) | Fault::Stop(_) | Fault::Reorder(_) => 2_000,
            _ => 500,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Kill(part) => write!(f, "kill {part}"),
            Fault::Freeze(part) => write!(f, "freeze {part}"),
            Fault::Stop(server) => write!(f, "stop {}", server.part()),
            Fault::Alarm => f.write_str("let the broker lack memory"),
            Fault::Connections => f.write_str("close all connections at the broker"),
            Fault::ReadOnly => f.write_str("let the database only read"),
            Fault::Sessions => f.write_str("kill the services' sessions"),
            Fault::Slow(service, server, delay) => {
                write!(f, "delay {} to the {} by {delay} ms", service.name(), server.name())
            }
            Fault::Silent(service, server) => write!(f, "silence {} to the {}", service.name(), server.name()),
            Fault::Cut(service, server) => write!(f, "cut {} from the {}", service.name(), server.name()),
            Fault::Again(Id::Same) => f.write_str("send messages again"),
            Fault::Again(Id::New) => f.write_str("send messages again under new ids"),
            Fault::Reorder(service) => write!(f, "kill {} and reorder its messages", service.name()),
            Fault::Switch(name, share) => write!(f, "{name} for {share} %"),
        }
    }
}
