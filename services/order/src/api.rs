//! The order service over HTTP: place, look at, list, cancel.

use std::sync::Arc;

use chassis::Base;
use contracts::step::Direction;
use messaging::Poke;
use sqlx::PgPool;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::definition::Deadlines;

pub(crate) mod body;
mod cancel;
mod look;
pub(crate) mod ops;
mod place;

/// What the handlers share.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) pool: PgPool,
    pub(crate) poke: Poke,
    pub(crate) deadlines: Deadlines,
    pub(crate) base: Arc<Base>,
}

impl Api {
    /// The routes for everybody.
    pub(crate) fn routes(self) -> OpenApiRouter {
        OpenApiRouter::new()
            .routes(routes!(place::place, look::list))
            .routes(routes!(look::get))
            .routes(routes!(look::timeline))
            .routes(routes!(cancel::cancel))
            .with_state(self)
    }
}

/// The name of a direction in an answer.
fn direction_name(direction: Direction) -> String {
    direction.name().to_owned()
}
