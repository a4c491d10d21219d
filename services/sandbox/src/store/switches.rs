//! The switches that are on.

use messaging::Failure;
use sqlx::PgConnection;

use crate::switch::Met;

/// Tells the switches of these names that a request has met them, and which of them are on.
pub(crate) async fn meet(connection: &mut PgConnection, names: &[&str]) -> Result<Vec<Met>, Failure> {
    let met = sqlx::query_as!(
        Met,
        "update switches set met = met + 1 where name in (
             select name from switches where name = any($1) order by name for update)
         returning name, rate, seed, delay_ms, met as number",
        names as &[&str]
    );
    Ok(met.fetch_all(connection).await?)
}

/// All that are on, by name; their number is how many requests have met them.
pub(crate) async fn list(connection: &mut PgConnection) -> Result<Vec<Met>, Failure> {
    let all = sqlx::query_as!(Met, "select name, rate, seed, delay_ms, met as number from switches order by name");
    Ok(all.fetch_all(connection).await?)
}

/// Switches one on, or on again: its count begins anew.
pub(crate) async fn set(
    connection: &mut PgConnection,
    name: &str,
    rate: f64,
    seed: i64,
    delay_ms: i32,
) -> Result<Met, Failure> {
    let met = sqlx::query_as!(
        Met,
        "insert into switches (name, rate, seed, delay_ms) values ($1, $2, $3, $4)
         on conflict (name) do update set rate = excluded.rate, seed = excluded.seed, delay_ms = excluded.delay_ms,
             met = 0, updated_at = now()
         returning name, rate, seed, delay_ms, met as number",
        name,
        rate,
        seed,
        delay_ms
    );
    Ok(met.fetch_one(connection).await?)
}

/// Switches one off.
pub(crate) async fn remove(connection: &mut PgConnection, name: &str) -> Result<(), Failure> {
    sqlx::query!("delete from switches where name = $1", name).execute(connection).await?;
    Ok(())
}
