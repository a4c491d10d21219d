//! Every window in which a process can die, as data: what has happened by then and what has not, which services have
//! it, and what may come again. The tests kill each of them in each; the README shows what came of it.

use std::ops::RangeInclusive;

use e2e::Service;
use e2e::Service::{Inventory, Order, Payment, Sandbox, Shipping};

/// In which direction the saga goes when the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Do,
    Undo,
    /// No answer to a do came in time.
    DoDeadline,
    /// The same of an undo.
    UndoDeadline,
    /// No saga has to do with it.
    Aside,
}

impl Direction {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Direction::Do => "do",
            Direction::Undo => "undo",
            Direction::DoDeadline => "deadline of a do",
            Direction::UndoDeadline => "deadline of an undo",
            Direction::Aside => "",
        }
    }
}

/// How often what had happened already comes again, and is recognised. For a consumer and a relay: the messages; at
/// the edge: the customer's request; for a third party: the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    Never,
    Once,
    /// Nobody knows what the database or the broker has done.
    Perhaps,
    /// Nor what another loop of the process was in the middle of.
    AnyTimes,
    /// What was sent together with it may come again too.
    AtLeastOnce,
}

impl Again {
    pub(crate) fn range(self) -> RangeInclusive<i64> {
        match self {
            Again::Never => 0..=0,
            Again::Once => 1..=1,
            Again::Perhaps => 0..=1,
            Again::AnyTimes => 0..=100,
            Again::AtLeastOnce => 1..=100,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Again::Never => "no",
            Again::Once => "once",
            Again::Perhaps => "at most once",
            Again::AnyTimes => "perhaps",
            Again::AtLeastOnce => "at least once",
        }
    }
}

/// How a service is brought there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// An order passes all services.
    Order,
    /// The same; each service has died before, with the message in its hands.
    Redelivered,
    /// The same, while somebody locks the service's tables.
    Locked,
    /// Six orders pass, whose messages wait in each outbox until they go out together.
    Backlog,
    /// A customer places an order.
    Placing,
    /// A customer cancels one.
    Cancelling,
    /// An operator settles an undo.
    Settling,
    /// Stock is taken in.
    Receiving,
    /// A step is overdue.
    Deadline,
    /// A message comes that nobody can read.
    Unreadable,
    /// A request to the carrier takes effect late.
    Late,
    /// A message comes that kills whoever runs it.
    Poison,
    /// Tables are made.
    Migrating,
}

/// One window.
pub(crate) struct Seam {
    /// H: the edge, R: the relay, C: a consumer or a timer, M: a migration, T: a third party.
    pub(crate) id: &'static str,
    pub(crate) point: &'static str,
    pub(crate) says: &'static str,
    pub(crate) services: &'static [Service],
    pub(crate) directions: &'static [Direction],
    pub(crate) again: Again,
    pub(crate) how: How,
}

const ALL: &[Service] = &[Order, Payment, Inventory, Shipping];
const BOTH: &[Direction] = &[Direction::Do, Direction::Undo];

const fn seam(id: &'static str, point: &'static str, again: Again, how: How, says: &'static str) -> Seam {
    Seam { id, point, says, services: ALL, directions: BOTH, again, how }
}

impl Seam {
    const fn of(self, services: &'static [Service], directions: &'static [Direction]) -> Seam {
        Seam { services, directions, ..self }
    }
}

/// All of them. A row is known by where it stands, so there is one copy.
pub(crate) static SEAMS: &[Seam] = &[
    seam("H0", "order.received", Again::Never, How::Placing, "request read, no transaction begun")
        .of(&[Order], &[Direction::Do]),
    seam(
        "H1",
        "order.before_commit",
        Again::Never,
        How::Placing,
        "order, saga, key and command written, not committed",
    )
    .of(&[Order], &[Direction::Do]),
    seam("H1", "order.committing", Again::Perhaps, How::Placing, "commit sent, its outcome not seen")
        .of(&[Order], &[Direction::Do]),
    seam("H2", "order.committed", Again::Once, How::Placing, "committed, not answered").of(&[Order], &[Direction::Do]),
    seam("H1", "cancel.before_commit", Again::Never, How::Cancelling, "the customer's cancel written, not committed")
        .of(&[Order], &[Direction::Undo]),
    seam("H2", "cancel.committed", Again::Once, How::Cancelling, "the cancel committed, not answered")
        .of(&[Order], &[Direction::Undo]),
    seam("H1", "operator.before_commit", Again::Never, How::Settling, "an operator's act written, not committed")
        .of(&[Order], &[Direction::Undo]),
    seam("H2", "operator.committed", Again::Once, How::Settling, "the act committed, not answered")
        .of(&[Order], &[Direction::Undo]),
    seam("H1", "receipt.before_commit", Again::Never, How::Receiving, "stock taken in, not committed")
        .of(&[Inventory], &[Direction::Aside]),
    seam("H2", "receipt.committed", Again::Once, How::Receiving, "stock taken in and committed, not answered")
        .of(&[Inventory], &[Direction::Aside]),
    seam("R1", "relay.read", Again::Never, How::Order, "rows read, nothing published"),
    seam("R2", "relay.published", Again::Perhaps, How::Order, "published, no confirm seen"),
    seam("R5", "relay.some_confirmed", Again::AtLeastOnce, How::Backlog, "some of a batch confirmed, others not"),
    seam("R3", "relay.confirmed", Again::Once, How::Order, "all confirmed, the rows not moved"),
    seam("R4", "relay.moving", Again::Perhaps, How::Order, "the move sent, its outcome not seen"),
    seam("R4", "relay.moved", Again::Never, How::Order, "the rows moved to the history, nothing else done"),
    seam("C0", "consumer.delivered", Again::Never, How::Order, "delivered into the buffer, not begun"),
    seam("C1", "consumer.prepared", Again::Never, How::Order, "the third party has answered, no transaction begun")
        .of(&[Payment, Shipping], BOTH),
    seam("C1", "consumer.remembered", Again::Never, How::Order, "in the transaction: remembered, no effect yet"),
    seam("C1", "consumer.before_commit", Again::Never, How::Order, "effect and answer written, not committed"),
    seam("C2", "consumer.committing", Again::Perhaps, How::Order, "commit sent, its outcome not seen"),
    seam("C3", "consumer.committed", Again::Once, How::Order, "committed, not acknowledged"),
    seam("C4", "consumer.acked", Again::AnyTimes, How::Order, "acknowledgement written, perhaps never read"),
    seam("C5", "consumer.set_aside", Again::Once, How::Unreadable, "an unreadable message parked, not acknowledged")
        .of(ALL, &[Direction::Aside]),
    seam("C5", "consumer.set_aside", Again::Once, How::Redelivered, "a redelivered message kept, not acknowledged"),
    seam("C6", "consumer.kept", Again::Once, How::Locked, "a retry written, the message not acknowledged"),
    seam("C7", "deadline.locked", Again::Never, How::Deadline, "the overdue saga locked, nothing decided")
        .of(&[Order], &[Direction::DoDeadline, Direction::UndoDeadline]),
    seam("C7", "deadline.before_commit", Again::Never, How::Deadline, "the deadline acted on, not committed")
        .of(&[Order], &[Direction::DoDeadline, Direction::UndoDeadline]),
    seam("C7", "deadline.committed", Again::Never, How::Deadline, "committed, nothing else done")
        .of(&[Order], &[Direction::DoDeadline, Direction::UndoDeadline]),
    seam(
        "C8",
        "consumer.claimed",
        Again::Perhaps,
        How::Redelivered,
        "a kept message claimed, its attempt counted, not run",
    ),
    seam("C8", "consumer.preparing", Again::Never, How::Poison, "one message kills whoever runs it: six times")
        .of(&[Payment], &[Direction::Do]),
    seam("T", "decision.before_commit", Again::Never, How::Order, "the third party has decided, not committed")
        .of(&[Sandbox], BOTH),
    seam("T", "decision.committed", Again::Once, How::Order, "the third party's effect committed, not answered")
        .of(&[Sandbox], BOTH),
    seam("T", "late_effect.before_commit", Again::Never, How::Late, "a late request takes effect, not committed")
        .of(&[Sandbox], &[Direction::Undo]),
    seam("T", "late_effect.committed", Again::Never, How::Late, "a late request dealt with, nothing else done")
        .of(&[Sandbox], &[Direction::Undo]),
    seam("M0", "migration", Again::Never, How::Migrating, "in the middle of a migration; then two migrate at once")
        .of(&[], &[Direction::Aside]),
];
