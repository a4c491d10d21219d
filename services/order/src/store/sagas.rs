//! The rows of `sagas`, together with what never changes about their orders.

use contracts::command::{Address, Line};
use contracts::money::Money;
use contracts::step::Step;
use messaging::{Failure, TraceContext};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::domain::{Saga, State};

/// How and where to an order travels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Shipping {
    pub(crate) service: String,
    #[serde(flatten)]
    pub(crate) address: Address,
}

/// A saga under its row lock, and the order's details that its commands need.
#[derive(Debug)]
pub(crate) struct Locked {
    pub(crate) id: Uuid,
    pub(crate) saga: Saga,
    pub(crate) reason_code: Option<String>,
    pub(crate) created_at: OffsetDateTime,
    pub(crate) order: OrderDetails,
}

/// What the saga's commands and events say about its order.
#[derive(Clone, Debug)]
pub(crate) struct OrderDetails {
    pub(crate) id: Uuid,
    pub(crate) correlation_id: String,
    pub(crate) trace: TraceContext,
    pub(crate) total: Money,
    pub(crate) payment_method: String,
    pub(crate) shipping: Shipping,
    pub(crate) lines: Vec<Line>,
}

/// Locks sagas in the order of their ids. An id that is nobody's is left out.
pub(crate) async fn lock(connection: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<Locked>, Failure> {
    let rows = sqlx::query!(
        r#"select s.id, s.state, s.step, s.has_settled, s.reason_code, s.created_at, o.id as order_id, o.correlation_id,
                  o.trace as "trace: Json<TraceContext>", o.total_amount, o.currency, o.payment_method,
                  o.shipping as "shipping: Json<Shipping>", o.lines as "lines: Json<Vec<Line>>"
           from sagas s join orders o on o.id = s.order_id
           where s.id = any($1) order by s.id for update of s"#,
        ids
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Locked {
                id: row.id,
                saga: Saga { state: state(&row.state, row.step.as_deref())?, has_settled: row.has_settled },
                reason_code: row.reason_code,
                created_at: row.created_at,
                order: OrderDetails {
                    id: row.order_id,
                    correlation_id: row.correlation_id,
                    trace: row.trace.0,
                    total: Money { amount: row.total_amount, currency: row.currency },
                    payment_method: row.payment_method,
                    shipping: row.shipping.0,
                    lines: row.lines.0,
                },
            })
        })
        .collect()
}

/// Sagas with an overdue step, the longest overdue first.
pub(crate) async fn list_overdue(connection: &mut PgConnection, limit: i64) -> Result<Vec<Uuid>, Failure> {
    let query = sqlx::query_scalar!(
        "select saga_id from saga_steps where status = 'asked' and deadline <= now() order by deadline limit $1",
        limit
    );
    Ok(query.fetch_all(connection).await?)
}

/// Locks those of these sagas that nobody else is looking at, in the order of their ids.
pub(crate) async fn lock_free(connection: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<Uuid>, Failure> {
    let query = sqlx::query_scalar!("select id from sagas where id = any($1) order by id for update skip locked", ids);
    Ok(query.fetch_all(connection).await?)
}

/// How many sagas that have not ended stand in one place.
pub(crate) struct Open {
    pub(crate) state: String,
    pub(crate) step: Option<String>,
    pub(crate) count: i64,
}

/// Sagas that have not ended, by where they stand; counted up to 100,000.
pub(crate) async fn count_open(connection: &mut PgConnection) -> Result<Vec<Open>, Failure> {
    let query = sqlx::query_as!(
        Open,
        r#"select state, step, count(*) as "count!"
           from (select state, step from sagas where ended_at is null limit 100000) as open group by state, step"#
    );
    Ok(query.fetch_all(connection).await?)
}

/// When the next deadline comes, in seconds from now; negative if it has come.
pub(crate) async fn next_deadline(connection: &mut PgConnection) -> Result<Option<f64>, Failure> {
    let query = sqlx::query_scalar!(
        r#"select extract(epoch from min(deadline) - now())::float8 from saga_steps where status = 'asked'"#
    );
    Ok(query.fetch_one(connection).await?)
}

/// The state that a row says. The table's constraints allow no other.
pub(crate) fn state(name: &str, step: Option<&str>) -> Result<State, Failure> {
    State::named(name, step.and_then(Step::named))
        .ok_or_else(|| Failure::permanent("saga.unknown_state", format!("the table has an unknown state {name}")))
}
