//! What no saga of this form can be faster than, however it is written: all that it waits for at the broker and at the
//! disk, one after another, by bare clients on the same servers.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use contracts::topology::COMMANDS;
use futures::StreamExt as _;
use lapin::Confirmation;
use messaging::Queue;
use sqlx::Connection as _;

use super::Bench;
use super::report::Floor;
use super::traffic::message;
use super::wire::{Parcel, Wire};
use crate::Stack;

const QUEUE: Queue = Queue { name: "bench.chain", bindings: &[(COMMANDS, KEY)], single_active_consumer: false };
const KEY: &str = "bench.chain";
/// Three commands, three answers, and the event that the order is complete.
const MESSAGES: usize = 7;
/// The order; for each step the participant's decision and the saga's; the decisions of provider and carrier.
const COMMITS: usize = 9;
const IS: &str = "7 durable messages and 9 commits, one after another, by bare clients while nothing else runs";
const TIMES: usize = 50;

/// The median of some.
pub(super) async fn measure(bench: &Bench<'_>, stack: &Stack) -> anyhow::Result<Floor> {
    bench.say(format!("{IS}, {TIMES} times"));
    let wire = Wire::open(&stack.vhost, &bench.administrator(), QUEUE).await?;
    let mut arrivals = wire.arrivals().await?;
    let channel = wire.confirming().await?;
    let parcel = Parcel::of(&message(0, KEY)?)?;
    stack.database.execute("create table public.bench_chain (body bytea)").await?;
    let mut database = stack.database.pool().acquire().await?;
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let begin = Instant::now();
        for _ in 0..MESSAGES {
            match wire.send(&channel, parcel.clone()).await?.await? {
                Confirmation::Ack(None) => {}
                other => bail!("the broker did not take a message of the bare client: {other:?}"),
            }
            arrivals.next().await.context("the consumer has ended")??;
        }
        for _ in 0..COMMITS {
            let mut transaction = database.begin().await?;
            let insert = sqlx::query("insert into public.bench_chain values ($1)").bind(&parcel.body);
            insert.execute(&mut *transaction).await?;
            transaction.commit().await?;
        }
        times.push(begin.elapsed());
    }
    times.sort();
    let median: Duration = times[TIMES / 2];
    Ok(Floor { ms: median.as_secs_f64() * 1_000.0, is: IS })
}
