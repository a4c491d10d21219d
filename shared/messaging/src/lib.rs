//! A transactional outbox, an idempotent inbox and a supervised consumer over PostgreSQL and RabbitMQ.
//!
//! **What it promises.** A message that is appended in a transaction is published if and only if that transaction
//! commits. Delivery is at least once. The effect of a message id is once per consumer, and a crash at any point loses
//! nothing. Messages of one aggregate are published in order.
//!
//! **What it does not.** It does not deliver exactly once, and it does not recognise the same intent under a new
//! message id: that takes a key of the business in the consumer's own record. It promises no order between aggregates.
//!
//! The way of one message:
//!
//! 1. A handler changes its rows and calls [`outbox::append`] in the same transaction, commits, and pokes the relay.
//! 2. The [`Relay`], one at a time per schema, publishes what is pending and moves what the broker confirmed to the
//!    history.
//! 3. The [`Consumer`] of the other side takes what is queued, remembers it in its inbox, runs the [`Handler`], and
//!    commits all of that in one transaction; then it acknowledges.
//! 4. What fails is kept in the inbox, as `retrying` with its next time or as `parked` with the reason, whole.
//!
//! The tables are in `migrations/messaging`; queries name them without a schema, so the connection's `search_path`
//! decides whose they are. [`participant`] has the rules for a saga's step at a third party.

#![warn(missing_docs)]

pub mod broker;
pub mod consumer;
pub mod envelope;
pub mod error;
pub mod figures;
pub mod hold;
pub mod message;
pub mod operate;
pub mod outbox;
pub mod participant;
pub mod relay;
pub mod retention;
pub mod retry;
pub mod story;
pub mod supervise;
pub mod topology;
pub mod trace;

mod inbox;
mod pace;
mod session;

pub use broker::{Broker, QueueNow};
pub use consumer::handler::{Attempt, Delivery, Handler, Ready};
pub use consumer::{Consumer, ConsumerSettings};
pub use envelope::{Decode, Envelope, unknown_type};
pub use error::{Class, Classify, Failure, read_only_seen};
pub use message::{Aggregate, Cause, Message, Route};
pub use relay::{AfterPublish, Poke, Relay, RelaySettings};
pub use retry::{Backoff, RetryPolicy};
pub use story::Story;
pub use supervise::{Pulse, State};
pub use topology::{Exchange, Kind, Queue};
pub use trace::{Later, TraceContext};
