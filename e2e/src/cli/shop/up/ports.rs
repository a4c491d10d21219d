//! Where the shop listens. Its ports are fixed, so that a URL can be written down; if one is taken, all move up
//! together.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::bail;
use e2e::Service;
use e2e::shop::Listeners;

use crate::cli::say::say;

const JAEGER_PAGE: u16 = 16_686;
const JAEGER_OTLP: u16 = 4318;
/// How far all ports move, and how often.
const MOVE: u16 = 100;
const MOVES: u16 = 10;

/// The ports of one shop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    shift: u16,
}

impl Ports {
    /// Those that are asked for, or the first that are free.
    ///
    /// # Errors
    /// One of them is taken.
    pub(super) fn choose(wanted: Option<u16>) -> anyhow::Result<Ports> {
        let asked = Ports { shift: wanted.unwrap_or(0) };
        let Some((what, port)) = asked.taken() else { return Ok(asked) };
        if wanted.is_some() {
            bail!(
                "port {port}, which {what} needs, is taken: end what uses it (`ss -ltnp 'sport = :{port}'` tells), or \
                 leave --ports out to have free ones found"
            );
        }
        match (1..=MOVES).map(|times| Ports { shift: times * MOVE }).find(|ports| ports.taken().is_none()) {
            Some(free) => {
                say(format!("port {port}, which {what} needs, is taken: every port is {} higher", free.shift));
                Ok(free)
            }
            None => bail!(
                "port {port}, which {what} needs, is taken, and so are others up to {}: try --ports",
                MOVE * MOVES
            ),
        }
    }

    pub(super) fn of(self, service: Service) -> Listeners {
        let number: u16 = match service {
            Service::Order => 1,
            Service::Payment => 2,
            Service::Inventory => 3,
            Service::Shipping => 4,
            Service::Sandbox => 5,
        };
        let at = |base: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, base + number + self.shift));
        Listeners { http: at(8000), ops: at(9000) }
    }

    /// Jaeger's page, and where it takes spans.
    pub(super) fn jaeger(self) -> (u16, u16) {
        (JAEGER_PAGE + self.shift, JAEGER_OTLP + self.shift)
    }

    /// Whether somebody has one of them.
    pub(super) fn are_taken(self) -> bool {
        self.taken().is_some()
    }

    /// The first that somebody else has, and who needs it.
    fn taken(self) -> Option<(&'static str, u16)> {
        let services = Service::ALL.into_iter().flat_map(|service| {
            let Listeners { http, ops } = self.of(service);
            [(service.name(), http.port()), (service.name(), ops.port())]
        });
        let (page, otlp) = self.jaeger();
        let mut all = services.chain([("Jaeger", page), ("Jaeger", otlp)]);
        all.find(|(_, port)| {
            TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::{MOVE, Ports};

    #[test]
    fn all_ports_move_when_one_is_taken_and_a_wanted_one_is_refused() {
        let free = Ports::choose(None).unwrap();
        let _taken = TcpListener::bind(("127.0.0.1", free.jaeger().1)).unwrap();
        let moved = Ports::choose(None).unwrap();
        assert!(moved.shift >= free.shift + MOVE, "{moved:?} after {free:?}");
        let refused = Ports::choose(Some(free.shift)).unwrap_err().to_string();
        assert!(refused.contains("Jaeger") && refused.contains(&free.jaeger().1.to_string()), "{refused}");
    }
}
