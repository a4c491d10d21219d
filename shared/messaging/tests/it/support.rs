//! What every test here stands on: real servers, a database and a vhost of its own, a spy, a handler that does what
//! the test says, and one way to wait.

mod child;
mod eventually;
mod gate;
mod loops;
mod proxy;
mod script;
mod servers;
mod site;
mod spy;
pub(crate) mod wire;

pub(crate) use child::Child;
pub(crate) use eventually::eventually;
pub(crate) use gate::{gated, gated_and_slow};
pub(crate) use loops::{Loop, quick_relay};
pub(crate) use script::{Script, quick};
pub(crate) use site::Site;
pub(crate) use spy::{Seen, Spy};
pub(crate) use wire::{COMMANDS, EVENTS, WORK, Wire, command, event};
