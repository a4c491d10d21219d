//! The messaging core against real servers. Run by `cargo saga test`.

mod support;

mod crash;
mod effect;
mod failure;
mod ordered;
mod outbox;
mod relay_order;
mod takeover;
