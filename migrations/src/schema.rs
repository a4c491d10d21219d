//! Which tables and rights each schema has. The tables of `messaging` stand in every service's schema.

use sqlx::migrate;
use sqlx::migrate::Migrator;

/// One service's part of the database.
pub struct Schema {
    pub name: &'static str,
    pub role: &'static str,
    /// Version numbers rise over all sources: messaging 1…, edge 1001…, the service's own 2001….
    pub(crate) sources: &'static [&'static Migrator],
    /// Rights that differ from the schema's default (select, insert, update, delete on every table).
    pub(crate) rights: &'static [&'static str],
    /// How many sessions the role may open: the pool, one for each loop, and room for a second instance.
    pub(crate) connection_limit: u16,
}

/// The role that may read every table and write none.
pub const AUDITOR: &str = "auditor";

/// The tables of the messaging core alone: all that a service of one's own needs.
pub static MESSAGING: Migrator = migrate!("./messaging");
static EDGE: Migrator = migrate!("./edge");
static ORDERS: Migrator = migrate!("./orders");
static PAYMENTS: Migrator = migrate!("./payments");
static INVENTORY: Migrator = migrate!("./inventory");
static SHIPPING: Migrator = migrate!("./shipping");
static SANDBOX: Migrator = migrate!("./sandbox");

/// All schemas, in no order that matters: none refers to another.
pub const SCHEMAS: &[Schema] = &[
    Schema {
        name: "orders",
        role: "orders_service",
        sources: &[&MESSAGING, &EDGE, &ORDERS],
        rights: &[
            "revoke update, delete on operator_actions from orders_service",
            "revoke insert, update, delete on products from orders_service",
            "revoke update, delete on orders from orders_service",
            "revoke delete on sagas, saga_steps from orders_service",
        ],
        connection_limit: 40,
    },
    Schema {
        name: "payments",
        role: "payments_service",
        sources: &[&MESSAGING, &PAYMENTS],
        rights: &[
            "revoke update, delete on operator_actions from payments_service",
            "revoke delete on payments from payments_service",
        ],
        connection_limit: 40,
    },
    Schema {
        name: "inventory",
        role: "inventory_service",
        sources: &[&MESSAGING, &EDGE, &INVENTORY],
        rights: &[
            "revoke update, delete on operator_actions from inventory_service",
            "revoke delete on stock, reservations from inventory_service",
        ],
        connection_limit: 40,
    },
    Schema {
        name: "shipping",
        role: "shipping_service",
        sources: &[&MESSAGING, &SHIPPING],
        rights: &[
            "revoke update, delete on operator_actions from shipping_service",
            "revoke delete on shipments from shipping_service",
        ],
        connection_limit: 40,
    },
    Schema {
        name: "sandbox",
        role: "sandbox_service",
        sources: &[&SANDBOX],
        rights: &[
            "revoke update, delete on ledger from sandbox_service",
            "revoke delete on decisions from sandbox_service",
        ],
        connection_limit: 40,
    },
];
