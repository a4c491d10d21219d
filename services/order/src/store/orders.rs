//! The rows of `orders` and `products`.

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
}

/// Which orders to list.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub(crate) id: Option<Uuid>,
    pub(crate) states: Option<Vec<String>>,
    pub(crate) correlation_id: Option<String>,
    pub(crate) after: Option<Uuid>,
    pub(crate) limit: i64,
}

/// The products with these names.
pub(crate) async fn list_products(connection: &mut PgConnection, skus: &[String]) -> Result<Vec<Product>, Failure> {
    let query = sqlx::query_as!(Product, "select sku, unit_amount, currency from products where sku = any($1)", skus);
    Ok(query.fetch_all(connection).await?)
}

/// Orders in the order of their ids, newest last. Ids rise with time, so a page never skips what was there before.
pub(crate) async fn list(connection: &mut PgConnection, filter: &Filter) -> Result<Vec<OrderRow>, Failure> {
    let rows = sqlx::query!(
        r#"select o.id, o.saga_id, o.correlation_id, o.trace as "trace: Json<TraceContext>", o.total_amount,
                  o.currency, s.state, s.step, s.reason_code, s.reason_error_type, o.created_at
           from orders o join sagas s on s.order_id = o.id
           where ($1::uuid is null or o.id = $1) and ($2::text[] is null or s.state = any($2))
             and ($3::text is null or o.correlation_id = $3) and ($4::uuid is null or o.id > $4)
           order by o.id limit $5"#,
        filter.id,
        filter.states.as_deref(),
        filter.correlation_id,
        filter.after,
        filter.limit
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
            })
        })
        .collect()
}

/// One order.
pub(crate) async fn find(connection: &mut PgConnection, id: Uuid) -> Result<Option<OrderRow>, Failure> {
    let filter = Filter { id: Some(id), limit: 1, ..Filter::default() };
    Ok(list(connection, &filter).await?.pop())
}

/// Something that happened to a saga.
pub(crate) struct Happened {
    pub(crate) at: OffsetDateTime,
    pub(crate) kind: String,
    pub(crate) what: String,
    pub(crate) event_id: Option<Uuid>,
    pub(crate) detail: Option<String>,
}

/// Every message that a saga sent and received, and what operators did to it. Nothing here is ever written over.
pub(crate) async fn list_history(connection: &mut PgConnection, saga_id: Uuid) -> Result<Vec<Happened>, Failure> {
    let query = sqlx::query_as!(
        Happened,
        r#"select created_at as "at!", 'written' as "kind!", event_type as "what!", event_id, null as detail
           from outbox_log where saga_id = $1
           union all
           select published_at, 'published', event_type, event_id, null
           from outbox_log where saga_id = $1 and published_at is not null
           union all
           select received_at, 'received', message_type, null, nullif(status, 'done') from inbox where key = $2
           union all
           select at, 'operator', verb, null, concat(outcome ->> 'step', ', by ', actor, ': ', reason)
           from operator_actions where target = $2"#,
        saga_id,
        saga_id.to_string()
    );
    Ok(query.fetch_all(connection).await?)
}
