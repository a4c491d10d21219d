//! The carrier.

use axum::extract::State;
use chassis::{Json, Problem};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::{Api, LONGEST_KEY, LONGEST_TEXT, describe};
use crate::desk::{Take, Wish, behaviour};
use crate::domain::{CancelAnswer, TakeAnswer};
use crate::store::decisions::Subject;
use crate::switch::Party;

/// Bring a parcel to a customer.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Shipment {
    /// The caller's name for this shipment: the first decision under it is kept.
    #[garde(length(min = 1, max = LONGEST_KEY))]
    key: String,
    #[garde(skip)]
    order_id: Uuid,
    /// `standard`, `rejected`, `timeout`, `timeout_created`, `timeout_late`, `flaky_2`, `flaky_2_rejected` or
    /// `cancel_fails`; anything else is rejected.
    #[garde(length(max = LONGEST_TEXT))]
    service: String,
    #[garde(dive)]
    address: Address,
    #[garde(dive)]
    lines: Vec<Line>,
}

#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Address {
    #[garde(length(max = LONGEST_TEXT))]
    name: String,
    #[garde(length(max = LONGEST_TEXT))]
    street: String,
    #[garde(length(max = LONGEST_TEXT))]
    city: String,
    #[garde(length(max = LONGEST_TEXT))]
    postal_code: String,
    #[garde(length(max = LONGEST_TEXT))]
    country: String,
}

#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct Line {
    #[garde(length(max = LONGEST_TEXT))]
    sku: String,
    #[garde(range(min = 1))]
    quantity: i64,
}

/// Call the parcel back, or make sure that it never leaves.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct Recall {
    #[garde(length(min = 1, max = LONGEST_KEY))]
    key: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct ShipmentBody {
    /// `created`, `rejected` or `cancelled`.
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct RecallBody {
    /// `recalled`, `cancelled` or `refused`.
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
}

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(ship)).routes(routes!(recall))
}

/// Bring a parcel to a customer.
#[utoipa::path(
    post, path = "/carrier/shipments", request_body = Shipment,
    responses((status = 200, body = ShipmentBody), (status = 429), (status = 503), (status = 504))
)]
async fn ship(State(api): State<Api>, Json(shipment): Json<Shipment>) -> Result<Json<ShipmentBody>, Problem> {
    let order_id = shipment.order_id.to_string();
    describe(Some(&order_id), &shipment.key);

    // Where to and what is inside is checked and forgotten: only that a parcel left matters here.
    let subject = Subject { order_id: Some(order_id), method: Some(shipment.service), ..Subject::default() };
    let behaviour = behaviour(Party::Carrier, subject.method.as_deref());
    let take = Take { key: shipment.key, subject };
    let (answer, subject) = api.take(Party::Carrier, &take, behaviour).await?;
    Ok(Json(match answer {
        TakeAnswer::Taken => ShipmentBody { status: "created", reference: subject.reference, code: None },
        TakeAnswer::Declined => ShipmentBody { status: "rejected", reference: None, code: subject.code },
        TakeAnswer::Cancelled => ShipmentBody { status: "cancelled", reference: None, code: None },
    }))
}

/// Call the parcel back, or make sure that it never leaves.
#[utoipa::path(
    post, path = "/carrier/cancellations", request_body = Recall,
    responses((status = 200, body = RecallBody), (status = 429), (status = 503), (status = 504))
)]
async fn recall(State(api): State<Api>, Json(recall): Json<Recall>) -> Result<Json<RecallBody>, Problem> {
    describe(None, &recall.key);
    let interference = api.interfere(Party::Carrier, Wish::Cancel).await?;

    let (answer, subject) = api.desk.cancel(Party::Carrier, &recall.key, interference.stance).await?;

    describe(subject.order_id.as_deref(), &recall.key);
    Ok(Json(match answer {
        CancelAnswer::GivenBack => RecallBody { status: "recalled", code: None },
        CancelAnswer::Nothing => RecallBody { status: "cancelled", code: None },
        CancelAnswer::Refused => RecallBody { status: "refused", code: Some("recall_refused") },
    }))
}
