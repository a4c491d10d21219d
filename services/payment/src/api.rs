//! The payment service over HTTP: look at the payment of an order.

use axum::extract::State;
use chassis::{Json, Path, Problem};
use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::store::{self, Payment};

/// What the handlers share.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) pool: PgPool,
}

/// A payment as it stands.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PaymentBody {
    order_id: Uuid,
    saga_id: Uuid,
    /// `captured`, `declined`, `refunded` or `voided`.
    status: &'static str,
    /// Minor units.
    amount: Option<i64>,
    currency: Option<String>,
    /// The provider's name for it.
    reference: Option<String>,
}

impl Api {
    pub(crate) fn routes(self) -> OpenApiRouter {
        OpenApiRouter::new().routes(routes!(get)).with_state(self)
    }
}

/// The payment of an order.
#[utoipa::path(
    get, path = "/payments/{orderId}", params(("orderId" = Uuid, Path)),
    responses((status = 200, body = PaymentBody), (status = 404, content_type = "application/problem+json"))
)]
async fn get(State(api): State<Api>, Path(order_id): Path<Uuid>) -> Result<Json<PaymentBody>, Problem> {
    let found = store::find_by_order(&mut *api.pool.acquire().await?, order_id).await?;
    let payment = found.ok_or_else(|| Problem::not_found("payment.not_found", "there is no payment of this order"))?;
    let Payment { saga_id, order_id, status, amount, currency, reference } = payment;
    Ok(Json(PaymentBody { order_id, saga_id, status: status.name(), amount, currency, reference }))
}
