//! The rows of `reservations`.

use contracts::command::Line;
use messaging::{Class, Failure};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::domain::Status;

/// A reservation as it stands.
#[derive(Clone, Debug)]
pub(crate) struct Reservation {
    pub(crate) saga_id: Uuid,
    pub(crate) status: Status,
    pub(crate) lines: Vec<Line>,
    pub(crate) code: Option<String>,
}

/// A reservation's first outcome, or a later one.
pub(crate) struct Change {
    pub(crate) saga_id: Uuid,
    pub(crate) order_id: Uuid,
    pub(crate) status: Status,
    pub(crate) lines: Vec<Line>,
    pub(crate) code: Option<String>,
    pub(crate) is_new: bool,
}

/// Locks the reservations of sagas, in the order of their ids. A saga without one is left out.
pub(crate) async fn lock(connection: &mut PgConnection, saga_ids: &[Uuid]) -> Result<Vec<Reservation>, Failure> {
    let rows = sqlx::query!(
        r#"select saga_id, status, lines as "lines: Json<Vec<Line>>", code from reservations
           where saga_id = any($1) order by saga_id for update"#,
        saga_ids
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter()
        .map(|row| {
            let status = Status::named(&row.status)
                .ok_or_else(|| Failure::permanent("inventory.unknown_status", "the table has an unknown status"))?;
            Ok(Reservation { saga_id: row.saga_id, status, lines: row.lines.0, code: row.code })
        })
        .collect()
}

/// Writes first outcomes.
///
/// # Errors
/// Conflict, if somebody else has written one of them meanwhile: run again, and the row that is there decides.
pub(crate) async fn insert(connection: &mut PgConnection, changes: &[Change]) -> Result<(), Failure> {
    let new: Vec<&Change> = changes.iter().filter(|change| change.is_new).collect();
    if new.is_empty() {
        return Ok(());
    }
    let written = sqlx::query!(
        r#"insert into reservations (saga_id, order_id, status, lines, code)
           select * from unnest($1::uuid[], $2::uuid[], $3::text[], $4::jsonb[], $5::text[])
           on conflict do nothing"#,
        &new.iter().map(|c| c.saga_id).collect::<Vec<_>>(),
        &new.iter().map(|c| c.order_id).collect::<Vec<_>>(),
        &new.iter().map(|c| c.status.name().to_owned()).collect::<Vec<_>>(),
        &new.iter().map(|c| Json(c.lines.clone())).collect::<Vec<_>>() as &[Json<Vec<Line>>],
        &new.iter().map(|c| c.code.clone()).collect::<Vec<_>>() as &[Option<String>]
    )
    .execute(connection)
    .await?;
    if written.rows_affected() < new.len() as u64 {
        return Err(Failure::new(Class::Conflict, "inventory.met", "another handler wrote the reservation first"));
    }
    Ok(())
}

/// Writes later outcomes. Their rows are locked.
pub(crate) async fn update(connection: &mut PgConnection, changes: &[Change]) -> Result<(), Failure> {
    let old: Vec<&Change> = changes.iter().filter(|change| !change.is_new).collect();
    if old.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        r#"update reservations r set status = c.status, updated_at = now()
           from unnest($1::uuid[], $2::text[]) as c(saga_id, status) where r.saga_id = c.saga_id"#,
        &old.iter().map(|c| c.saga_id).collect::<Vec<_>>(),
        &old.iter().map(|c| c.status.name().to_owned()).collect::<Vec<_>>()
    )
    .execute(connection)
    .await?;
    Ok(())
}
