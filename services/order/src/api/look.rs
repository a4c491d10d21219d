//! `GET /orders` and `GET /orders/{id}`.

use axum::extract::State;
use chassis::{Json, Path, Problem, Query};
use uuid::Uuid;

use super::body::{IgnoredBody, ListQuery, OrderBody, Page, Reason, StepBody, Total, state_of, status_of};
use super::place::links;
use super::{Api, direction_name};
use crate::store::orders::{self, Filter, OrderRow};
use crate::store::steps::{self, StepRow};

/// One order: how far it is, and why.
#[utoipa::path(
    get, path = "/orders/{id}", params(("id" = Uuid, Path)),
    responses((status = 200, body = OrderBody), (status = 404, content_type = "application/problem+json"))
)]
pub(super) async fn get(State(api): State<Api>, Path(id): Path<Uuid>) -> Result<Json<OrderBody>, Problem> {
    let mut connection = api.pool.acquire().await?;
    let order = orders::find(&mut connection, id).await?.ok_or_else(not_found)?;
    let steps = steps::list(&mut connection, &[order.saga_id]).await?;
    let mut body = order_body(&api, order);
    body.steps = Some(steps.into_iter().map(step_body).collect());
    Ok(Json(body))
}

/// Orders, page by page: oldest first, or newest first.
#[utoipa::path(get, path = "/orders", params(ListQuery), responses((status = 200, body = Page)))]
pub(super) async fn list(State(api): State<Api>, Query(query): Query<ListQuery>) -> Result<Json<Page>, Problem> {
    let limit = query.limit.unwrap_or(20);
    let filter = Filter {
        states: query.status.as_deref().and_then(state_of).map(|state| vec![state.to_owned()]),
        correlation_id: query.correlation_id,
        after: query.after,
        newest_first: query.newest.unwrap_or(false),
        limit: limit + 1,
        ..Filter::default()
    };
    let mut rows = orders::list(&mut *api.pool.acquire().await?, &filter).await?;
    let has_more = rows.len() > usize::try_from(limit).unwrap_or(usize::MAX);
    if has_more {
        rows.pop();
    }
    let next = rows.last().filter(|_| has_more).map(|row| row.id);
    Ok(Json(Page { orders: rows.into_iter().map(|row| order_body(&api, row)).collect(), next }))
}

fn order_body(api: &Api, row: OrderRow) -> OrderBody {
    let trace_id = row.trace.trace_id();
    OrderBody {
        links: links(api, row.id, trace_id.as_deref()),
        order_id: row.id,
        saga_id: row.saga_id,
        correlation_id: row.correlation_id,
        trace_id,
        status: status_of(row.state),
        reason: row.reason.map(|(code, error_type)| Reason { code, error_type }),
        total: Total { amount: row.total.amount, currency: row.total.currency },
        created_at: row.created_at,
        steps: None,
    }
}

fn step_body(row: StepRow) -> StepBody {
    let ignored = row.ignored_answer.zip(row.ignored_kind);
    StepBody {
        step: row.step.name(),
        direction: direction_name(row.direction),
        status: row.status.name(),
        command_id: row.command_id,
        attempts: row.attempts,
        handler_attempts: row.handler_attempts,
        asked_at: row.asked_at,
        deadline: row.deadline,
        answered_at: row.answered_at,
        error: row.error_code,
        ignored: ignored.map(|(answer, kind)| IgnoredBody { answer, kind, count: row.ignored_count }),
    }
}

/// A missing order, and one that somebody else may see, look the same.
pub(super) fn not_found() -> Problem {
    Problem::not_found("order.not_found", "there is no such order")
}
