//! The shipping service over HTTP: look at the shipment of an order.

use axum::extract::State;
use chassis::{Json, Path, Problem};
use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::store::{self, Shipment};

/// What the handlers share.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) pool: PgPool,
}

/// A shipment as it stands.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ShipmentBody {
    order_id: Uuid,
    saga_id: Uuid,
    /// `created`, `rejected` or `cancelled`.
    status: &'static str,
    service: Option<String>,
    /// The carrier's name for it.
    reference: Option<String>,
}

impl Api {
    pub(crate) fn routes(self) -> OpenApiRouter {
        OpenApiRouter::new().routes(routes!(get)).with_state(self)
    }
}

/// The shipment of an order.
#[utoipa::path(
    get, path = "/shipments/{orderId}", params(("orderId" = Uuid, Path)),
    responses((status = 200, body = ShipmentBody), (status = 404, content_type = "application/problem+json"))
)]
async fn get(State(api): State<Api>, Path(order_id): Path<Uuid>) -> Result<Json<ShipmentBody>, Problem> {
    let found = store::find_by_order(&mut *api.pool.acquire().await?, order_id).await?;
    let shipment =
        found.ok_or_else(|| Problem::not_found("shipment.not_found", "there is no shipment of this order"))?;
    let Shipment { saga_id, order_id, status, service, reference } = shipment;
    Ok(Json(ShipmentBody { order_id, saga_id, status: status.name(), service, reference }))
}
