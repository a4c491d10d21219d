//! What the shop's services say to each other: the wire, nothing else.
//!
//! - [`step`]: the three steps of the saga, and the names of their commands and answers, in one table
//! - [`command`]: what the order service asks of a participant
//! - [`answer`]: what a participant answers
//! - [`order`]: what the order service tells everybody
//! - [`topology`]: exchanges, queues, bindings, and which broker user may do what

pub mod answer;
pub mod command;
pub mod money;
pub mod order;
pub mod step;
pub mod topology;
