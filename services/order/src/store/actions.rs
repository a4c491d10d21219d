//! The rows of `operator_actions`: what operators did, and why.

use messaging::Failure;
use sqlx::PgConnection;
use uuid::Uuid;

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
