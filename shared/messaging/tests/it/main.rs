//! The messaging core against real servers. Run by `cargo saga test`.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod support;

mod crash;
mod disturbance;
mod effect;
mod examples;
mod failure;
mod growth;
mod operate;
mod ordered;
mod outbox;
mod poison;
mod relay_order;
mod relay_slow;
mod retention;
mod story;
mod takeover;
