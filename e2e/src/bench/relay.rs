//! `bench relay`: how fast a real `order relay` drains a full outbox, and how soon a committed row is delivered.

use std::collections::HashMap;
use std::iter::repeat_n;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use contracts::topology::{EXCHANGES, PAYMENT_COMMANDS};
use futures::StreamExt as _;
use lapin::message::Delivery;
use messaging::{Broker, Message, Relay, RelaySettings, outbox};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;

use super::report::{Latency, Machine, Rate, Report};
use super::traffic::{AGGREGATES, each_once_and_in_order, message};
use super::usage::Watch;
use super::wire::{Parcel, Wire, id_of};
use super::{Bench, now};
use crate::Stack;
use crate::stack::{Process, Service};

const LIMIT: &str = "same broker and queue, fed by a bare client with 1,000 unconfirmed messages of the same form";
const KEY: &str = "payment";
/// Rows of one statement.
const APPENDED: usize = 1_000;
/// Transactions of a second, while delivery is timed.
const ARRIVALS: f64 = 100.0;

pub(super) async fn run(bench: &Bench<'_>, stack: &Stack, rows: usize, timed: Duration) -> anyhow::Result<Report> {
    let machine = Machine::look(bench.servers.directory())?;
    let wire = Wire::open(&stack.vhost, &bench.administrator(), PAYMENT_COMMANDS).await?;
    let database: PgConnectOptions = stack.database_url(Service::Order).parse()?;
    let mut connection = database.connect().await?;
    let mut recipe = stack.recipe_of_another(Service::Order)?;
    recipe.arguments = vec!["relay".to_owned()];
    let relay = Process::start(recipe).await?;

    // The first row shows how the others will look on the wire.
    outbox::append(&mut connection, &[message(0, KEY)?]).await?;
    let sample = wire.take(1).await?.pop().context("one was asked for")?;
    let parcel = Parcel { body: sample.data, properties: sample.properties };
    let feed = async || {
        let fed = wire.feed(repeat_n(parcel.clone(), rows / 2)).await?;
        wire.purge().await?;
        bench.say(format!("  a bare client: {:.0} messages/s", fed.per_second()));
        anyhow::Ok(fed.per_second())
    };

    bench.say(format!("{rows} rows through `order relay`, and as many from a bare client, half before and half after"));
    let before = feed().await?;
    let messages = (1..=rows).map(|number| message(number, KEY)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut transaction = connection.begin().await?;
    for some in messages.chunks(APPENDED) {
        outbox::append(&mut transaction, some).await?;
    }
    let watch = Watch::begin(bench.servers, &[("order relay", relay.pid()?)]).await?;
    transaction.commit().await?;
    let begin = now();
    let pending = async || count(stack, "select count(*) from orders.outbox").await;
    bench.wait_for_none("rows are pending", pending).await?;
    let usage = watch.end()?;
    let last = "select extract(epoch from max(published_at))::float8 from orders.outbox_history";
    let end = stack.database.value(last).await?.as_f64().context("a time")?;
    let rate = Rate { count: rows as u64, seconds: end - begin };

    let taken = wire.take(rows).await?;
    check(stack, &messages, &taken).await?;
    relay.terminate().await?;
    let after = feed().await?;

    bench.say(format!("{ARRIVALS} transactions a second for {} s", timed.as_secs()));
    let latency = time_delivery(stack, &wire, &database, connection, timed).await?;
    let mut report = Report::new("relay", "rows", rate, ((before + after) / 2.0, LIMIT), usage, machine);
    report.latencies = vec![latency];
    report.checked = vec![
        format!("{rows} rows inserted, in the history and in the queue, each once"),
        format!("in order within each of {AGGREGATES} aggregates"),
    ];
    Ok(report)
}

async fn count(stack: &Stack, question: &str) -> anyhow::Result<u64> {
    stack.database.value(question).await?.as_u64().context("a number")
}

/// What was inserted is what was published is what arrived, each once and in order.
async fn check(stack: &Stack, inserted: &[Message], arrived: &[Delivery]) -> anyhow::Result<()> {
    let kept = count(stack, "select count(*) from orders.outbox_history").await?;
    let distinct = count(stack, "select count(distinct event_id) from orders.outbox_history").await?;
    let expected = inserted.len() as u64 + 1;
    ensure!(
        kept == expected && distinct == expected,
        "{expected} rows were inserted, the history has {kept} of {distinct} messages"
    );
    each_once_and_in_order(inserted, &arrived.iter().map(id_of).collect::<Vec<_>>())
}

/// A transaction a row, at a fixed pace, with a relay in the same process: from the commit's return to the delivery.
async fn time_delivery(
    stack: &Stack,
    wire: &Wire,
    database: &PgConnectOptions,
    mut connection: PgConnection,
    time: Duration,
) -> anyhow::Result<Latency> {
    let broker = Broker::new(&stack.vhost.url(Service::Order.name()), "bench")?;
    let relay = Relay::new(database, broker, EXCHANGES, RelaySettings::default());
    let (poke, stop) = (relay.poke(), CancellationToken::new());
    let running = tokio::spawn(relay.run(stop.clone()));
    let total = (time.as_secs_f64() * ARRIVALS) as usize;
    // The first ones find the relay on its way up.
    let warming = ARRIVALS as usize;
    let mut arrivals = wire.arrivals().await?;
    let listening = tokio::spawn(async move {
        let mut arrived = HashMap::new();
        while arrived.len() < warming + total {
            let Ok(Some(delivery)) = timeout(super::PATIENCE, arrivals.next()).await else { break };
            arrived.insert(id_of(&delivery?), Instant::now());
        }
        anyhow::Ok(arrived)
    });
    let mut committed = Vec::new();
    let mut pace = interval(Duration::from_secs_f64(1.0 / ARRIVALS));
    for number in 0..warming + total {
        pace.tick().await;
        let message = message(number, KEY)?;
        let id = message.id.to_string();
        let mut transaction = connection.begin().await?;
        outbox::append(&mut transaction, &[message]).await?;
        transaction.commit().await?;
        committed.push((id, Instant::now()));
        poke.poke();
    }
    let arrived = listening.await??;
    stop.cancel();
    running.await?;
    let mut times = Vec::with_capacity(total);
    for (id, at) in &committed {
        let arrived = arrived.get(id).with_context(|| format!("message {id} was committed and did not arrive"))?;
        times.push(arrived.saturating_duration_since(*at));
    }
    Latency::of("from commit to delivery", ARRIVALS, times.split_off(warming))
}
