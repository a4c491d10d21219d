//! What the database says, in one snapshot and as a role that can only read.

use std::collections::BTreeMap;
use std::str::FromStr as _;

use anyhow::Context as _;
use contracts::step::{Outcome, Step};
use contracts::topology::{self, COMMANDS, EVENTS};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgConnection, Postgres};
use sqlx::{ConnectOptions as _, Connection as _, Transaction};
use time::OffsetDateTime;

use super::Violation;

const BEGIN: &str = "begin transaction isolation level repeatable read read only";
const UNDER_WAY: &str = include_str!("under_way.sql");
/// Of orders that have ended, so many are compared with what the order service and Jaeger tell.
const COMPARED: i64 = 500;

/// Whatever the statistics of a table that has just grown say, none is read once for each row of another.
const PLANNING: [(&str, &str); 2] = [("enable_nestloop", "off"), ("jit", "off")];

pub(super) async fn connect(url: &str) -> anyhow::Result<PgConnection> {
    let options = PgConnectOptions::from_str(url)?.application_name("saga audit").options(PLANNING);
    options.disable_statement_logging().connect().await.context("connecting to PostgreSQL as the auditor")
}

/// An order whose saga has ended: nothing will ever change it.
pub(super) struct Ended {
    pub(super) order: String,
    /// What the order service answers, as far as the tables tell.
    pub(super) answer: Value,
    pub(super) traceparent: Option<String>,
    /// So long ago that its spans have arrived wherever they are sent.
    pub(super) is_told: bool,
    pub(super) placed_at: OffsetDateTime,
}

/// One moment of the database.
pub(super) struct Snapshot<'a> {
    transaction: Transaction<'a, Postgres>,
    routes: Value,
}

impl<'a> Snapshot<'a> {
    pub(super) async fn begin(database: &'a mut PgConnection) -> anyhow::Result<Self> {
        Ok(Snapshot { transaction: database.begin_with(BEGIN).await?, routes: routes() })
    }

    pub(super) async fn under_way(&mut self) -> anyhow::Result<Vec<String>> {
        let asked = sqlx::query_as::<_, (String, String)>(UNDER_WAY).bind(true).bind(&self.routes);
        let rows = asked.fetch_all(&mut *self.transaction).await.context("what is under way")?;
        Ok(rows.into_iter().map(|(what, which)| format!("{what}: {which}")).collect())
    }

    pub(super) async fn violations(&mut self, sql: &'static str, is_quiet: bool) -> anyhow::Result<Vec<Violation>> {
        let asked = sqlx::query_as::<_, (Option<String>, String, Value)>(sql).bind(is_quiet).bind(&self.routes);
        let rows = asked.fetch_all(&mut *self.transaction).await?;
        Ok(rows.into_iter().map(|(order, what, rows)| Violation { order, what, rows }).collect())
    }

    /// How many orders there are in each state.
    pub(super) async fn count(&mut self) -> anyhow::Result<BTreeMap<String, i64>> {
        let asked = sqlx::query_as::<_, (String, i64)>("select state, count(*) from orders.sagas group by state");
        Ok(asked.fetch_all(&mut *self.transaction).await?.into_iter().collect())
    }

    /// The newest orders that nothing will change any more: while nothing is under way, also those that wait for a
    /// person.
    pub(super) async fn ended(&mut self, is_quiet: bool) -> anyhow::Result<Vec<Ended>> {
        let asked = sqlx::query_as::<_, (String, Value, Option<String>, bool, OffsetDateTime)>(
            "select o.id::text, jsonb_build_object('orderId', o.id, 'sagaId', s.id, 'correlationId', o.correlation_id,
                        'status', s.state, 'total', jsonb_build_object('amount', o.total_amount, 'currency', o.currency),
                        'reason', case when s.reason_code is not null then
                            jsonb_build_object('code', s.reason_code, 'errorType', s.reason_error_type) end),
                    o.trace ->> 'traceparent', s.updated_at < now() - interval '15 seconds', o.created_at
             from orders.orders o join orders.sagas s on s.order_id = o.id
             where s.state in ('completed', 'cancelled', 'settled') or (s.state = 'needs_attention' and $1)
             order by o.id desc limit $2",
        );
        let rows = asked.bind(is_quiet).bind(COMPARED).fetch_all(&mut *self.transaction).await?;
        let ended =
            |(order, answer, traceparent, is_told, placed_at)| Ended { order, answer, traceparent, is_told, placed_at };
        Ok(rows.into_iter().map(ended).collect())
    }

    pub(super) async fn end(self) -> anyhow::Result<()> {
        Ok(self.transaction.rollback().await?)
    }
}

/// Which queue each message reaches that must reach one.
fn routes() -> Value {
    let outcomes = [Outcome::Done, Outcome::Rejected, Outcome::Failed, Outcome::Undone, Outcome::UndoFailed];
    let answers = Step::ALL.into_iter().flat_map(|step| outcomes.map(|outcome| (step, outcome)));
    let answers = answers.filter_map(|(step, outcome)| Some((step.aggregate(), step.answer(outcome)?)));
    let events = answers.chain([("Order", "OrderShipped")]);
    let events = events.map(|(aggregate, event)| (EVENTS.name, topology::event_key(aggregate, event)));
    let commands = Step::ALL.into_iter().map(|step| (COMMANDS.name, step.name().to_owned()));
    let route = |(exchange, key): (&str, String)| {
        let queue = topology::receiver(exchange, &key)?.name;
        Some(json!({"exchange": exchange, "routing_key": key, "queue": queue}))
    };
    commands.chain(events).filter_map(route).collect()
}

#[cfg(test)]
mod tests {
    use super::routes;

    #[test]
    fn every_command_answer_and_end_has_its_queue() {
        let routes = routes();
        let routes = routes.as_array().unwrap();
        assert_eq!(routes.len(), 3 + 13 + 1);
        let shipped = routes.iter().find(|route| route["routing_key"] == "Order.OrderShipped").unwrap();
        assert_eq!(shipped["queue"], "inventory.events");
    }
}
