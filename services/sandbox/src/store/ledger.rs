//! The ledger: every effect once, money as double entry. Rows are only ever added.

use messaging::Failure;
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::domain::Effect;
use crate::store::decisions::Subject;
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

/// Writes an effect. A second one of the same kind under the same key would break a constraint.
pub(crate) async fn append(
    connection: &mut PgConnection,
    party: Party,
    key: &str,
    effect: Effect,
    subject: &Subject,
) -> Result<(), Failure> {
    let amount = subject.amount;
    let (name, accounts, amounts): (&str, &[&str], &[i64]) = match (party, effect) {
        (Party::Provider, Effect::Take) => ("capture", &["customer", "shop"], &[-amount, amount]),
        (Party::Provider, Effect::GiveBack) => ("refund", &["shop", "customer"], &[-amount, amount]),
        (Party::Carrier, Effect::Take) => ("ship", &["parcel"], &[1]),
        (Party::Carrier, Effect::GiveBack) => ("recall", &["parcel"], &[-1]),
    };
    sqlx::query!(
        "insert into ledger (party, key, order_id, effect, account, amount, currency)
         select $1, $2, $3, $4, line.account, line.amount, $5
         from unnest($6::text[], $7::bigint[]) as line(account, amount)",
        party.name(),
        key,
        subject.order_id,
        name,
        subject.currency,
        accounts as &[&str],
        amounts
    )
    .execute(connection)
    .await?;
    Ok(())
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
