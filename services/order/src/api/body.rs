//! What requests and answers look like.

use chassis::printable;
use contracts::command::{Address, Line};
use garde::Validate;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::domain::State;
use crate::store::sagas::Shipping;

/// Lines of an order, and pieces of a line: what a person could mean, and far from what could overflow.
const MOST_LINES: usize = 50;
const MOST_PIECES: i64 = 1_000;

/// An order as a customer places it. Prices are not in it: they come from the catalogue.
#[derive(Debug, Serialize, Deserialize, Validate, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub(crate) struct PlaceOrder {
    /// Who orders; the scope of the idempotency key.
    #[garde(length(chars, min = 1, max = 64), custom(printable))]
    #[schema(example = "c-1")]
    pub(crate) customer_id: String,
    /// At least one, at most 50.
    #[garde(length(min = 1, max = MOST_LINES), dive)]
    pub(crate) items: Vec<Item>,
    /// The provider's token; the sandbox knows `pm_ok`, `pm_declined`, `pm_timeout` and more.
    #[garde(length(chars, min = 1, max = 64), custom(printable))]
    #[schema(example = "pm_ok")]
    pub(crate) payment_method: String,
    /// How and where to.
    #[garde(dive)]
    pub(crate) shipping: ShippingBody,
}

/// A number of pieces of one product.
#[derive(Debug, Serialize, Deserialize, Validate, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Item {
    /// The product.
    #[garde(length(chars, min = 1, max = 64), custom(printable))]
    #[schema(example = "KEYBOARD")]
    pub(crate) sku: String,
    /// 1 to 1000.
    #[garde(range(min = 1, max = MOST_PIECES))]
    #[schema(example = 2)]
    pub(crate) quantity: i64,
}

/// How and where to.
#[derive(Debug, Serialize, Deserialize, Validate, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ShippingBody {
    /// The carrier's product; the sandbox knows `standard`, `rejected`, `timeout` and more.
    #[garde(length(chars, min = 1, max = 64), custom(printable))]
    #[schema(example = "standard")]
    pub(crate) service: String,
    #[garde(length(chars, min = 1, max = 200), custom(printable))]
    pub(crate) name: String,
    #[garde(length(chars, min = 1, max = 200), custom(printable))]
    pub(crate) street: String,
    #[garde(length(chars, min = 1, max = 200), custom(printable))]
    pub(crate) city: String,
    #[garde(length(chars, min = 1, max = 20), custom(printable))]
    pub(crate) postal_code: String,
    /// Two capital letters.
    #[garde(custom(country_code))]
    #[schema(example = "DE")]
    pub(crate) country: String,
}

/// The first answer to an order.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Placed {
    pub(crate) order_id: Uuid,
    pub(crate) saga_id: Uuid,
    pub(crate) correlation_id: String,
    pub(crate) trace_id: Option<String>,
    pub(crate) status: &'static str,
    pub(crate) total: Total,
    pub(crate) links: Links,
}

/// Minor units and their currency.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Total {
    pub(crate) amount: i64,
    pub(crate) currency: String,
}

/// Where to look next.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Links {
    pub(crate) order: String,
    pub(crate) timeline: String,
    /// Jaeger's page of the trace.
    pub(crate) trace: Option<String>,
}

/// An order and how far it is.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OrderBody {
    pub(crate) order_id: Uuid,
    pub(crate) saga_id: Uuid,
    pub(crate) correlation_id: String,
    pub(crate) trace_id: Option<String>,
    /// `pending`, `completed`, `cancelling`, `cancelled`, `settled` or `needs_attention`.
    pub(crate) status: &'static str,
    /// Why it is being undone, where it is.
    pub(crate) reason: Option<Reason>,
    pub(crate) total: Total,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) created_at: OffsetDateTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) steps: Option<Vec<StepBody>>,
    pub(crate) links: Links,
}

/// Why an order is being undone.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reason {
    /// A rejection's code, `step_failed`, `step_overdue` or `customer`.
    pub(crate) code: String,
    /// `Business` or `Technical`.
    pub(crate) error_type: String,
}

/// A do or undo that was asked.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StepBody {
    pub(crate) step: &'static str,
    pub(crate) direction: String,
    pub(crate) status: &'static str,
    /// The last command: its id is that of the message.
    pub(crate) command_id: Uuid,
    /// How often it was asked.
    pub(crate) attempts: i32,
    /// How often the participant tried, the last time it was asked.
    pub(crate) handler_attempts: Option<i32>,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) asked_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) deadline: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339::option")]
    pub(crate) answered_at: Option<OffsetDateTime>,
    pub(crate) error: Option<String>,
    /// The last answer that changed nothing: what, why, how many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ignored: Option<IgnoredBody>,
}

/// An answer that changed nothing.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct IgnoredBody {
    pub(crate) answer: String,
    /// `late`, `repeated` or `stale`.
    pub(crate) kind: String,
    pub(crate) count: i32,
}

/// A page of orders.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Page {
    pub(crate) orders: Vec<OrderBody>,
    /// Pass it as `after` to get the next page; null on the last one.
    pub(crate) next: Option<Uuid>,
}

/// Which orders to list.
#[derive(Debug, Deserialize, Validate, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// `pending`, `completed`, `cancelling`, `cancelled`, `settled` or `needs_attention`.
    #[garde(inner(custom(known_status)))]
    pub(crate) status: Option<String>,
    #[garde(inner(length(chars, min = 1, max = 128), custom(printable)))]
    pub(crate) correlation_id: Option<String>,
    /// The `next` of the page before.
    #[garde(skip)]
    pub(crate) after: Option<Uuid>,
    /// Newest first; oldest first if not said.
    #[garde(skip)]
    pub(crate) newest: Option<bool>,
    /// 1 to 100, 20 if not said.
    #[garde(inner(range(min = 1, max = 100)))]
    pub(crate) limit: Option<i64>,
}

impl PlaceOrder {
    pub(crate) fn lines(&self) -> Vec<Line> {
        self.items.iter().map(|item| Line { sku: item.sku.clone(), quantity: item.quantity }).collect()
    }

    pub(crate) fn shipping(&self) -> Shipping {
        let ShippingBody { service, name, street, city, postal_code, country } = &self.shipping;
        Shipping {
            service: service.clone(),
            address: Address {
                name: name.clone(),
                street: street.clone(),
                city: city.clone(),
                postal_code: postal_code.clone(),
                country: country.clone(),
            },
        }
    }
}

/// What customers see of a state, and the states behind it.
const STATUSES: [(&str, &str); 6] = [
    ("pending", "running"),
    ("cancelling", "compensating"),
    ("needs_attention", "needs_attention"),
    ("completed", "completed"),
    ("cancelled", "cancelled"),
    ("settled", "settled"),
];

/// What customers see of a state.
pub(crate) fn status_of(state: State) -> &'static str {
    let (name, _) = state.names();
    STATUSES.iter().find(|(_, known)| *known == name).map_or("pending", |(status, _)| status)
}

/// The state's name in the table.
pub(crate) fn state_of(status: &str) -> Option<&'static str> {
    STATUSES.iter().find(|(known, _)| *known == status).map(|(_, state)| *state)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "garde hands its context over by reference")]
fn country_code(value: &str, (): &()) -> garde::Result {
    if value.len() == 2 && value.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Ok(());
    }
    Err(garde::Error::new("must be two capital letters (ISO 3166-1 alpha-2)"))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "garde hands its context over by reference")]
fn known_status(value: &str, (): &()) -> garde::Result {
    if state_of(value).is_some() {
        return Ok(());
    }
    Err(garde::Error::new("must be pending, completed, cancelling, cancelled, settled or needs_attention"))
}
