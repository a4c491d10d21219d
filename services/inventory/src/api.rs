//! The inventory service over HTTP: look at stock, take some in.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use chassis::idempotency::{self, Claim, Key, StoredAnswer};
use chassis::{Json, Path, Problem, Query};
use garde::Validate;
use messaging::hold;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::store::stock::{self, Stock};

/// The largest receipt: far from what could overflow a sum.
const MOST_PIECES: i64 = 1_000_000;
/// Receipts have no caller of their own: one scope for all.
const SCOPE: &str = "receipts";

/// What the handlers share.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) pool: PgPool,
}

/// The stock of one product. `received` is always the sum of the other three.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct StockBody {
    sku: String,
    available: i64,
    reserved: i64,
    shipped: i64,
    received: i64,
}

/// A page of products.
#[derive(Debug, Serialize, ToSchema)]
struct StockPage {
    stock: Vec<StockBody>,
    /// Pass it as `after` to get the next page; null on the last one.
    next: Option<String>,
}

/// Pieces that come in.
#[derive(Debug, Serialize, Deserialize, Validate, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Receipt {
    /// 1 to 1000000.
    #[garde(range(min = 1, max = MOST_PIECES))]
    quantity: i64,
}

/// Which products to list.
#[derive(Debug, Deserialize, Validate, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// The `next` of the page before.
    #[garde(inner(length(chars, max = 64)))]
    after: Option<String>,
    /// 1 to 100, 20 if not said.
    #[garde(inner(range(min = 1, max = 100)))]
    limit: Option<i64>,
}

impl Api {
    pub(crate) fn routes(self) -> OpenApiRouter {
        OpenApiRouter::new().routes(routes!(list)).routes(routes!(get)).routes(routes!(receive)).with_state(self)
    }
}

/// Products by name, page by page.
#[utoipa::path(get, path = "/stock", params(ListQuery), responses((status = 200, body = StockPage)))]
async fn list(State(api): State<Api>, Query(query): Query<ListQuery>) -> Result<Json<StockPage>, Problem> {
    let limit = query.limit.unwrap_or(20);
    let after = query.after.unwrap_or_default();
    let mut rows = stock::list(&mut *api.pool.acquire().await?, &after, limit + 1).await?;
    let has_more = rows.len() > usize::try_from(limit).unwrap_or(usize::MAX);
    if has_more {
        rows.pop();
    }
    let next = rows.last().filter(|_| has_more).map(|row| row.sku.clone());
    Ok(Json(StockPage { stock: rows.into_iter().map(body).collect(), next }))
}

/// The stock of one product.
#[utoipa::path(
    get, path = "/stock/{sku}", params(("sku" = String, Path)),
    responses((status = 200, body = StockBody), (status = 404, content_type = "application/problem+json"))
)]
async fn get(State(api): State<Api>, Path(sku): Path<String>) -> Result<Json<StockBody>, Problem> {
    let found = stock::find(&mut *api.pool.acquire().await?, &sku).await?;
    Ok(Json(body(found.ok_or_else(not_found)?)))
}

/// Takes pieces in. A repeated request with the same key gets the first answer.
#[utoipa::path(
    post, path = "/stock/{sku}/receipts", request_body = Receipt,
    params(("sku" = String, Path), ("Idempotency-Key" = String, Header)),
    responses(
        (status = 200, body = StockBody),
        (status = 400, content_type = "application/problem+json"),
        (status = 404, content_type = "application/problem+json"),
        (status = 422, content_type = "application/problem+json"),
    )
)]
async fn receive(
    State(api): State<Api>,
    Path(sku): Path<String>,
    headers: HeaderMap,
    Json(receipt): Json<Receipt>,
) -> Result<Response, Problem> {
    let key = Key::from_headers(&headers)?;
    let path = format!("/stock/{sku}/receipts");
    let fingerprint = idempotency::fingerprint("POST", &path, &receipt.quantity.to_be_bytes());
    let mut transaction = api.pool.begin().await?;
    match idempotency::begin(&mut transaction, SCOPE, &key, &fingerprint).await? {
        Claim::First => {}
        Claim::Repeated(answer) => return Ok(answer.into_response()),
        Claim::Mismatch => return Err(idempotency::reused()),
    }
    let received = stock::receive(&mut transaction, &sku, receipt.quantity).await?.ok_or_else(not_found)?;
    let answer = StoredAnswer::new(StatusCode::OK, None, &body(received))?;
    idempotency::complete(&mut transaction, SCOPE, &key, &answer).await?;
    hold::point("receipt.before_commit").await;
    // A crash before this line takes nothing in; after it, a repeat with the key gets this answer.
    transaction.commit().await?;
    hold::point("receipt.committed").await;
    tracing::info!(sku, quantity = receipt.quantity, "stock received");
    Ok(answer.into_response())
}

fn body(stock: Stock) -> StockBody {
    let Stock { sku, available, reserved, shipped, received } = stock;
    StockBody { sku, available, reserved, shipped, received }
}

fn not_found() -> Problem {
    Problem::not_found("stock.unknown_sku", "there is no such product")
}
