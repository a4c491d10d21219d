//! `GET /orders/{id}/timeline` for everybody; for operators `GET /ops/why/{id}` and `GET /ops/orders/{id}`, which take
//! any id that a log line or a message may show.

use std::time::Duration;

use axum::extract::State;
use chassis::{Json, Path, Problem};
use messaging::Failure;
use serde::Serialize;
use uuid::Uuid;

use super::Api;
use super::body::status_of;
use super::look::not_found;
use crate::follow::messages::track;
use crate::follow::timeline::{self, Own, Timeline};
use crate::follow::why::{self, Why};
use crate::store::orders::{self, OrderRow};
use crate::store::steps;

/// When a timeline that was refused may be asked for again.
const SOON: Duration = Duration::from_secs(1);

/// An order that an id means.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meant {
    order_id: Uuid,
    saga_id: Uuid,
    correlation_id: String,
    status: &'static str,
}

/// Everything that happened to an order, in order, as all services tell it; and where each message of it is now.
#[utoipa::path(
    get, path = "/orders/{id}/timeline", params(("id" = Uuid, Path)),
    responses((status = 200, body = Timeline), (status = 404, content_type = "application/problem+json"))
)]
pub(super) async fn timeline(State(api): State<Api>, Path(id): Path<Uuid>) -> Result<Json<Timeline>, Problem> {
    let mut told = tell(&api, id).await?;
    // Who acted and why is for operators: people write names there.
    for entry in told.entries.iter_mut().filter(|entry| entry.kind == "operator") {
        entry.detail = None;
    }
    Ok(Json(told))
}

/// The same with the words of operators.
pub(super) async fn timeline_for_operators(
    State(api): State<Api>,
    Path(id): Path<Uuid>,
) -> Result<Json<Timeline>, Problem> {
    Ok(Json(tell(&api, id).await?))
}

async fn tell(api: &Api, id: Uuid) -> Result<Timeline, Problem> {
    // Each asks every service: many at once would take the connections of those who order.
    let _turn = api.follow.turns.try_acquire().map_err(|_| {
        Problem::unavailable("overloaded", "too many timelines at once, please try again").retry_after(SOON)
    })?;
    let order = orders::find(&mut *api.pool.acquire().await?, id).await?.ok_or_else(not_found)?;
    let parts = api.follow.gather(order.saga_id).await?;
    let own = own(api, order).await?;
    Ok(Timeline {
        order_id: own.order.id,
        saga_id: own.order.saga_id,
        correlation_id: own.order.correlation_id.clone(),
        trace_id: own.order.trace.trace_id(),
        status: status_of(own.order.state),
        entries: timeline::entries(&own, &parts),
        messages: track(&parts).iter().map(|message| message.body()).collect(),
        traces: timeline::traces(&own, &parts, |trace_id| api.base.trace_url(trace_id)),
        missing: timeline::missing(&parts),
    })
}

/// Why an order is where it is. Of several with one correlation id, the newest.
pub(super) async fn why(State(api): State<Api>, Path(id): Path<String>) -> Result<Json<Why>, Problem> {
    let order = api.follow.find(&id).await?.pop().ok_or_else(unknown)?;
    let parts = api.follow.gather(order.saga_id).await?;
    let own = own(&api, order).await?;
    let finding = why::explain(&api.follow, &own, parts).await;
    Ok(Json(Why {
        order_id: own.order.id,
        saga_id: own.order.saga_id,
        correlation_id: own.order.correlation_id.clone(),
        status: status_of(own.order.state),
        finding,
    }))
}

/// The orders that an id means, the oldest first.
pub(super) async fn find(State(api): State<Api>, Path(id): Path<String>) -> Result<Json<Vec<Meant>>, Problem> {
    let found = api.follow.find(&id).await?;
    if found.is_empty() {
        return Err(unknown());
    }
    let meant = |row: OrderRow| Meant {
        order_id: row.id,
        saga_id: row.saga_id,
        correlation_id: row.correlation_id,
        status: status_of(row.state),
    };
    Ok(Json(found.into_iter().map(meant).collect()))
}

/// Read after the other parts: what they tell of may have moved the saga on.
async fn own(api: &Api, order: OrderRow) -> Result<Own, Failure> {
    let mut connection = api.pool.acquire().await?;
    let order = orders::find(&mut connection, order.id).await?.unwrap_or(order);
    let steps = steps::list(&mut connection, &[order.saga_id]).await?;
    let earlier = steps::list_earlier(&mut connection, order.saga_id).await?;
    Ok(Own { order, steps, earlier })
}

fn unknown() -> Problem {
    let detail = "no order, saga, correlation id or message is known by this id";
    Problem::not_found("order.not_found", detail)
}
