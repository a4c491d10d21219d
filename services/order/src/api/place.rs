//! `POST /orders`: what is asked, and what is answered. In between `placing` writes orders that come together.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use chassis::idempotency::{self, Key, StoredAnswer};
use chassis::{Correlation, Json, Problem};
use messaging::{Cause, Failure};
use uuid::Uuid;

use super::body::{Links, PlaceOrder, Placed, Total};
use super::placing::{self, Outcome, Wanted};
use super::{Api, describe};
use crate::domain::cart;
use crate::store::sagas::OrderDetails;

/// Places an order. A repeated request with the same key gets the first answer.
#[utoipa::path(
    post, path = "/orders", request_body = PlaceOrder,
    params(
        ("Idempotency-Key" = String, Header, description = "1 to 255 visible ASCII characters; its scope is customerId"),
        ("X-Correlation-Id" = Option<String>, Header, description = "at most 128 of A-Za-z0-9._:-"),
    ),
    responses(
        (status = 202, body = Placed, description = "accepted: its saga has begun"),
        (status = 400, description = "malformed, or the key is missing", content_type = "application/problem+json"),
        (status = 422, description = "invalid, an unknown product, or a key that was used for another order",
         content_type = "application/problem+json"),
        (status = 503, description = "not now; repeat with the same key", content_type = "application/problem+json"),
    )
)]
pub(super) async fn place(
    State(api): State<Api>,
    headers: HeaderMap,
    correlation: Correlation,
    Json(request): Json<PlaceOrder>,
) -> Result<Response, Problem> {
    let key = Key::from_headers(&headers)?;
    let understood = serde_json::to_vec(&request).map_err(json_failure)?;
    let fingerprint = idempotency::fingerprint("POST", "/orders", &understood);
    let (order_id, saga_id) = (Uuid::now_v7(), Uuid::now_v7());
    let lines = cart::merge(&request.lines());
    let cause = Cause::new(correlation.or(order_id)).within_saga(saga_id);

    let correlation_id = cause.correlation_id.clone();
    let wanted = Wanted { key, fingerprint, request, lines, order_id, saga_id, cause };
    let outcome = api.placing.run(wanted, |group| placing::place(api.clone(), group)).await??;

    match outcome {
        Outcome::Placed(answer) => {
            describe(&correlation_id, saga_id, order_id);
            tracing::info!(status = "running", "order accepted");
            Ok(answer.into_response())
        }
        Outcome::Repeated(answer) => Ok(answer.into_response()),
        Outcome::Mismatch => Err(idempotency::reused()),
        Outcome::Refused(rejection) => Err(Problem::unprocessable(rejection.code(), rejection.to_string())),
    }
}

/// What an order is answered with.
pub(super) fn answer(api: &Api, saga_id: Uuid, order: &OrderDetails) -> Result<StoredAnswer, Failure> {
    let placed = Placed {
        order_id: order.id,
        saga_id,
        correlation_id: order.correlation_id.clone(),
        trace_id: order.trace.trace_id(),
        status: "pending",
        total: Total { amount: order.total.amount, currency: order.total.currency.clone() },
        links: links(api, order.id, order.trace.trace_id().as_deref()),
    };
    StoredAnswer::new(StatusCode::ACCEPTED, Some(format!("/orders/{}", order.id)), &placed)
}

/// Where to look next for an order.
pub(super) fn links(api: &Api, order_id: Uuid, trace_id: Option<&str>) -> Links {
    Links {
        order: format!("/orders/{order_id}"),
        timeline: format!("/orders/{order_id}/timeline"),
        trace: trace_id.and_then(|trace_id| api.base.trace_url(trace_id)),
    }
}

fn json_failure(error: serde_json::Error) -> Failure {
    Failure::permanent("request.json", "a request that was read cannot be written").caused_by(error)
}
