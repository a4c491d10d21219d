//! The rows of `operator_actions`: what operators did, and why.

use messaging::Failure;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

/// What an operator did.
pub(crate) struct Action {
    pub(crate) at: OffsetDateTime,
    pub(crate) actor: String,
    pub(crate) verb: String,
    pub(crate) reason: String,
    pub(crate) step: String,
}

/// What operators did to a saga, in order.
pub(crate) async fn list(connection: &mut PgConnection, saga_id: Uuid) -> Result<Vec<Action>, Failure> {
    let query = sqlx::query_as!(
        Action,
        r#"select at, actor, verb, reason, coalesce(outcome ->> 'step', '') as "step!"
           from operator_actions where target = $1 order by id"#,
        saga_id.to_string()
    );
    Ok(query.fetch_all(connection).await?)
}

/// Writes down what an operator does, in the transaction that does it.
pub(crate) async fn insert(
    connection: &mut PgConnection,
    actor: &str,
    verb: &str,
    saga_id: Uuid,
    reason: &str,
    outcome: &serde_json::Value,
) -> Result<(), Failure> {
    sqlx::query!(
        "insert into operator_actions (actor, verb, target, reason, outcome) values ($1, $2, $3, $4, $5)",
        actor,
        verb,
        saga_id.to_string(),
        reason,
        outcome
    )
    .execute(connection)
    .await?;
    Ok(())
}
