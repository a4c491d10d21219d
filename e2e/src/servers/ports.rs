//! Free ports on loopback. They come from below the range of the kernel's own choices: while a server is down for a
//! test, a client that keeps trying to reach it would otherwise sooner or later be given that very port as its own,
//! and connect to itself.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};

use rand::Rng as _;

/// Linux's default, used where the range cannot be read.
const FIRST_EPHEMERAL: u16 = 32_768;
/// Below this many ports under the range, we take what the kernel gives.
const SPACE: u16 = 12_000;
const TRIES: usize = 200;

/// Picks so many free ports, all different. Another program may take one before it is used: whoever uses them tries
/// again with new ones.
///
/// # Errors
/// No free port was found.
pub fn pick(count: usize) -> io::Result<Vec<u16>> {
    let end = first_ephemeral();
    let mut held = Vec::new();
    for _ in 0..TRIES {
        if held.len() == count {
            break;
        }
        let port = if end > SPACE * 2 { rand::rng().random_range(end - SPACE..end) } else { 0 };
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            held.push(listener);
        }
    }
    if held.len() < count {
        return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, "no free port on loopback"));
    }
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

fn first_ephemeral() -> u16 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(FIRST_EPHEMERAL)
}
