//! The ledger, for tests and for whoever wants to see that nobody paid for a cancelled order.

use axum::extract::State;
use chassis::{Json, Problem, Query};
use garde::Validate;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Api;
use crate::store::late_effects;
use crate::store::ledger::{self, Balance, Entry};

/// Lines that are shown at once, the newest. An order has eight at most.
const SHOWN: i64 = 200;
/// Orders on a page, if not said.
const PAGE: i64 = 200;

#[derive(Debug, Deserialize, Validate, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LedgerQuery {
    /// Only this order; all orders if not said.
    #[garde(skip)]
    order_id: Option<Uuid>,
}

#[derive(Debug, Deserialize, Validate, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct OrdersQuery {
    /// The `next` of the page before.
    #[garde(skip)]
    after: Option<Uuid>,
    /// 1 to 1000, 200 if not said.
    #[garde(inner(range(min = 1, max = 1_000)))]
    limit: Option<i64>,
}

/// What happened, and what it comes to.
#[derive(Debug, Serialize, ToSchema)]
struct LedgerBody {
    /// The newest 200 lines, the newest first.
    entries: Vec<EntryBody>,
    balances: BalancesBody,
    /// Parcels that left and were not called back.
    parcels: i64,
    pending: PendingBody,
}

/// Requests that timed out and are still to take effect, unless their keys are cancelled meanwhile.
#[derive(Debug, Serialize, ToSchema)]
struct PendingBody {
    provider: i64,
    carrier: i64,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct EntryBody {
    id: i64,
    #[serde(with = "time::serde::rfc3339")]
    at: OffsetDateTime,
    /// `provider` or `carrier`.
    party: String,
    key: String,
    order_id: Option<String>,
    /// `capture`, `refund`, `ship` or `recall`.
    effect: String,
    /// `customer`, `shop` or `parcel`.
    account: String,
    amount: i64,
    currency: Option<String>,
}

/// Minor units. The two are each other's negative.
#[derive(Debug, Serialize, ToSchema)]
struct BalancesBody {
    customer: i64,
    shop: i64,
}

/// What each order comes to.
#[derive(Debug, Serialize, ToSchema)]
struct OrdersBody {
    orders: Vec<OrderBody>,
    /// Pass it as `after` to get the next page; null on the last one.
    next: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct OrderBody {
    order_id: Option<String>,
    balances: BalancesBody,
    parcels: i64,
}

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(look)).routes(routes!(list_orders))
}

/// The ledger of one order or of all.
#[utoipa::path(get, path = "/ledger", params(LedgerQuery), responses((status = 200, body = LedgerBody)))]
async fn look(State(api): State<Api>, Query(query): Query<LedgerQuery>) -> Result<Json<LedgerBody>, Problem> {
    let order_id = query.order_id.map(|id| id.to_string());
    let mut connection = api.desk.pool.acquire().await?;
    let entries = ledger::list(&mut connection, order_id.as_deref(), SHOWN).await?;
    let Balance { customer, shop, parcels, .. } = ledger::total(&mut connection, order_id.as_deref()).await?;
    let (provider, carrier) = late_effects::count(&mut connection, order_id.as_deref()).await?;
    let entries = entries.into_iter().map(EntryBody::from).collect();
    let (balances, pending) = (BalancesBody { customer, shop }, PendingBody { provider, carrier });
    Ok(Json(LedgerBody { entries, balances, parcels, pending }))
}

/// What each order comes to.
#[utoipa::path(get, path = "/ledger/orders", params(OrdersQuery), responses((status = 200, body = OrdersBody)))]
async fn list_orders(State(api): State<Api>, Query(query): Query<OrdersQuery>) -> Result<Json<OrdersBody>, Problem> {
    let after = query.after.map(|id| id.to_string()).unwrap_or_default();
    let limit = query.limit.unwrap_or(PAGE);
    let balances = ledger::list_balances(&mut *api.desk.pool.acquire().await?, &after, limit).await?;
    let is_full = i64::try_from(balances.len()).is_ok_and(|length| length == limit);
    let next = balances.last().filter(|_| is_full).and_then(|last| last.order_id.clone());
    Ok(Json(OrdersBody { orders: balances.into_iter().map(OrderBody::from).collect(), next }))
}

impl From<Entry> for EntryBody {
    fn from(entry: Entry) -> EntryBody {
        let Entry { id, at, party, key, order_id, effect, account, amount, currency } = entry;
        EntryBody { id, at, party, key, order_id, effect, account, amount, currency }
    }
}

impl From<Balance> for OrderBody {
    fn from(balance: Balance) -> OrderBody {
        let Balance { order_id, customer, shop, parcels } = balance;
        OrderBody { order_id, balances: BalancesBody { customer, shop }, parcels }
    }
}
