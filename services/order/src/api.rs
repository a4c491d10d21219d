//! The order service over HTTP: place, look at, list, cancel.

use std::sync::Arc;

use chassis::{Base, Together};
use contracts::step::Direction;
use messaging::{Failure, Poke};
use sqlx::PgPool;
use tracing::Span;
use tracing::field::display;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::definition::Deadlines;
use crate::follow::Follow;

pub(crate) mod body;
mod cancel;
mod follow;
mod look;
pub(crate) mod ops;
mod place;
mod placing;

/// Where new orders meet.
pub(crate) type Placing = Together<placing::Wanted, Result<placing::Outcome, Failure>>;
/// One group commits while the next one is written.
const PLACING_AT_ONCE: usize = 2;
/// Orders of one transaction: enough that its fixed cost no longer counts.
const PLACED_TOGETHER: usize = 64;

/// What the handlers share.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) pool: PgPool,
    pub(crate) poke: Poke,
    pub(crate) placing: Arc<Placing>,
    pub(crate) deadlines: Deadlines,
    pub(crate) base: Arc<Base>,
    pub(crate) follow: Follow,
}

impl Api {
    pub(crate) fn new(base: Base, poke: Poke, deadlines: Deadlines, follow: Follow) -> Api {
        let placing = Arc::new(Together::new(PLACING_AT_ONCE, PLACED_TOGETHER));
        Api { pool: base.pool.clone(), poke, placing, deadlines, base: Arc::new(base), follow }
    }

    /// The routes for everybody.
    pub(crate) fn routes(self) -> OpenApiRouter {
        OpenApiRouter::new()
            .routes(routes!(place::place, look::list))
            .routes(routes!(look::get))
            .routes(routes!(follow::timeline))
            .routes(routes!(cancel::cancel))
            .with_state(self)
    }
}

/// Puts the ids on the request's span: every line about it tells them, also that of a refusal.
fn describe(correlation_id: &str, saga_id: Uuid, order_id: Uuid) {
    let span = Span::current();
    span.record("correlation.id", correlation_id);
    span.record("saga.id", display(saga_id));
    span.record("order.id", display(order_id));
}

/// The name of a direction in an answer.
fn direction_name(direction: Direction) -> String {
    direction.name().to_owned()
}
