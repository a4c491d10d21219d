//! The ledger: every effect once, money as double entry. Rows are only ever added.

use messaging::Failure;
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::domain::Effect;
use crate::switch::Party;

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: i64,
    pub(crate) at: OffsetDateTime,
    pub(crate) party: String,
    pub(crate) key: String,
    pub(crate) order_id: Option<String>,
    pub(crate) effect: String,
    pub(crate) account: String,
    pub(crate) amount: i64,
    pub(crate) currency: Option<String>,
}

/// What the lines come to.
#[derive(Clone, Debug)]
pub(crate) struct Balance {
    pub(crate) order_id: Option<String>,
    pub(crate) customer: i64,
    pub(crate) shop: i64,
    pub(crate) parcels: i64,
}

/// The lines of an effect: its name, the accounts, and what each of them gets. A second effect of the same kind under
/// the same key would break a constraint.
pub(crate) fn lines(
    party: Party,
    effect: Option<Effect>,
    amount: i64,
) -> (&'static str, &'static [&'static str], Vec<i64>) {
    match (party, effect) {
        (Party::Provider, Some(Effect::Take)) => ("capture", &["customer", "shop"], vec![-amount, amount]),
        (Party::Provider, Some(Effect::GiveBack)) => ("refund", &["shop", "customer"], vec![-amount, amount]),
        (Party::Carrier, Some(Effect::Take)) => ("ship", &["parcel"], vec![1]),
        (Party::Carrier, Some(Effect::GiveBack)) => ("recall", &["parcel"], vec![-1]),
        (_, None) => ("none", &[], Vec::new()),
    }
}

/// The newest lines, of one order or of all.
pub(crate) async fn list(
    connection: &mut PgConnection,
    order_id: Option<&str>,
    limit: i64,
) -> Result<Vec<Entry>, Failure> {
    let entries = sqlx::query_as!(
        Entry,
        "select id, at, party, key, order_id, effect, account, amount, currency from ledger
         where $1::text is null or order_id = $1 order by id desc limit $2",
        order_id,
        limit
    );
    Ok(entries.fetch_all(connection).await?)
}

/// What all lines of one order, or of all orders, come to.
pub(crate) async fn total(connection: &mut PgConnection, order_id: Option<&str>) -> Result<Balance, Failure> {
    let balance = sqlx::query_as!(
        Balance,
        r#"select $1::text as order_id,
                  coalesce(sum(amount) filter (where account = 'customer'), 0)::bigint as "customer!",
                  coalesce(sum(amount) filter (where account = 'shop'), 0)::bigint as "shop!",
                  coalesce(sum(amount) filter (where account = 'parcel'), 0)::bigint as "parcels!"
           from ledger where $1::text is null or order_id = $1"#,
        order_id
    );
    Ok(balance.fetch_one(connection).await?)
}

/// What each order comes to, in the order of their ids, after the one that is named.
pub(crate) async fn list_balances(
    connection: &mut PgConnection,
    after: &str,
    limit: i64,
) -> Result<Vec<Balance>, Failure> {
    let balances = sqlx::query_as!(
        Balance,
        r#"select order_id,
                  coalesce(sum(amount) filter (where account = 'customer'), 0)::bigint as "customer!",
                  coalesce(sum(amount) filter (where account = 'shop'), 0)::bigint as "shop!",
                  coalesce(sum(amount) filter (where account = 'parcel'), 0)::bigint as "parcels!"
           from ledger where order_id > $1 group by order_id order by order_id limit $2"#,
        after,
        limit
    );
    Ok(balances.fetch_all(connection).await?)
}
