//! What operators can do with a saga that waits for a person: retry its undo, or settle it. Each verb has a dry run,
//! needs a reason, and is written down in the transaction that does it.

use axum::Router;
use axum::extract::State;
use axum::routing::{get, post};
use chassis::{Json, Path, Problem, Query};
use contracts::step::{Direction, Step};
use garde::Validate;
use messaging::{Cause, hold};
use opentelemetry::trace::TraceContextExt as _;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use uuid::Uuid;

use super::body::{printable, status_of};
use super::{Api, describe, follow};
use crate::domain::{self, Event, State as SagaState, Status};
use crate::progress::{self, Happening};
use crate::store::orders::{self, Filter};
use crate::store::steps::StepRow;
use crate::store::{actions, sagas, steps};

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
    /// Whether the step was settled before: nothing is done again.
    already: bool,
    /// What is known of the undo's last attempt: `refused` (nothing was given back), `unanswered` (it may yet take
    /// effect).
    last_attempt: &'static str,
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
            .with_state(self)
    }
}

async fn list(State(api): State<Api>, Query(query): Query<SagasQuery>) -> Result<Json<Vec<SagaLine>>, Problem> {
    let filter = Filter {
        states: query.state.map(|state| vec![state.name().to_owned()]),
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
            step: step.map(|step| step.name()),
        }
    };
    Ok(Json(rows.into_iter().map(line).collect()))
}

async fn retry(State(api): State<Api>, Path(id): Path<Uuid>, Json(act): Json<Act>) -> Result<Json<Acted>, Problem> {
    perform(&api, id, act, "retry", Event::Retry).await
}

async fn settle(State(api): State<Api>, Path(id): Path<Uuid>, Json(act): Json<Act>) -> Result<Json<Acted>, Problem> {
    perform(&api, id, act, "settle", Event::Settle).await
}

async fn perform(api: &Api, id: Uuid, act: Act, verb: &str, event: Event) -> Result<Json<Acted>, Problem> {
    let mut transaction = api.pool.begin().await?;
    let mut locked = sagas::lock(&mut transaction, &[id]).await?;
    let saga = locked.pop().ok_or_else(|| Problem::not_found("saga.not_found", "there is no such saga"))?;
    describe(&saga.order.correlation_id, id, saga.order.id);
    let rows = steps::list(&mut transaction, &[id]).await?;
    let at = act.step;
    let undo = rows.iter().find(|row| row.step == at && row.direction == Direction::Undo);
    if event == Event::Settle && undo.is_some_and(|row| row.status == Status::Settled) {
        return Ok(Json(Acted {
            saga_id: id,
            order_id: saga.order.id,
            dry_run: act.dry_run,
            already: true,
            last_attempt: last_attempt(undo),
            last_code: undo.and_then(|row| row.error_code.clone()),
            command: None,
            event: None,
            status: status_of(saga.saga.state),
        }));
    }
    let transition = match domain::transition(saga.saga, event) {
        Some(transition) if saga.saga.state == SagaState::NeedsAttention(at) => transition,
        _ => {
            let detail = format!("the undo of {} does not wait for a person", at.name());
            return Err(Problem::conflict("saga.not_waiting", detail));
        }
    };
    let acted = Acted {
        saga_id: id,
        order_id: saga.order.id,
        dry_run: act.dry_run,
        already: false,
        last_attempt: last_attempt(undo),
        last_code: undo.and_then(|row| row.error_code.clone()),
        command: transition.command.map(|(step, direction)| step.command(direction)),
        event: transition.event.map(|event| event.name()),
        status: status_of(transition.saga.state),
    };
    if act.dry_run {
        return Ok(Json(acted));
    }
    // An operator's act has a trace of its own, linked to the order's.
    let span = Span::current();
    span.add_link(saga.order.trace.restore().span().span_context().clone());
    let cause = Cause::new(saga.order.correlation_id.clone()).within_saga(id);
    let happening = Happening { saga: &saga, event, cause, answer: None };
    progress::advance(&mut transaction, &api.deadlines, &rows, vec![happening]).await?;
    let outcome = json!({"step": at.name(), "command": acted.command, "event": acted.event, "status": acted.status});
    let actor = act.actor.as_deref().unwrap_or("operator");
    actions::insert(&mut transaction, actor, verb, id, &act.reason, &outcome).await?;
    hold::point("operator.before_commit").await;
    // A crash before this line leaves the saga waiting; after it, act and command are both there.
    transaction.commit().await?;
    hold::point("operator.committed").await;
    api.poke.poke();
    // Who and why stand in the table, behind the token: people write names there.
    tracing::warn!(step.name = at.name(), status = acted.status, "an operator chose to {verb} the undo");
    Ok(Json(acted))
}

fn last_attempt(undo: Option<&StepRow>) -> &'static str {
    match undo.map(|row| row.status) {
        Some(Status::Failed) => "refused",
        Some(Status::Overdue) => "unanswered",
        _ => "unknown",
    }
}
