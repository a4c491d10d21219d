//! What is done to the shop, and when: a pure function of the seed. Three lanes run side by side, each one fault after
//! the other, so that faults meet: the two servers, the services and their lines, and what comes from outside. Each
//! lane deals its kinds of fault like cards, so that none is left out for long.

use std::fmt;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{Rng as _, SeedableRng as _};
use serde::Serialize;

use super::fault::{Fault, Id, Server};
use crate::shop::Part;
use crate::stack::Service;

/// Before the first fault some orders are under way.
const CALM: u64 = 2_000;
/// Between two faults of a lane.
const PAUSE: std::ops::Range<u64> = 300..2_000;
/// No fault lasts longer than this part of all.
const LONGEST: u32 = 5;

/// A fault and its time, from the beginning of the load. A lane that is late begins it as soon as it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Scheduled {
    #[serde(rename = "atMs", serialize_with = "milliseconds")]
    pub at: Duration,
    #[serde(rename = "lastsMs", serialize_with = "milliseconds")]
    pub lasts: Duration,
    pub fault: Fault,
}

/// All that follows from a seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    pub seed: u64,
    pub seconds: u64,
    /// Orders a second.
    pub rate: f64,
    /// One part is away, and nothing else happens; customers order what is shipped if nothing fails.
    pub away: Option<Away>,
    pub lanes: Vec<Vec<Scheduled>>,
}

/// What can be away as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Away {
    Broker,
    Database,
    ThirdParties,
}

impl Plan {
    /// The plan of a seed, always the same.
    pub fn of(seed: u64, seconds: u64, rate: f64) -> Plan {
        let mut random = StdRng::seed_from_u64(seed);
        let decks: [fn(&mut StdRng) -> Vec<Fault>; 3] = [servers, services, outside];
        let lanes = decks.map(|deck| deal(deck, seconds, &mut random)).into();
        Plan { seed, seconds, rate, away: None, lanes }
    }

    /// One part is away for so long, and nothing else happens.
    pub fn away(away: Away, seed: u64, seconds: u64, rate: f64) -> Plan {
        let fault = match away {
            Away::Broker => Fault::Kill(Part::Rabbitmq),
            Away::Database => Fault::Kill(Part::Postgres),
            Away::ThirdParties => Fault::Kill(Part::Service(Service::Sandbox)),
        };
        let (at, lasts) = (Duration::from_millis(CALM), Duration::from_secs(seconds));
        Plan { seed, seconds, rate, away: Some(away), lanes: vec![vec![Scheduled { at, lasts, fault }]] }
    }

    /// What plays it.
    pub fn command(&self) -> String {
        let Plan { seed, seconds, rate, .. } = self;
        let away = match self.away {
            None => "",
            Some(Away::Broker) => " --away broker",
            Some(Away::Database) => " --away database",
            Some(Away::ThirdParties) => " --away third-parties",
        };
        format!("cargo saga chaos --seed {seed} --seconds {seconds} --rate {rate}{away}")
    }

    pub fn faults(&self) -> impl Iterator<Item = &Scheduled> {
        self.lanes.iter().flatten()
    }
}

fn servers(_: &mut StdRng) -> Vec<Fault> {
    let mut deck = vec![Fault::Alarm, Fault::Connections, Fault::ReadOnly, Fault::Sessions];
    for server in [Server::Broker, Server::Database] {
        deck.extend([Fault::Stop(server), Fault::Kill(server.part()), Fault::Freeze(server.part())]);
    }
    deck
}

fn services(random: &mut StdRng) -> Vec<Fault> {
    let mut deck = Vec::new();
    let mut all = Service::ALL;
    all.shuffle(random);
    for (number, service) in all.into_iter().enumerate() {
        deck.extend([Fault::Kill(Part::Service(service)), Fault::Freeze(Part::Service(service))]);
        let server = match random.random_bool(0.5) {
            true if service.has_broker() => Server::Broker,
            _ => Server::Database,
        };
        let delay = [50, 300, 1_500].choose(random).copied().unwrap_or(50);
        let lines = [Fault::Slow(service, server, delay), Fault::Silent(service, server), Fault::Cut(service, server)];
        deck.push(lines[number % lines.len()]);
    }
    deck
}

fn outside(random: &mut StdRng) -> Vec<Fault> {
    let with_broker: Vec<Service> = Service::ALL.into_iter().filter(|service| service.is_participant()).collect();
    let mut deck = vec![Fault::Again(Id::Same), Fault::Again(Id::New), Fault::Again(Id::Same)];
    deck.extend(with_broker.choose(random).map(|service| Fault::Reorder(*service)));
    for _ in 0..3 {
        let names: Vec<&str> = sandbox_switches().collect();
        let share = [30, 60, 100].choose(random).copied().unwrap_or(100);
        deck.extend(names.choose(random).map(|name| Fault::Switch(name, share)));
    }
    deck
}

/// As the sandbox names them.
fn sandbox_switches() -> impl Iterator<Item = &'static str> {
    [
        "provider_unavailable",
        "provider_rate_limited",
        "provider_timeout",
        "provider_slow",
        "refund_refused",
        "carrier_unavailable",
        "carrier_rate_limited",
        "carrier_timeout",
        "carrier_slow",
        "recall_refused",
    ]
    .into_iter()
}

fn deal(cards: fn(&mut StdRng) -> Vec<Fault>, seconds: u64, random: &mut StdRng) -> Vec<Scheduled> {
    let (end, mut at) = (seconds * 1_000, CALM);
    let longest = end / u64::from(LONGEST);
    let (mut deck, mut lane) = (Vec::<Fault>::new(), Vec::new());
    loop {
        at += random.random_range(PAUSE);
        if deck.is_empty() {
            deck = cards(random);
            deck.shuffle(random);
        }
        let Some(fault) = deck.pop() else { return lane };
        let lasts = random.random_range(fault.lasts()).min(longest);
        if at + lasts > end {
            return lane;
        }
        lane.push(Scheduled { at: Duration::from_millis(at), lasts: Duration::from_millis(lasts), fault });
        at += lasts + fault.costs();
    }
}

fn milliseconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u128(duration.as_millis())
}

impl fmt::Display for Scheduled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, lasts) = (self.at.as_secs_f64(), self.lasts.as_secs_f64());
        write!(f, "{at:7.1} s  {:<44}", self.fault.to_string())?;
        if lasts > 0.0 { write!(f, "for {lasts:.1} s") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Away, Plan, sandbox_switches};

    #[test]
    fn a_seed_always_plans_the_same_and_another_one_something_else() {
        assert_eq!(Plan::of(7, 60, 10.0), Plan::of(7, 60, 10.0));
        assert_ne!(Plan::of(7, 60, 10.0).lanes, Plan::of(8, 60, 10.0).lanes);
        // Written down: a plan that changes is another one, and seeds that were found are worth nothing any more.
        let first: Vec<String> = Plan::of(1, 60, 10.0).lanes.iter().map(|lane| lane[0].fault.to_string()).collect();
        assert_eq!(first, ["stop postgres", "delay shipping to the broker by 1500 ms", "send messages again"]);
    }

    #[test]
    fn a_minute_has_every_lane_busy_and_ten_minutes_have_every_kind_of_fault() {
        for seed in 0..50 {
            let minute = Plan::of(seed, 60, 10.0);
            assert!(minute.lanes.len() == 3 && minute.lanes.iter().all(|lane| lane.len() >= 3), "{seed}");
            for lane in &minute.lanes {
                assert!(lane.windows(2).all(|pair| pair[0].at + pair[0].lasts <= pair[1].at), "{seed}");
            }
            let kinds = |plan: &Plan| plan.faults().map(|one| one.fault.kind()).collect::<BTreeSet<_>>();
            let missing: Vec<_> =
                kinds(&Plan::of(0, 36_000, 1.0)).difference(&kinds(&Plan::of(seed, 600, 1.0))).copied().collect();
            assert!(missing.is_empty(), "{seed}: {missing:?}");
        }
        assert_eq!(Plan::away(Away::Broker, 1, 60, 50.0).faults().count(), 1);
    }

    #[test]
    fn the_switches_are_those_of_the_sandbox() {
        let known: BTreeSet<&str> = sandbox::switch::SWITCHES.iter().map(|(name, ..)| *name).collect();
        assert_eq!(sandbox_switches().collect::<BTreeSet<_>>(), known);
    }
}
