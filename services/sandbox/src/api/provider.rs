//! The payment provider.

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

/// Take money from a customer.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Capture {
    /// The caller's name for this capture: the first decision under it is kept.
    #[garde(length(min = 1, max = LONGEST_KEY))]
    key: String,
    #[garde(skip)]
    order_id: Uuid,
    /// Minor units.
    #[garde(range(min = 0))]
    amount: i64,
    #[garde(length(chars, min = 3, max = 3))]
    currency: String,
    /// `pm_ok`, `pm_declined`, `pm_timeout`, `pm_timeout_charged`, `pm_timeout_late`, `pm_flaky_2`,
    /// `pm_flaky_2_declined`, `pm_rate_limited` or `pm_refund_fails`; anything else is declined.
    #[garde(length(max = LONGEST_TEXT))]
    method: String,
}

/// Give it back, or make sure that it is never taken.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct Cancel {
    #[garde(length(min = 1, max = LONGEST_KEY))]
    key: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct CaptureBody {
    /// `captured`, `declined` or `cancelled`.
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct CancelBody {
    /// `refunded`, `voided` or `refused`.
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
}

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(capture)).routes(routes!(cancel))
}

/// Take money from a customer.
#[utoipa::path(
    post, path = "/provider/captures", request_body = Capture,
    responses((status = 200, body = CaptureBody), (status = 429), (status = 503), (status = 504))
)]
async fn capture(State(api): State<Api>, Json(capture): Json<Capture>) -> Result<Json<CaptureBody>, Problem> {
    let order_id = capture.order_id.to_string();
    describe(Some(&order_id), &capture.key);

    let subject = Subject {
        order_id: Some(order_id),
        amount: capture.amount,
        currency: Some(capture.currency),
        method: Some(capture.method),
        reference: None,
        code: None,
    };
    let behaviour = behaviour(Party::Provider, subject.method.as_deref());
    let take = Take { key: capture.key, subject };
    let (answer, subject) = api.take(Party::Provider, &take, behaviour).await?;
    Ok(Json(match answer {
        TakeAnswer::Taken => CaptureBody { status: "captured", reference: subject.reference, code: None },
        TakeAnswer::Declined => CaptureBody { status: "declined", reference: None, code: subject.code },
        TakeAnswer::Cancelled => CaptureBody { status: "cancelled", reference: None, code: None },
    }))
}

/// Give it back, or make sure that it is never taken.
#[utoipa::path(
    post, path = "/provider/cancellations", request_body = Cancel,
    responses((status = 200, body = CancelBody), (status = 429), (status = 503), (status = 504))
)]
async fn cancel(State(api): State<Api>, Json(cancel): Json<Cancel>) -> Result<Json<CancelBody>, Problem> {
    describe(None, &cancel.key);
    let interference = api.interfere(Party::Provider, Wish::Cancel).await?;

    let (answer, subject) = api.desk.cancel(Party::Provider, &cancel.key, interference.stance).await?;

    describe(subject.order_id.as_deref(), &cancel.key);
    Ok(Json(match answer {
        CancelAnswer::GivenBack => CancelBody { status: "refunded", code: None },
        CancelAnswer::Nothing => CancelBody { status: "voided", code: None },
        CancelAnswer::Refused => CancelBody { status: "refused", code: Some("refund_refused") },
    }))
}
