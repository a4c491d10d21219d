//! Every statement on `shipments`. None of them begins or commits a transaction.

use messaging::Failure;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::domain::Status;

/// A shipment as it stands.
#[derive(Clone, Debug)]
pub(crate) struct Shipment {
    pub(crate) saga_id: Uuid,
    pub(crate) order_id: Uuid,
    pub(crate) status: Status,
    pub(crate) service: Option<String>,
    pub(crate) reference: Option<String>,
}

/// A shipment's first outcome, or its undo.
pub(crate) struct Change {
    pub(crate) saga_id: Uuid,
    pub(crate) order_id: Uuid,
    pub(crate) status: Status,
    pub(crate) service: Option<String>,
    pub(crate) reference: Option<String>,
    pub(crate) is_new: bool,
}

struct Row {
    saga_id: Uuid,
    order_id: Uuid,
    status: String,
    service: Option<String>,
    reference: Option<String>,
}

impl Row {
    fn read(self) -> Result<Shipment, Failure> {
        let Row { saga_id, order_id, status, service, reference } = self;
        let status = Status::named(&status)
            .ok_or_else(|| Failure::permanent("shipment.unknown_status", "the table has an unknown status"))?;
        Ok(Shipment { saga_id, order_id, status, service, reference })
    }
}

/// The shipments of sagas, without a lock: a first look.
pub(crate) async fn list(connection: &mut PgConnection, saga_ids: &[Uuid]) -> Result<Vec<Shipment>, Failure> {
    let query = sqlx::query_as!(
        Row,
        "select saga_id, order_id, status, service, reference from shipments where saga_id = any($1)",
        saga_ids
    );
    query.fetch_all(connection).await?.into_iter().map(Row::read).collect()
}

/// The shipments of an order.
pub(crate) async fn find_by_order(connection: &mut PgConnection, order_id: Uuid) -> Result<Option<Shipment>, Failure> {
    let query = sqlx::query_as!(
        Row,
        "select saga_id, order_id, status, service, reference from shipments where order_id = $1",
        order_id
    );
    query.fetch_optional(connection).await?.map(Row::read).transpose()
}

/// Locks the shipments of sagas, in the order of their ids. A saga without one is left out.
pub(crate) async fn lock(connection: &mut PgConnection, saga_ids: &[Uuid]) -> Result<Vec<Shipment>, Failure> {
    let query = sqlx::query_as!(
        Row,
        "select saga_id, order_id, status, service, reference from shipments
         where saga_id = any($1) order by saga_id for update",
        saga_ids
    );
    query.fetch_all(connection).await?.into_iter().map(Row::read).collect()
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
        r#"insert into shipments (saga_id, order_id, status, service, reference)
           select * from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[])
           on conflict do nothing"#,
        &new.iter().map(|c| c.saga_id).collect::<Vec<_>>(),
        &new.iter().map(|c| c.order_id).collect::<Vec<_>>(),
        &new.iter().map(|c| c.status.name().to_owned()).collect::<Vec<_>>(),
        &new.iter().map(|c| c.service.clone()).collect::<Vec<_>>() as &[Option<String>],
        &new.iter().map(|c| c.reference.clone()).collect::<Vec<_>>() as &[Option<String>]
    )
    .execute(connection)
    .await?;
    if written.rows_affected() < new.len() as u64 {
        return Err(Failure::new(
            messaging::Class::Conflict,
            "shipment.met",
            "another handler wrote the shipment first",
        ));
    }
    Ok(())
}

/// Writes undos of shipments that were there. Their rows are locked.
pub(crate) async fn update(connection: &mut PgConnection, changes: &[Change]) -> Result<(), Failure> {
    let old: Vec<&Change> = changes.iter().filter(|change| !change.is_new).collect();
    if old.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        r#"update shipments t set status = c.status, updated_at = now()
           from unnest($1::uuid[], $2::text[]) as c(saga_id, status) where t.saga_id = c.saga_id"#,
        &old.iter().map(|c| c.saga_id).collect::<Vec<_>>(),
        &old.iter().map(|c| c.status.name().to_owned()).collect::<Vec<_>>()
    )
    .execute(connection)
    .await?;
    Ok(())
}
