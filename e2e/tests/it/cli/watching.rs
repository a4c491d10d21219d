//! `saga audit --watch`, on a shop whose books somebody spoils and puts right.

use std::fs::{self, File};

use anyhow::Context as _;
use e2e::{State, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, Executor as _};

use super::{Place, STARTED_WITHIN, json};

pub(super) async fn a_watched_shop_tells_what_begins_and_ends_to_be_violated(place: &Place) -> anyhow::Result<()> {
    let status = json(&place.saga(&["status", "--on", "native", "--json"])?)?;
    let mut database = PgConnection::connect(status["shop"]["postgres"].as_str().context("no postgres")?).await?;
    let order = "select id::text from orders.orders where correlation_id = 'mine'";
    let order: String = sqlx::query_scalar(order).fetch_one(&mut database).await?;
    let output = place.0.join("watched");
    let file = File::create(&output)?;
    let mut watching = place.command(&["audit", "--watch", "--every", "1", "--on", "native"]);
    let mut watching = watching.stdout(file.try_clone()?).stderr(file).spawn()?;
    let mut says = async |what: &str, is_said: &dyn Fn(&str) -> bool| {
        eventually(STARTED_WITHIN, what, async || {
            let said = fs::read_to_string(&output)?;
            Ok(match watching.try_wait()? {
                Some(status) => State::Lost(format!("it ended with {status}: {said}")),
                None if is_said(&said) => State::Reached(said),
                None => State::Pending(said),
            })
        })
        .await
    };
    says("it looks", &|said| said.contains("looking every 1 s")).await?;
    database
        .execute(
            "insert into sandbox.ledger (party, key, order_id, effect, account, amount, currency)
             select 'provider', 'planted', id, 'capture', account, amount, 'EUR'
             from orders.orders, (values ('customer', -1), ('shop', 1)) as line(account, amount)
             where correlation_id = 'mine'",
        )
        .await?;
    let begins = format!("I1 order {order}: not so");
    let said = says("it tells the violation", &|said| said.contains(&begins)).await?;
    assert!(!said.contains("so again"), "{said}");
    database.execute("delete from sandbox.ledger where key = 'planted'").await?;
    // What is known is not told again: as many ends as beginnings.
    let ends = format!("I1 {order} so again");
    let all_end = |said: &str| said.contains(&ends) && said.matches(&ends).count() == said.matches(&begins).count();
    says("it tells the end of each violation", &all_end).await?;
    kill(Pid::from_raw(i32::try_from(watching.id())?), Signal::SIGINT)?;
    assert_eq!(watching.wait()?.code(), Some(130), "{}", fs::read_to_string(&output)?);
    Ok(())
}
