//! Exchanges, queues, bindings, and which broker user may do what. Each declaration stands once, here.

use messaging::{Exchange, Kind, Queue, Route};

use crate::step::Step;

/// Commands, to one participant each.
pub const COMMANDS: Exchange = Exchange { name: "saga.commands", kind: Kind::Direct };
/// Events, to whoever listens; the routing key is `Aggregate.EventType`.
pub const EVENTS: Exchange = Exchange { name: "saga.events", kind: Kind::Topic };
/// What every service declares.
pub const EXCHANGES: &[Exchange] = &[COMMANDS, EVENTS];

/// Every answer, to the orchestrator.
pub const ORDER_REPLIES: Queue = Queue {
    name: "order.replies",
    bindings: &[(EVENTS, "Payment.*"), (EVENTS, "Inventory.*"), (EVENTS, "Shipping.*")],
    single_active_consumer: false,
};
/// What payment is asked.
pub const PAYMENT_COMMANDS: Queue =
    Queue { name: "payment.commands", bindings: &[(COMMANDS, "payment")], single_active_consumer: false };
/// What inventory is asked.
pub const INVENTORY_COMMANDS: Queue =
    Queue { name: "inventory.commands", bindings: &[(COMMANDS, "inventory")], single_active_consumer: false };
/// What inventory hears by itself: the end of a reservation.
pub const INVENTORY_EVENTS: Queue =
    Queue { name: "inventory.events", bindings: &[(EVENTS, "Order.OrderShipped")], single_active_consumer: false };
/// What shipping is asked.
pub const SHIPPING_COMMANDS: Queue =
    Queue { name: "shipping.commands", bindings: &[(COMMANDS, "shipping")], single_active_consumer: false };

/// Every queue.
pub const QUEUES: &[Queue] =
    &[ORDER_REPLIES, PAYMENT_COMMANDS, INVENTORY_COMMANDS, INVENTORY_EVENTS, SHIPPING_COMMANDS];

/// The queue that a message reaches by its exchange and routing key; no message reaches two. A queue's name begins with
/// that of its service.
pub fn receiver(exchange: &str, routing_key: &str) -> Option<&'static Queue> {
    let reaches = |(from, pattern): &(Exchange, &str)| {
        let words = pattern.split('.').zip(routing_key.split('.'));
        let same_length = pattern.split('.').count() == routing_key.split('.').count();
        from.name == exchange && same_length && words.into_iter().all(|(known, word)| known == "*" || known == word)
    };
    QUEUES.iter().find(|queue| queue.bindings.iter().any(reaches))
}

/// The way of a command to its participant: it must reach a queue.
pub fn command_route(step: Step) -> Route {
    Route::mandatory(COMMANDS.name, step.name())
}

/// The way of an event.
pub fn event_route(aggregate: &str, event_type: &str, mandatory: bool) -> Route {
    let routing_key = event_key(aggregate, event_type);
    if mandatory { Route::mandatory(EVENTS.name, routing_key) } else { Route::optional(EVENTS.name, routing_key) }
}

/// The routing key of an event. The broker lets each service use the keys of its own aggregate only.
pub fn event_key(aggregate: &str, event_type: &str) -> String {
    format!("{aggregate}.{event_type}")
}

/// A user of the broker: regular expressions over the names of exchanges and queues, as RabbitMQ takes them.
/// Binding a queue needs write on the queue and read on the exchange.
pub struct User {
    /// The name, the same as the service's.
    pub name: &'static str,
    /// What it may declare.
    pub configure: &'static str,
    /// What it may publish to, and which queues it may bind.
    pub write: &'static str,
    /// What it may consume, and which exchanges it may bind to.
    pub read: &'static str,
    /// Routing keys that it may publish with to `saga.events`.
    pub events_write: &'static str,
    /// Binding keys that it may bind to `saga.events`.
    pub events_read: &'static str,
}

/// One user for each service; `saga.commands` is the order service's to write.
pub const USERS: &[User] = &[
    User {
        name: "order",
        configure: r"^(saga\.commands|saga\.events|order\.replies)$",
        write: r"^(saga\.commands|saga\.events|order\.replies)$",
        read: r"^(saga\.events|order\.replies)$",
        events_write: r"^Order\.",
        events_read: r"^(Payment|Inventory|Shipping)\.",
    },
    User {
        name: "payment",
        configure: r"^(saga\.commands|saga\.events|payment\.commands)$",
        write: r"^(saga\.events|payment\.commands)$",
        read: r"^(saga\.commands|payment\.commands)$",
        events_write: r"^Payment\.",
        events_read: r"^$",
    },
    User {
        name: "inventory",
        configure: r"^(saga\.commands|saga\.events|inventory\.commands|inventory\.events)$",
        write: r"^(saga\.events|inventory\.commands|inventory\.events)$",
        read: r"^(saga\.commands|saga\.events|inventory\.commands|inventory\.events)$",
        events_write: r"^Inventory\.",
        events_read: r"^Order\.OrderShipped$",
    },
    User {
        name: "shipping",
        configure: r"^(saga\.commands|saga\.events|shipping\.commands)$",
        write: r"^(saga\.events|shipping\.commands)$",
        read: r"^(saga\.commands|shipping\.commands)$",
        events_write: r"^Shipping\.",
        events_read: r"^$",
    },
];
