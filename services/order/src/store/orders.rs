//! The rows of `orders` and `products`.

use std::time::Duration;

use contracts::money::Money;
use messaging::{Failure, TraceContext};
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use super::sagas::state;
use crate::domain::State;
use crate::domain::cart::Product;

/// An order with what its saga says.
pub(crate) struct OrderRow {
    pub(crate) id: Uuid,
    pub(crate) saga_id: Uuid,
    pub(crate) correlation_id: String,
    pub(crate) trace: TraceContext,
    pub(crate) total: Money,
    pub(crate) state: State,
    pub(crate) reason: Option<(String, String)>,
    pub(crate) created_at: OffsetDateTime,
    /// When its saga ended.
    pub(crate) ended_at: Option<OffsetDateTime>,
}

/// Which orders to list.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub(crate) id: Option<Uuid>,
    pub(crate) saga_id: Option<Uuid>,
    pub(crate) states: Option<Vec<String>>,
    /// The step that its saga is at.
    pub(crate) step: Option<&'static str>,
    /// Only what was placed longer ago than this.
    pub(crate) older_than: Option<Duration>,
    pub(crate) correlation_id: Option<String>,
    /// Only those that come after this one, in the order of the list.
    pub(crate) after: Option<Uuid>,
    /// From the newest to the oldest.
    pub(crate) newest_first: bool,
    pub(crate) limit: i64,
}

/// The products with these names.
pub(crate) async fn list_products(connection: &mut PgConnection, skus: &[String]) -> Result<Vec<Product>, Failure> {
    let query = sqlx::query_as!(Product, "select sku, unit_amount, currency from products where sku = any($1)", skus);
    Ok(query.fetch_all(connection).await?)
}

/// Orders in the order of their ids, which rise with time: a page never skips what was there before.
pub(crate) async fn list(connection: &mut PgConnection, filter: &Filter) -> Result<Vec<OrderRow>, Failure> {
    let rows = sqlx::query!(
        r#"select o.id as "id!", o.saga_id as "saga_id!", o.correlation_id as "correlation_id!",
                  o.trace as "trace!: Json<TraceContext>", o.total_amount as "total_amount!",
                  o.currency as "currency!", s.state as "state!", s.step, s.reason_code, s.reason_error_type,
                  o.created_at as "created_at!", s.ended_at
           from (
               (select o.* from orders o join sagas s on s.order_id = o.id
                where not $7 and ($1::uuid is null or o.id = $1) and ($2::text[] is null or s.state = any($2))
                  and ($3::text is null or o.correlation_id = $3) and ($4::uuid is null or o.id > $4)
                  and ($6::uuid is null or o.saga_id = $6) and ($8::text is null or s.step = $8)
                  and ($9::float8 is null or o.created_at < now() - $9 * interval '1 second')
                order by o.id limit $5)
               union all
               (select o.* from orders o join sagas s on s.order_id = o.id
                where $7 and ($1::uuid is null or o.id = $1) and ($2::text[] is null or s.state = any($2))
                  and ($3::text is null or o.correlation_id = $3) and ($4::uuid is null or o.id < $4)
                  and ($6::uuid is null or o.saga_id = $6) and ($8::text is null or s.step = $8)
                  and ($9::float8 is null or o.created_at < now() - $9 * interval '1 second')
                order by o.id desc limit $5)) as o
           join sagas s on s.order_id = o.id
           order by case when $7 then null else o.id end, o.id desc"#,
        filter.id,
        filter.states.as_deref(),
        filter.correlation_id,
        filter.after,
        filter.limit,
        filter.saga_id,
        filter.newest_first,
        filter.step,
        filter.older_than.map(|age| age.as_secs_f64())
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(OrderRow {
                id: row.id,
                saga_id: row.saga_id,
                correlation_id: row.correlation_id,
                trace: row.trace.0,
                total: Money { amount: row.total_amount, currency: row.currency },
                state: state(&row.state, row.step.as_deref())?,
                reason: row.reason_code.zip(row.reason_error_type),
                created_at: row.created_at,
                ended_at: row.ended_at,
            })
        })
        .collect()
}

/// One order.
pub(crate) async fn find(connection: &mut PgConnection, id: Uuid) -> Result<Option<OrderRow>, Failure> {
    let filter = Filter { id: Some(id), limit: 1, ..Filter::default() };
    Ok(list(connection, &filter).await?.pop())
}
