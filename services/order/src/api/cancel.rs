//! `POST /orders/{id}/cancel`: the customer does not want it any more. An unknown like any other: the step in flight
//! is undone, whatever became of it.

use axum::extract::State;
use axum::http::StatusCode;
use chassis::{Json, Path, Problem};
use messaging::{Cause, TraceContext, hold};
use opentelemetry::trace::TraceContextExt as _;
use serde::Serialize;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use utoipa::ToSchema;
use uuid::Uuid;

use super::body::status_of;
use super::look::not_found;
use super::{Api, describe};
use crate::domain::{Event, State as SagaState};
use crate::progress::{self, Became, Happening};
use crate::store::sagas::Locked;
use crate::store::{orders, sagas, steps};

/// What became of the wish.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cancelling {
    order_id: Uuid,
    status: &'static str,
}

/// Cancels an order. Only the first wish acts; a repeated one gets the same status code.
#[utoipa::path(
    post, path = "/orders/{id}/cancel", params(("id" = Uuid, Path)),
    responses(
        (status = 202, body = Cancelling),
        (status = 404, content_type = "application/problem+json"),
        (status = 409, description = "shipped or settled already", content_type = "application/problem+json"),
    )
)]
pub(super) async fn cancel(
    State(api): State<Api>,
    Path(id): Path<Uuid>,
) -> Result<(StatusCode, Json<Cancelling>), Problem> {
    let mut transaction = api.pool.begin().await?;
    let order = orders::find(&mut transaction, id).await?.ok_or_else(not_found)?;
    let mut locked = sagas::lock(&mut transaction, &[order.saga_id]).await?;
    let saga = locked.pop().ok_or_else(not_found)?;
    describe(&saga.order.correlation_id, saga.id, id);
    match saga.saga.state {
        SagaState::Completed => return Err(Problem::conflict("order.already_shipped", "the order has been shipped")),
        SagaState::Settled => return Err(Problem::conflict("order.settled", "the order was settled by a person")),
        SagaState::Running(_) | SagaState::Compensating(_) | SagaState::NeedsAttention(_) | SagaState::Cancelled => {}
    }
    let span = in_trace_of(&saga);
    let rows = steps::list(&mut transaction, &[saga.id]).await?;
    let cause = Cause {
        correlation_id: saga.order.correlation_id.clone(),
        causation_id: None,
        saga_id: Some(saga.id),
        trace: TraceContext::of_span(&span),
    };
    let happening = Happening { saga: &saga, event: Event::Cancel, cause, answer: None };
    let became = progress::advance(&mut transaction, &api.deadlines, &rows, vec![happening]).await?;
    hold::point("cancel.before_commit").await;
    // A crash before this line cancels nothing; after it, the undo is in the outbox.
    transaction.commit().await?;
    hold::point("cancel.committed").await;
    api.poke.poke();
    let state = match became.first() {
        Some(Became::Moved(transition)) => transition.saga.state,
        _ => saga.saga.state,
    };
    let status = status_of(state);
    span.record("outcome", status);
    tracing::info!(parent: &span, saga.id = %saga.id, order.id = %id, status, "the customer cancels");
    Ok((StatusCode::ACCEPTED, Json(Cancelling { order_id: id, status })))
}

/// The undo stays in the trace of its order, as retries and deadlines do; the request has a trace of its own, and the
/// two are linked.
fn in_trace_of(saga: &Locked) -> Span {
    let span = tracing::info_span!(
        parent: None,
        "cancel order",
        correlation.id = saga.order.correlation_id,
        saga.id = %saga.id,
        order.id = %saga.order.id,
        outcome = tracing::field::Empty,
    );
    let _: Result<(), _> = span.set_parent(saga.order.trace.restore());
    let request = Span::current();
    span.add_link(request.context().span().span_context().clone());
    request.add_link(span.context().span().span_context().clone());
    span
}
