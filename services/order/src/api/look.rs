//! `GET /orders`, `GET /orders/{id}` and `GET /orders/{id}/timeline`.

use axum::extract::State;
use chassis::{Json, Path, Problem, Query};
use contracts::step::{Direction, Step};
use time::OffsetDateTime;
use uuid::Uuid;

use super::body::{
    Entry, IgnoredBody, ListQuery, OrderBody, Page, Reason, StepBody, Timeline, Total, state_of, status_of,
};
use super::place::links;
use super::{Api, direction_name};
use crate::domain::Status;
use crate::store::orders::{self, Filter, Happened, OrderRow};
use crate::store::steps::{self, Ended, StepRow};

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

/// Orders, oldest first, page by page.
#[utoipa::path(get, path = "/orders", params(ListQuery), responses((status = 200, body = Page)))]
pub(super) async fn list(State(api): State<Api>, Query(query): Query<ListQuery>) -> Result<Json<Page>, Problem> {
    let limit = query.limit.unwrap_or(20);
    let filter = Filter {
        id: None,
        states: query.status.as_deref().and_then(state_of).map(|state| vec![state.to_owned()]),
        correlation_id: query.correlation_id,
        after: query.after,
        limit: limit + 1,
    };
    let mut rows = orders::list(&mut *api.pool.acquire().await?, &filter).await?;
    let has_more = rows.len() > usize::try_from(limit).unwrap_or(usize::MAX);
    if has_more {
        rows.pop();
    }
    let next = rows.last().filter(|_| has_more).map(|row| row.id);
    Ok(Json(Page { orders: rows.into_iter().map(|row| order_body(&api, row)).collect(), next }))
}

/// Everything that happened to an order, as far as this service knows, in order.
#[utoipa::path(
    get, path = "/orders/{id}/timeline", params(("id" = Uuid, Path)),
    responses((status = 200, body = Timeline), (status = 404, content_type = "application/problem+json"))
)]
pub(super) async fn timeline(State(api): State<Api>, Path(id): Path<Uuid>) -> Result<Json<Timeline>, Problem> {
    let mut connection = api.pool.acquire().await?;
    let order = orders::find(&mut connection, id).await?.ok_or_else(not_found)?;
    let steps = steps::list(&mut connection, &[order.saga_id]).await?;
    let earlier = steps::list_earlier(&mut connection, order.saga_id).await?;
    let history = orders::list_history(&mut connection, order.saga_id).await?;
    let placed = Entry {
        at: order.created_at,
        kind: "placed".to_owned(),
        what: "order".to_owned(),
        event_id: None,
        detail: None,
    };
    let mut entries = vec![placed];
    entries.extend(history.into_iter().map(|Happened { at, kind, what, event_id, detail }| Entry {
        at,
        kind,
        what,
        event_id,
        detail,
    }));
    entries.extend(cancelled_at(&steps, &earlier).map(|at| Entry {
        at,
        kind: "cancelled".to_owned(),
        what: "order".to_owned(),
        event_id: None,
        detail: Some("by the customer".to_owned()),
    }));
    for row in steps {
        let before = ends_of(&earlier, row.step, row.direction);
        entries.extend(step_entries(row, before));
    }
    entries.sort_by_key(|entry| (entry.at, rank(&entry.kind)));
    Ok(Json(Timeline {
        order_id: order.id,
        saga_id: order.saga_id,
        correlation_id: order.correlation_id,
        trace_id: order.trace.trace_id(),
        status: status_of(order.state),
        entries,
    }))
}

/// What one transaction did happened at one time: its cause comes first.
fn rank(kind: &str) -> usize {
    ["placed", "received", "answered", "overdue", "cancelled", "operator", "asked", "written", "published"]
        .iter()
        .position(|known| *known == kind)
        .unwrap_or_default()
}

/// How a do or undo ended before.
fn ends_of(earlier: &[(Step, Direction, Vec<Ended>)], step: Step, direction: Direction) -> &[Ended] {
    let found = earlier.iter().find(|(known, way, _)| (*known, *way) == (step, direction));
    found.map(|(_, _, ended)| ended.as_slice()).unwrap_or_default()
}

/// When the customer cancelled: the undo of the step that was abandoned was asked in the same transaction.
fn cancelled_at(steps: &[StepRow], earlier: &[(Step, Direction, Vec<Ended>)]) -> Option<OffsetDateTime> {
    let was_abandoned = |row: &&StepRow| {
        let before = ends_of(earlier, row.step, row.direction).iter().map(|ended| ended.status.as_str());
        before.chain([row.status.name()]).any(|name| name == Status::Abandoned.name())
    };
    let abandoned = steps.iter().find(was_abandoned)?.step;
    let undo = steps.iter().find(|row| (row.step, row.direction) == (abandoned, Direction::Undo))?;
    Some(ends_of(earlier, abandoned, Direction::Undo).first().map_or(undo.asked_at, |first| first.asked_at))
}

/// What was asked, again and again, and how it ended each time.
fn step_entries(row: StepRow, earlier: &[Ended]) -> Vec<Entry> {
    let what = row.step.command(row.direction);
    let now = Ended {
        attempts: row.attempts,
        command_id: row.command_id,
        asked_at: row.asked_at,
        deadline: row.deadline,
        answered_at: row.answered_at,
        status: row.status.name().to_owned(),
        error_code: row.error_code,
    };
    let mut entries = Vec::new();
    let mut attempt = 0;
    for ended in earlier.iter().chain([&now]) {
        // One attempt may end twice: overdue, and answered after all.
        if ended.attempts != attempt {
            attempt = ended.attempts;
            entries.push(asked(what, ended));
        }
        entries.extend(end(what, ended));
    }
    entries
}

fn asked(what: &str, ended: &Ended) -> Entry {
    Entry {
        at: ended.asked_at,
        kind: "asked".to_owned(),
        what: what.to_owned(),
        event_id: Some(ended.command_id),
        detail: Some(format!("attempt {}", ended.attempts)),
    }
}

fn end(what: &str, ended: &Ended) -> Option<Entry> {
    let name = ended.status.as_str();
    let (at, kind, detail) = match (Status::named(name)?, ended.answered_at) {
        (Status::Overdue, _) => (ended.deadline, "overdue", "no answer in its time".to_owned()),
        // What a person accepted was not answered: how it ended before is among the earlier ends.
        (Status::Settled, _) | (_, None) => return None,
        (_, Some(at)) => match &ended.error_code {
            Some(code) => (at, "answered", format!("{name} ({code})")),
            None => (at, "answered", name.to_owned()),
        },
    };
    Some(Entry { at, kind: kind.to_owned(), what: what.to_owned(), event_id: None, detail: Some(detail) })
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
