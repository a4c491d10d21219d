//! `bench inbox`: how fast a full queue becomes effects, through a service whose handler makes one insert.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use contracts::topology::COMMANDS;
use messaging::{Message, Queue};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _};
use uuid::Uuid;

use super::report::{Machine, Rate, Report};
use super::traffic::{AGGREGATES, each_once_and_in_order, message};
use super::usage::Watch;
use super::wire::{Parcel, Wire};
use super::{Bench, now};
use crate::Stack;
use crate::stack::{Process, Service, programs};

/// The queue of the service that is measured.
pub const EFFECTS: Queue =
    Queue { name: "bench.effects", bindings: &[(COMMANDS, "bench.effects")], single_active_consumer: false };
/// Its one statement: the message's id, and the key whose order counts.
pub const EFFECT: &str = "insert into effects (message_id, key) select * from unnest($1::uuid[], $2::text[])";

const TABLE: &str = "create table orders.effects (
    id bigint generated always as identity primary key, message_id uuid not null, key text not null);
    create index on orders.effects (message_id);
    grant select, insert on orders.effects to orders_service";
const LIMIT: &str =
    "same database, one connection, the consumer's statements by themselves, 100 messages a transaction";
/// The statement with which a consumer remembers fresh messages; the original is private to `messaging`.
const REMEMBER: &str =
    "insert into inbox (consumer, message_id, key, message_type, correlation_id, attempts, finished_at)
    select $1, message_id, key, message_type, correlation_id, 1, now()
    from unnest($2::text[], $3::text[], $4::text[], $5::text[]) as m(message_id, key, message_type, correlation_id)
    on conflict on constraint inbox_is_unique do nothing returning message_id";
/// Messages of a transaction, as the consumer takes them.
const BATCH: usize = 100;

pub(super) async fn run(bench: &Bench<'_>, stack: &Stack, rows: usize) -> anyhow::Result<Report> {
    let machine = Machine::look(bench.servers.directory())?;
    let wire = Wire::open(&stack.vhost, &bench.administrator(), EFFECTS).await?;
    stack.database.execute(TABLE).await?;
    let database: PgConnectOptions = stack.database_url(Service::Order).parse()?;
    let mut connection = database.connect().await?;
    let messages = (0..rows).map(|number| message(number, EFFECTS.name)).collect::<anyhow::Result<Vec<_>>>()?;

    bench.say(format!("{rows} effects by the statements alone, half before and half after the service"));
    let before = bare(bench, &mut connection, rows / 2).await?;
    stack.database.execute("truncate orders.effects, orders.inbox").await?;
    bench.say(format!("{rows} messages into the queue"));
    let parcels = messages.iter().map(Parcel::of).collect::<anyhow::Result<Vec<_>>>()?;
    wire.feed(parcels).await?;

    let mut recipe = stack.recipe_of_another(Service::Order)?;
    recipe.name = "effects".to_owned();
    recipe.program = programs()?.join("effects");
    recipe.environment.insert("AMQP_URL".to_owned(), stack.vhost.url(&bench.administrator()));
    let service = Process::start(recipe).await?;
    let watch = Watch::begin(bench.servers, &[("effects", service.pid()?)]).await?;
    let (begun, begin) = (effects(stack).await?, now());
    let left = async || Ok((rows as u64).saturating_sub(effects(stack).await?));
    bench.wait_for_none("messages wait", left).await?;
    let usage = watch.end()?;
    let last = "select extract(epoch from max(finished_at))::float8 from orders.inbox";
    let end = stack.database.value(last).await?.as_f64().context("a time")?;
    let rate = Rate { count: rows as u64 - begun, seconds: end - begin };

    let checked = check(stack, &wire, &messages).await?;
    service.terminate().await?;
    stack.database.execute("truncate orders.effects, orders.inbox").await?;
    let after = bare(bench, &mut connection, rows / 2).await?;
    let mut report = Report::new("inbox", "effects", rate, ((before + after) / 2.0, LIMIT), usage, machine);
    report.checked = checked;
    Ok(report)
}

async fn effects(stack: &Stack) -> anyhow::Result<u64> {
    stack.database.value("select count(*) from orders.effects").await?.as_u64().context("a number")
}

/// What the consumer does for a batch, without a broker: remember, take effect, commit.
async fn bare(bench: &Bench<'_>, connection: &mut PgConnection, count: usize) -> anyhow::Result<f64> {
    let begin = Instant::now();
    for _ in 0..count / BATCH {
        let ids: Vec<Uuid> = (0..BATCH).map(|_| Uuid::now_v7()).collect();
        let texts: Vec<String> = ids.iter().map(Uuid::to_string).collect();
        let mut transaction = connection.begin().await?;
        sqlx::query(REMEMBER)
            .bind(EFFECTS.name)
            .bind(&texts)
            .bind(&texts)
            .bind(vec!["CapturePayment"; BATCH])
            .bind(&texts)
            .fetch_all(&mut *transaction)
            .await?;
        sqlx::query(EFFECT).bind(&ids).bind(&texts).execute(&mut *transaction).await?;
        transaction.commit().await?;
    }
    let per_second = (count / BATCH * BATCH) as f64 / begin.elapsed().as_secs_f64();
    bench.say(format!("  the statements alone: {per_second:.0} effects/s"));
    Ok(per_second)
}

/// Every message was remembered and took effect once, in the order of its key, and none is left.
async fn check(stack: &Stack, wire: &Wire, messages: &[Message]) -> anyhow::Result<Vec<String>> {
    let rows = messages.len();
    let remembered = stack.database.value("select count(*) from orders.inbox where status = 'done'").await?;
    ensure!(
        remembered.as_u64() == Some(rows as u64),
        "{rows} messages were sent, the inbox has {remembered} that are done"
    );
    let effects: Vec<Uuid> = sqlx::query_scalar("select message_id from orders.effects order by id")
        .fetch_all(stack.database.pool())
        .await?;
    let effects: Vec<String> = effects.iter().map(Uuid::to_string).collect();
    each_once_and_in_order(messages, &effects)?;
    wire.take(0).await.context("a message is left after its effect")?;
    Ok(vec![
        format!("{rows} messages sent, remembered and with an effect, each once; none is left in the queue"),
        format!("effects in order within each of {AGGREGATES} keys"),
    ])
}
