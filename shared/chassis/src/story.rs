//! What a service tells about a saga, to operators and to whoever joins the parts of several services: under
//! `/ops/story`, so that nobody has to read another one's tables.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use garde::Validate;
use messaging::{Story, story};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use uuid::Uuid;

use crate::json::{Json, Query};
use crate::problem::Problem;

/// Which saga: by its own id, or by that of a message.
#[derive(Debug, Deserialize, Validate)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Which {
    #[garde(skip)]
    saga_id: Option<Uuid>,
    #[garde(skip)]
    event_id: Option<Uuid>,
}

/// A service's part of a saga.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    /// The saga.
    pub saga_id: Uuid,
    /// The part.
    #[serde(flatten)]
    pub story: Story,
}

pub(crate) fn routes(pool: PgPool) -> Router {
    Router::new().route("/story", get(tell)).with_state(pool)
}

async fn tell(State(pool): State<PgPool>, Query(which): Query<Which>) -> Result<Json<Told>, Problem> {
    let mut connection = pool.acquire().await?;
    let saga_id = match (which.saga_id, which.event_id) {
        (Some(saga_id), None) => saga_id,
        (None, Some(event_id)) => {
            let found = story::find_saga(&mut connection, event_id).await?;
            found.ok_or_else(|| Problem::not_found("event.not_found", "this service has written no such message"))?
        }
        _ => return Err(Problem::new(StatusCode::BAD_REQUEST, "request.query", "name either a sagaId or an eventId")),
    };
    let story = story::read(&mut connection, saga_id).await?;
    Ok(Json(Told { saga_id, story }))
}
