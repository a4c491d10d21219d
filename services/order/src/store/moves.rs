//! What a saga's move writes, over all tables in one statement: each round trip to the database is time that the
//! customer waits and the saga stays locked.

use std::time::Duration;

use contracts::command::Line;
use contracts::step::{Direction, Step};
use messaging::{Cause, Failure, TraceContext};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::sagas::{OrderDetails, Shipping};
use crate::domain::{ErrorType, Saga, Status};

/// Sagas that move on. Each do and undo stands in one of the lists at most.
#[derive(Default)]
pub(crate) struct Moves {
    pub(crate) changes: Vec<Change>,
    pub(crate) marks: Vec<Marked>,
    pub(crate) asks: Vec<Ask>,
}

/// What a saga is after a transition.
pub(crate) struct Change {
    pub(crate) id: Uuid,
    pub(crate) saga: Saga,
    /// Set once, when the saga leaves `running`.
    pub(crate) reason: Option<(String, ErrorType)>,
}

/// A status that a do or undo has come to.
pub(crate) struct Marked {
    pub(crate) saga_id: Uuid,
    pub(crate) step: Step,
    pub(crate) direction: Direction,
    pub(crate) status: Status,
    /// By an answer, not by a deadline or a person.
    pub(crate) is_answered: bool,
    pub(crate) code: Option<String>,
    pub(crate) handler_attempts: Option<i32>,
}

/// A command that is sent.
pub(crate) struct Ask {
    pub(crate) saga_id: Uuid,
    pub(crate) step: Step,
    pub(crate) direction: Direction,
    pub(crate) command_id: Uuid,
    pub(crate) time: Duration,
}

/// An order that begins.
pub(crate) struct Start<'a> {
    pub(crate) saga_id: Uuid,
    pub(crate) customer_id: &'a str,
    pub(crate) order: OrderDetails,
    pub(crate) cause: Cause,
}

/// New orders with their sagas, all in this state, and for each the first step that is asked.
pub(crate) async fn begin(
    connection: &mut PgConnection,
    starts: &[Start<'_>],
    saga: Saga,
    asks: &[Ask],
) -> Result<(), Failure> {
    if starts.is_empty() {
        return Ok(());
    }
    let (state, step) = saga.state.names();
    let orders = || starts.iter().map(|start| &start.order);
    sqlx::query!(
        r#"with placed as (
               insert into orders (id, saga_id, customer_id, correlation_id, trace, total_amount, currency,
                                   payment_method, shipping, lines)
               select * from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::jsonb[], $6::bigint[],
                                    $7::text[], $8::text[], $9::jsonb[], $10::jsonb[])),
           begun as (
               insert into sagas (id, order_id, state, step)
               select id, order_id, $11, $12 from unnest($2::uuid[], $1::uuid[]) as s(id, order_id))
           insert into saga_steps (saga_id, step, direction, status, command_id, deadline)
           select saga_id, step, direction, 'asked', command_id, now() + time * interval '1 second'
           from unnest($13::uuid[], $14::text[], $15::text[], $16::uuid[], $17::float8[])
                as a(saga_id, step, direction, command_id, time)"#,
        &orders().map(|order| order.id).collect::<Vec<_>>(),
        &starts.iter().map(|start| start.saga_id).collect::<Vec<_>>(),
        &starts.iter().map(|start| start.customer_id.to_owned()).collect::<Vec<_>>(),
        &orders().map(|order| order.correlation_id.clone()).collect::<Vec<_>>(),
        &orders().map(|order| Json(&order.trace)).collect::<Vec<_>>() as &[Json<&TraceContext>],
        &orders().map(|order| order.total.amount).collect::<Vec<_>>(),
        &orders().map(|order| order.total.currency.clone()).collect::<Vec<_>>(),
        &orders().map(|order| order.payment_method.clone()).collect::<Vec<_>>(),
        &orders().map(|order| Json(&order.shipping)).collect::<Vec<_>>() as &[Json<&Shipping>],
        &orders().map(|order| Json(&order.lines)).collect::<Vec<_>>() as &[Json<&Vec<Line>>],
        state,
        step.map(Step::name),
        &asks.iter().map(|a| a.saga_id).collect::<Vec<_>>(),
        &asks.iter().map(|a| a.step.name().to_owned()).collect::<Vec<_>>(),
        &asks.iter().map(|a| a.direction.name().to_owned()).collect::<Vec<_>>(),
        &asks.iter().map(|a| a.command_id).collect::<Vec<_>>(),
        &asks.iter().map(|a| a.time.as_secs_f64()).collect::<Vec<_>>()
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Saves moves: what the sagas are now, how their open steps ended, and what is asked next. A do or undo that is asked
/// again counts an attempt and gets a new deadline.
pub(crate) async fn save(connection: &mut PgConnection, moves: &Moves) -> Result<(), Failure> {
    let Moves { changes, marks, asks } = moves;
    if changes.is_empty() && marks.is_empty() && asks.is_empty() {
        return Ok(());
    }
    let states: Vec<_> = changes.iter().map(|change| change.saga.state.names()).collect();
    let reasons: Vec<_> = changes.iter().map(|change| change.reason.clone().unzip()).collect();
    sqlx::query!(
        r#"with saved as (
               update sagas s
               set state = c.state, step = c.step, has_settled = c.has_settled, updated_at = now(),
                   reason_code = coalesce(s.reason_code, c.reason_code),
                   reason_error_type = coalesce(s.reason_error_type, c.reason_error_type),
                   ended_at = case when c.is_final then now() end
               from unnest($1::uuid[], $2::text[], $3::text[], $4::boolean[], $5::text[], $6::text[], $7::boolean[])
                    as c(id, state, step, has_settled, reason_code, reason_error_type, is_final)
               where s.id = c.id),
           marked as (
               update saga_steps t
               set status = m.status, error_code = m.code, handler_attempts = m.handler_attempts,
                   earlier = case when t.status = 'asked' then t.earlier else t.earlier || jsonb_build_object('attempts', t.attempts, 'commandId', t.command_id, 'askedAt', t.asked_at,
                                          'deadline', t.deadline, 'answeredAt', t.answered_at, 'status', t.status,
                                          'errorCode', t.error_code) end,
                   answered_at = case when m.is_answered then now() else t.answered_at end
               from unnest($8::uuid[], $9::text[], $10::text[], $11::text[], $12::boolean[], $13::text[], $14::int[])
                    as m(saga_id, step, direction, status, is_answered, code, handler_attempts)
               where t.saga_id = m.saga_id and t.step = m.step and t.direction = m.direction)
           insert into saga_steps as t (saga_id, step, direction, status, command_id, deadline)
           select saga_id, step, direction, 'asked', command_id, now() + time * interval '1 second'
           from unnest($15::uuid[], $16::text[], $17::text[], $18::uuid[], $19::float8[])
                as a(saga_id, step, direction, command_id, time)
           on conflict on constraint saga_steps_are_unique do update
           set earlier = t.earlier || jsonb_build_object('attempts', t.attempts, 'commandId', t.command_id, 'askedAt', t.asked_at,
                                          'deadline', t.deadline, 'answeredAt', t.answered_at, 'status', t.status,
                                          'errorCode', t.error_code),
               status = 'asked', command_id = excluded.command_id, attempts = t.attempts + 1, asked_at = now(),
               deadline = excluded.deadline, answered_at = null, error_code = null, handler_attempts = null"#,
        &changes.iter().map(|c| c.id).collect::<Vec<_>>(),
        &states.iter().map(|(state, _)| (*state).to_owned()).collect::<Vec<_>>(),
        &states.iter().map(|(_, step)| step.map(|s| s.name().to_owned())).collect::<Vec<_>>() as &[Option<String>],
        &changes.iter().map(|c| c.saga.has_settled).collect::<Vec<_>>(),
        &reasons.iter().map(|(code, _)| code.clone()).collect::<Vec<_>>() as &[Option<String>],
        &reasons.iter().map(|(_, kind)| kind.map(|k| k.name().to_owned())).collect::<Vec<_>>() as &[Option<String>],
        &changes.iter().map(|c| c.saga.state.is_final()).collect::<Vec<_>>(),
        &marks.iter().map(|m| m.saga_id).collect::<Vec<_>>(),
        &marks.iter().map(|m| m.step.name().to_owned()).collect::<Vec<_>>(),
        &marks.iter().map(|m| m.direction.name().to_owned()).collect::<Vec<_>>(),
        &marks.iter().map(|m| m.status.name().to_owned()).collect::<Vec<_>>(),
        &marks.iter().map(|m| m.is_answered).collect::<Vec<_>>(),
        &marks.iter().map(|m| m.code.clone()).collect::<Vec<_>>() as &[Option<String>],
        &marks.iter().map(|m| m.handler_attempts).collect::<Vec<_>>() as &[Option<i32>],
        &asks.iter().map(|a| a.saga_id).collect::<Vec<_>>(),
        &asks.iter().map(|a| a.step.name().to_owned()).collect::<Vec<_>>(),
        &asks.iter().map(|a| a.direction.name().to_owned()).collect::<Vec<_>>(),
        &asks.iter().map(|a| a.command_id).collect::<Vec<_>>(),
        &asks.iter().map(|a| a.time.as_secs_f64()).collect::<Vec<_>>()
    )
    .execute(connection)
    .await?;
    Ok(())
}
