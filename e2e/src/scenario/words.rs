//! What a step does, in words for people.

use std::fmt;

use super::{Deliver, Id, Order, Step, StockUp, Switch};

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Place(Order { sku, quantity, payment, shipping, count: 1, .. }) => {
                write!(f, "order {quantity} {sku} ({payment}, {shipping})")
            }
            Step::Place(Order { sku, quantity, payment, shipping, count, .. }) => {
                write!(f, "order {quantity} {sku} ({payment}, {shipping}) {count} times at once")
            }
            Step::Repeat => f.write_str("send the same order again, with the same key"),
            Step::Await(status) => write!(f, "wait for it to be {status}"),
            Step::AwaitAsked(step) => write!(f, "wait until {step} was asked"),
            Step::Cancel => f.write_str("cancel it, as its customer"),
            Step::Kill(part) => write!(f, "kill {part}"),
            Step::Start(part) => write!(f, "start {part}"),
            Step::Freeze(part) => write!(f, "freeze {part}"),
            Step::Thaw(part) => write!(f, "thaw {part}"),
            Step::Switch(Switch { name, rate, .. }) => {
                write!(f, "switch {name} on for {:.0} % of all requests", rate * 100.0)
            }
            Step::SwitchOff(name) => write!(f, "switch {name} off"),
            Step::Retry(step) => write!(f, "retry the undo of {step}, as an operator"),
            Step::Settle(step) => write!(f, "settle the undo of {step}, as an operator"),
            Step::StockUp(StockUp { sku, to }) => write!(f, "see to it that {to} {sku} can be ordered"),
            Step::Withhold(message) => write!(f, "take {message} out of its queue"),
            Step::Deliver(Deliver { message, id: Id::Same }) => write!(f, "deliver {message} again"),
            Step::Deliver(Deliver { message, id: Id::New }) => write!(f, "deliver {message} again under a new id"),
            Step::Unreadable(participant) => write!(f, "send {participant} what nobody can read"),
            Step::Check(name) => write!(f, "look {name}"),
        }
    }
}
