//! The invariants, as data.

/// Something that must hold.
pub struct Invariant {
    /// As in `I4`.
    pub id: &'static str,
    pub name: &'static str,
    /// It, in one sentence.
    pub says: &'static str,
    /// Whether a part of it holds only when nothing is under way.
    pub needs_quiet: bool,
    /// Lists its violations: order, what does not hold, the rows that show it. `$1` is whether nothing is under way,
    /// `$2` which queue a message reaches. Without one it is not in the database.
    pub(super) sql: Option<&'static str>,
}

/// An invariant that the database shows by itself, or in part.
const fn rows(id: &'static str, name: &'static str, says: &'static str, sql: &'static str) -> Invariant {
    Invariant { id, name, says, needs_quiet: false, sql: Some(sql) }
}

/// One that it does not show.
const fn elsewhere(id: &'static str, name: &'static str, says: &'static str) -> Invariant {
    Invariant { id, name, says, needs_quiet: false, sql: None }
}

impl Invariant {
    const fn when_quiet(self) -> Invariant {
        Invariant { needs_quiet: true, ..self }
    }
}

/// All of them.
pub const INVARIANTS: &[Invariant] = &[
    rows(
        "I1",
        "money",
        "A shipped order is paid once and in full, a cancelled one not at all; the ledger sums to zero.",
        include_str!("i1.sql"),
    ),
    rows(
        "I2",
        "stock",
        "No piece is lost or sold twice, and none stays reserved for an order that has ended.",
        include_str!("i2.sql"),
    )
    .when_quiet(),
    rows(
        "I3",
        "shipments",
        "A shipped order has one parcel; one that is cancelled or paid back has none.",
        include_str!("i3.sql"),
    ),
    rows(
        "I4",
        "sagas",
        "Each order has one saga; it has ended as its participants say, waits for a person, or is in time.",
        include_str!("i4.sql"),
    )
    .when_quiet(),
    rows(
        "I5",
        "outbox",
        "What was published has been received; nothing is refused again and again.",
        include_str!("i5.sql"),
    )
    .when_quiet(),
    rows(
        "I6",
        "inbox",
        "Each message that was handled has its one effect, and each effect its message.",
        include_str!("i6.sql"),
    ),
    elsewhere("I8", "broker", "There are exactly the known queues, each with a consumer and without a message.")
        .when_quiet(),
    rows("I9", "sequence", "The messages of an order to one queue are published in order.", include_str!("i9.sql")),
    rows("I10", "answers", "Each answer that a customer got or gets is what the tables say.", include_str!("i10.sql")),
    rows(
        "I11",
        "leftovers",
        "No session is left in a transaction, waits for a lock, or keeps one.",
        include_str!("i11.sql"),
    ),
    elsewhere("I12", "traces", "An order has one trace, through all services, without a missing parent."),
    rows("I13", "evidence", "There are orders: an audit over nothing proves nothing.", include_str!("i13.sql")),
    elsewhere("I14", "logs", "Each error and each warning that a service logs says by a code what it is about."),
];
