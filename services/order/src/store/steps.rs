//! The rows of `saga_steps`: the history of a saga, one row for each do and undo that was asked.

use std::time::Duration;

use contracts::step::{Direction, Step};
use messaging::Failure;
use serde::Deserialize;
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::domain::{Ignored, Status};

/// A do or undo that was asked.
#[derive(Clone, Debug)]
pub(crate) struct StepRow {
    pub(crate) saga_id: Uuid,
    pub(crate) step: Step,
    pub(crate) direction: Direction,
    pub(crate) status: Status,
    pub(crate) command_id: Uuid,
    pub(crate) attempts: i32,
    pub(crate) handler_attempts: Option<i32>,
    pub(crate) asked_at: OffsetDateTime,
    pub(crate) deadline: OffsetDateTime,
    pub(crate) answered_at: Option<OffsetDateTime>,
    pub(crate) error_code: Option<String>,
    pub(crate) ignored_answer: Option<String>,
    pub(crate) ignored_kind: Option<String>,
    pub(crate) ignored_at: Option<OffsetDateTime>,
    pub(crate) ignored_count: i32,
    pub(crate) is_overdue: bool,
    /// Whether its command still waits in our own outbox.
    pub(crate) is_unsent: bool,
}

/// An answer that changed nothing.
pub(crate) struct IgnoredAnswer {
    pub(crate) saga_id: Uuid,
    pub(crate) step: Step,
    pub(crate) direction: Direction,
    pub(crate) answer: String,
    pub(crate) kind: Ignored,
}

/// The steps of sagas, in the order in which they were asked.
pub(crate) async fn list(connection: &mut PgConnection, saga_ids: &[Uuid]) -> Result<Vec<StepRow>, Failure> {
    let rows = sqlx::query!(
        r#"select t.saga_id, t.step, t.direction, t.status, t.command_id, t.attempts, t.handler_attempts, t.asked_at,
                  t.deadline, t.answered_at, t.error_code, t.ignored_answer, t.ignored_kind, t.ignored_at,
                  t.ignored_count,
                  t.status = 'asked' and t.deadline <= now() as "is_overdue!",
                  t.status = 'asked' and exists (select 1 from outbox o where o.event_id = t.command_id)
                      as "is_unsent!"
           from saga_steps t where t.saga_id = any($1) order by t.saga_id, t.asked_at, t.direction"#,
        saga_ids
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter()
        .map(|row| {
            let step = Step::named(&row.step);
            let (direction, status) = (Direction::named(&row.direction), Status::named(&row.status));
            let (Some(step), Some(direction), Some(status)) = (step, direction, status) else {
                return Err(Failure::permanent("saga.unknown_step", "the table has an unknown step or status"));
            };
            Ok(StepRow {
                saga_id: row.saga_id,
                step,
                direction,
                status,
                command_id: row.command_id,
                attempts: row.attempts,
                handler_attempts: row.handler_attempts,
                asked_at: row.asked_at,
                deadline: row.deadline,
                answered_at: row.answered_at,
                error_code: row.error_code,
                ignored_answer: row.ignored_answer,
                ignored_kind: row.ignored_kind,
                ignored_at: row.ignored_at,
                ignored_count: row.ignored_count,
                is_overdue: row.is_overdue,
                is_unsent: row.is_unsent,
            })
        })
        .collect()
}

/// How a do or undo ended before it was asked again, settled, or answered after all.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ended {
    pub(crate) attempts: i32,
    pub(crate) command_id: Uuid,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) asked_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) deadline: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339::option")]
    pub(crate) answered_at: Option<OffsetDateTime>,
    pub(crate) status: String,
    pub(crate) error_code: Option<String>,
}

/// The earlier ends of a saga's steps, the first first.
pub(crate) async fn list_earlier(
    connection: &mut PgConnection,
    saga_id: Uuid,
) -> Result<Vec<(Step, Direction, Vec<Ended>)>, Failure> {
    let rows = sqlx::query!(
        r#"select step, direction, earlier as "earlier: Json<Vec<Ended>>" from saga_steps
           where saga_id = $1 and earlier <> '[]'"#,
        saga_id
    )
    .fetch_all(connection)
    .await?;
    let known = |name: &str, direction: &str| Step::named(name).zip(Direction::named(direction));
    Ok(rows
        .into_iter()
        .filter_map(|row| known(&row.step, &row.direction).map(|(step, way)| (step, way, row.earlier.0)))
        .collect())
}

/// Writes down answers that changed nothing.
pub(crate) async fn ignore(connection: &mut PgConnection, answers: &[IgnoredAnswer]) -> Result<(), Failure> {
    if answers.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        r#"update saga_steps t
           set ignored_answer = i.answer, ignored_kind = i.kind, ignored_at = now(),
               ignored_count = t.ignored_count + 1
           from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[])
                as i(saga_id, step, direction, answer, kind)
           where t.saga_id = i.saga_id and t.step = i.step and t.direction = i.direction"#,
        &answers.iter().map(|i| i.saga_id).collect::<Vec<_>>(),
        &answers.iter().map(|i| i.step.name().to_owned()).collect::<Vec<_>>(),
        &answers.iter().map(|i| i.direction.name().to_owned()).collect::<Vec<_>>(),
        &answers.iter().map(|i| i.answer.clone()).collect::<Vec<_>>(),
        &answers.iter().map(|i| i.kind.name().to_owned()).collect::<Vec<_>>()
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Gives a do or undo its whole time again: its command has not left yet.
pub(crate) async fn postpone(
    connection: &mut PgConnection,
    saga_id: Uuid,
    step: Step,
    direction: Direction,
    time: Duration,
) -> Result<(), Failure> {
    sqlx::query!(
        r#"update saga_steps set deadline = now() + $4 * interval '1 second'
           where saga_id = $1 and step = $2 and direction = $3 and status = 'asked'"#,
        saga_id,
        step.name(),
        direction.name(),
        time.as_secs_f64()
    )
    .execute(connection)
    .await?;
    Ok(())
}
