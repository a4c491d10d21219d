//! What operators can do with a saga: retry or settle an undo that waits for a person, or cancel an order and have it
//! undone. Each verb has a dry run, needs a reason, and is written down in the transaction that does it.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::{get, post};
use chassis::{Acting, Json, Path, Problem, Query, printable};
use contracts::step::{Direction, Step};
use garde::Validate;
use messaging::{Cause, hold, operate};
use opentelemetry::trace::TraceContextExt as _;
use serde::{Deserialize, Serialize};
use serde_json::json;
use time::OffsetDateTime;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use uuid::Uuid;

use super::body::status_of;
use super::{Api, describe, follow};
use crate::domain::{self, Event, State as SagaState, Status};
use crate::progress::{self, Happening};
use crate::store::orders::{self, Filter};
use crate::store::steps::StepRow;
use crate::store::{sagas, steps};

/// Which step, why, who, and whether only to say what would happen. With the step in it, a request that is repeated
/// after its answer was lost cannot hit the next step that waits.
#[derive(Debug, Deserialize, Validate)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Act {
    #[garde(skip)]
    step: Step,
    #[garde(length(chars, min = 3, max = 500), custom(printable))]
    reason: String,
    #[garde(inner(length(chars, min = 1, max = 64)))]
    actor: Option<String>,
    #[serde(default)]
    #[garde(skip)]
    dry_run: bool,
}

/// What an act does, or would do.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Acted {
    saga_id: Uuid,
    order_id: Uuid,
    dry_run: bool,
    /// Whether it was done before: nothing is done again.
    already: bool,
    /// What is known of the undo's last attempt: `refused` (nothing was given back), `unanswered` (it may yet take
    /// effect).
    #[serde(skip_serializing_if = "Option::is_none")]
    last_attempt: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_code: Option<String>,
    /// The command that is sent, if one is.
    command: Option<&'static str>,
    /// The event that is told, if one is.
    event: Option<&'static str>,
    status: &'static str,
}

/// Which sagas to list.
#[derive(Debug, Deserialize, Validate)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SagasQuery {
    #[garde(skip)]
    state: Option<StateName>,
    #[garde(skip)]
    step: Option<Step>,
    #[garde(inner(length(chars, min = 1, max = 128), custom(printable)))]
    correlation_id: Option<String>,
    /// Placed longer ago than this, in seconds.
    #[garde(inner(range(max = 315_360_000)))]
    older_than: Option<u32>,
    #[garde(skip)]
    after: Option<Uuid>,
    #[garde(inner(range(min = 1, max = 100)))]
    limit: Option<i64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StateName {
    Running,
    Compensating,
    NeedsAttention,
    Completed,
    Cancelled,
    Settled,
}

impl StateName {
    fn name(self) -> &'static str {
        match self {
            StateName::Running => "running",
            StateName::Compensating => "compensating",
            StateName::NeedsAttention => "needs_attention",
            StateName::Completed => "completed",
            StateName::Cancelled => "cancelled",
            StateName::Settled => "settled",
        }
    }
}

/// One saga in a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SagaLine {
    saga_id: Uuid,
    order_id: Uuid,
    correlation_id: String,
    state: &'static str,
    step: Option<&'static str>,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
}

impl Api {
    /// The routes for operators.
    pub(crate) fn verbs(self) -> Router {
        Router::new()
            .route("/why/{id}", get(follow::why))
            .route("/orders/{id}", get(follow::find))
            .route("/timeline/{id}", get(follow::timeline_for_operators))
            .route("/sagas", get(list))
            .route("/sagas/{id}/retry", post(retry))
            .route("/sagas/{id}/settle", post(settle))
            .route("/sagas/{id}/cancel", post(cancel))
            .with_state(self)
    }
}

async fn list(State(api): State<Api>, Query(query): Query<SagasQuery>) -> Result<Json<Vec<SagaLine>>, Problem> {
    let filter = Filter {
        states: query.state.map(|state| vec![state.name().to_owned()]),
        step: query.step.map(Step::name),
        correlation_id: query.correlation_id,
        older_than: query.older_than.map(|seconds| Duration::from_secs(seconds.into())),
        after: query.after,
        limit: query.limit.unwrap_or(20),
        ..Filter::default()
    };
    let rows = orders::list(&mut *api.pool.acquire().await?, &filter).await?;
    let line = |row: orders::OrderRow| {
        let (state, step) = row.state.names();
        SagaLine {
            saga_id: row.saga_id,
            order_id: row.id,
            correlation_id: row.correlation_id,
            state,
            step: step.map(Step::name),
            created_at: row.created_at,
        }
    };
    Ok(Json(rows.into_iter().map(line).collect()))
}

async fn retry(State(api): State<Api>, Path(id): Path<Uuid>, Json(act): Json<Act>) -> Result<Json<Acted>, Problem> {
    perform(&api, id, Some(act.step), &act.as_act(), "retry", Event::Retry).await
}

async fn settle(State(api): State<Api>, Path(id): Path<Uuid>, Json(act): Json<Act>) -> Result<Json<Acted>, Problem> {
    perform(&api, id, Some(act.step), &act.as_act(), "settle", Event::Settle).await
}

async fn cancel(State(api): State<Api>, Path(id): Path<Uuid>, Json(act): Json<Acting>) -> Result<Json<Acted>, Problem> {
    perform(&api, id, None, &act.act(), "cancel", Event::Cancel).await
}

/// `at` is the step whose undo waits for a person; to cancel, none has to.
async fn perform(
    api: &Api,
    id: Uuid,
    at: Option<Step>,
    act: &operate::Act,
    verb: &str,
    event: Event,
) -> Result<Json<Acted>, Problem> {
    let mut transaction = api.pool.begin().await?;
    let mut locked = sagas::lock(&mut transaction, &[id]).await?;
    let saga = locked.pop().ok_or_else(|| Problem::not_found("saga.not_found", "there is no such saga"))?;
    describe(&saga.order.correlation_id, id, saga.order.id);
    let rows = steps::list(&mut transaction, &[id]).await?;
    let undo = at.and_then(|at| rows.iter().find(|row| row.step == at && row.direction == Direction::Undo));
    let told = |already, transition: Option<&domain::Transition>| Acted {
        saga_id: id,
        order_id: saga.order.id,
        dry_run: act.is_dry_run,
        already,
        last_attempt: at.filter(|_| !already).map(|_| last_attempt(undo)),
        last_code: undo.filter(|_| !already).and_then(|row| row.error_code.clone()),
        command: transition.and_then(|to| to.command).map(|(step, direction)| step.command(direction)),
        event: transition.and_then(|to| to.event).map(|event| event.name()),
        status: status_of(transition.map_or(saga.saga.state, |to| to.saga.state)),
    };
    let is_being_undone =
        matches!(saga.saga.state, SagaState::Compensating(_) | SagaState::NeedsAttention(_) | SagaState::Cancelled);
    let already = match event {
        Event::Settle => undo.is_some_and(|row| row.status == Status::Settled),
        Event::Cancel => is_being_undone,
        _ => false,
    };
    if already {
        return Ok(Json(told(true, None)));
    }
    let is_at = at.is_none_or(|at| saga.saga.state == SagaState::NeedsAttention(at));
    let Some(transition) = domain::transition(saga.saga, event).filter(|_| is_at) else {
        return Err(match at {
            Some(at) => {
                let detail = format!("the undo of {} does not wait for a person", at.name());
                Problem::conflict("saga.not_waiting", detail)
            }
            None => Problem::conflict("saga.ended", "the order is shipped or settled: nothing can be cancelled"),
        });
    };
    let acted = told(false, Some(&transition));
    if act.is_dry_run {
        return Ok(Json(acted));
    }
    // An operator's act has a trace of its own, linked to the order's.
    let span = Span::current();
    span.add_link(saga.order.trace.restore().span().span_context().clone());
    let cause = Cause::new(saga.order.correlation_id.clone()).within_saga(id);
    let happening = Happening { saga: &saga, event, cause, answer: None };
    progress::advance(&mut transaction, &api.deadlines, &rows, vec![happening]).await?;
    let step = at.map(Step::name);
    let outcome = json!({"step": step, "command": acted.command, "event": acted.event, "status": acted.status});
    let entry = operate::Entry { target: id.to_string(), saga_id: Some(id), outcome };
    operate::record(&mut transaction, verb, act, &[entry]).await?;
    hold::point("operator.before_commit").await;
    // A crash before this line leaves the saga as it was; after it, act and command are both there.
    transaction.commit().await?;
    hold::point("operator.committed").await;
    api.poke.poke();
    // Who and why stand in the table, behind the token: people write names there.
    tracing::warn!(step.name = step, status = acted.status, "an operator chose to {verb}");
    Ok(Json(acted))
}

impl Act {
    fn as_act(&self) -> operate::Act {
        let actor = self.actor.clone().unwrap_or_else(|| "operator".to_owned());
        operate::Act { actor, reason: self.reason.clone(), is_dry_run: self.dry_run }
    }
}

fn last_attempt(undo: Option<&StepRow>) -> &'static str {
    match undo.map(|row| row.status) {
        Some(Status::Failed) => "refused",
        Some(Status::Overdue) => "unanswered",
        _ => "unknown",
    }
}
