//! Requests that timed out and take effect later.

use std::time::Duration;

use messaging::Failure;
use serde_json::Value;
use sqlx::PgConnection;

use crate::switch::Party;

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct LateEffect {
    pub(crate) id: i64,
    pub(crate) party: String,
    pub(crate) key: String,
    pub(crate) request: Value,
}

/// Puts a request aside.
pub(crate) async fn append(
    connection: &mut PgConnection,
    party: Party,
    key: &str,
    request: &Value,
    after: Duration,
) -> Result<(), Failure> {
    sqlx::query!(
        "insert into late_effects (party, key, request, lands_at)
         values ($1, $2, $3, now() + make_interval(secs => $4))",
        party.name(),
        key,
        request,
        after.as_secs_f64()
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Takes out the first whose time has come; it is gone when the transaction commits.
pub(crate) async fn take_due(connection: &mut PgConnection) -> Result<Option<LateEffect>, Failure> {
    let due = sqlx::query_as!(
        LateEffect,
        "delete from late_effects where id = (
             select id from late_effects where lands_at <= now() order by lands_at, id limit 1
             for update skip locked)
         returning id, party, key, request"
    );
    Ok(due.fetch_optional(connection).await?)
}

/// How many requests of each party, of one order or of all, are still to take effect.
pub(crate) async fn count(connection: &mut PgConnection, order_id: Option<&str>) -> Result<(i64, i64), Failure> {
    let counted = sqlx::query!(
        r#"select count(*) filter (where party = 'provider') as "provider!",
                  count(*) filter (where party = 'carrier') as "carrier!"
           from late_effects where $1::text is null or request -> 'subject' ->> 'order_id' = $1"#,
        order_id
    );
    let counted = counted.fetch_one(connection).await?;
    Ok((counted.provider, counted.carrier))
}
