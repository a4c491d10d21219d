//! The rows of `stock`.

use std::collections::BTreeMap;

use messaging::Failure;
use sqlx::PgConnection;

/// The stock of one product.
#[derive(Clone, Debug)]
pub(crate) struct Stock {
    pub(crate) sku: String,
    pub(crate) available: i64,
    pub(crate) reserved: i64,
    pub(crate) shipped: i64,
    pub(crate) received: i64,
}

/// How the pieces of one product move, added up over a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Moves {
    pub(crate) available: i64,
    pub(crate) reserved: i64,
    pub(crate) shipped: i64,
}

/// Locks products, in the order of their names. An unknown one is left out.
pub(crate) async fn lock(connection: &mut PgConnection, skus: &[String]) -> Result<Vec<Stock>, Failure> {
    let query = sqlx::query_as!(
        Stock,
        "select sku, available, reserved, shipped, received from stock
         where sku = any($1) order by sku for update",
        skus
    );
    Ok(query.fetch_all(connection).await?)
}

/// Moves pieces, all products in one statement. The table's constraints refuse what cannot be.
pub(crate) async fn move_pieces(connection: &mut PgConnection, moves: &BTreeMap<String, Moves>) -> Result<(), Failure> {
    let moving: Vec<_> = moves.iter().filter(|(_, moves)| **moves != Moves::default()).collect();
    if moving.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        r#"update stock s
           set available = s.available + m.available, reserved = s.reserved + m.reserved,
               shipped = s.shipped + m.shipped
           from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[])
                as m(sku, available, reserved, shipped)
           where s.sku = m.sku"#,
        &moving.iter().map(|(sku, _)| (*sku).clone()).collect::<Vec<_>>(),
        &moving.iter().map(|(_, m)| m.available).collect::<Vec<_>>(),
        &moving.iter().map(|(_, m)| m.reserved).collect::<Vec<_>>(),
        &moving.iter().map(|(_, m)| m.shipped).collect::<Vec<_>>()
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Takes pieces in. Returns nothing if the product is unknown.
pub(crate) async fn receive(connection: &mut PgConnection, sku: &str, quantity: i64) -> Result<Option<Stock>, Failure> {
    let query = sqlx::query_as!(
        Stock,
        "update stock set available = available + $2, received = received + $2 where sku = $1
         returning sku, available, reserved, shipped, received",
        sku,
        quantity
    );
    Ok(query.fetch_optional(connection).await?)
}

/// Products after a name, in the order of their names.
pub(crate) async fn list(connection: &mut PgConnection, after: &str, limit: i64) -> Result<Vec<Stock>, Failure> {
    let query = sqlx::query_as!(
        Stock,
        "select sku, available, reserved, shipped, received from stock where sku > $1 order by sku limit $2",
        after,
        limit
    );
    Ok(query.fetch_all(connection).await?)
}

/// One product.
pub(crate) async fn find(connection: &mut PgConnection, sku: &str) -> Result<Option<Stock>, Failure> {
    let query =
        sqlx::query_as!(Stock, "select sku, available, reserved, shipped, received from stock where sku = $1", sku);
    Ok(query.fetch_optional(connection).await?)
}
