//! Free ports on loopback. They come from below the range of the kernel's own choices: while a server is down for a
//! test, a client that keeps trying to reach it would otherwise sooner or later be given that very port as its own,
//! and connect to itself.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rand::Rng as _;

/// Linux's default, used where the range cannot be read.
const FIRST_EPHEMERAL: u16 = 32_768;
/// Below this many ports under the range, we take what the kernel gives.
const SPACE: u16 = 12_000;
const TRIES: usize = 200;

/// What this process has given out: who was told a port keeps it while its program is down, for example between a
/// kill and a restart.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Picks so many free ports that this process has not picked before. Another program may take one before it is used:
/// whoever uses them tries again with new ones.
///
/// # Errors
/// No free port was found.
pub fn pick(count: usize) -> io::Result<Vec<u16>> {
    let end = first_ephemeral();
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut held = Vec::new();
    for _ in 0..TRIES {
        if held.len() == count {
            break;
        }
        let wanted = if end > SPACE * 2 { rand::rng().random_range(end - SPACE..end) } else { 0 };
        let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, wanted)) else { continue };
        if given.insert(listener.local_addr()?.port()) {
            held.push(listener);
        }
    }
    if held.len() < count {
        return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, "no free port on loopback"));
    }
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// The ports that this file remembers, if all of them are free, else new ones: so that a URL that somebody has written
/// down stays true where it can.
///
/// # Errors
/// No free port was found.
pub(crate) fn pick_again(file: &Path, count: usize) -> io::Result<Vec<u16>> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let last: Vec<u16> = text.split_whitespace().filter_map(|port| port.parse().ok()).collect();
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let is_free = |port: &u16| !given.contains(port) && TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    if last.len() == count && last.iter().all(is_free) {
        given.extend(&last);
        return Ok(last);
    }
    drop(given);
    let new = pick(count)?;
    let text: Vec<String> = new.iter().map(u16::to_string).collect();
    fs::write(file, text.join(" "))?;
    Ok(new)
}

fn first_ephemeral() -> u16 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(FIRST_EPHEMERAL)
}
