//! What a message costs does not depend on how much there was before it.

use std::time::Duration;

use messaging::{Consumer, ConsumerSettings, Failure, Queue};

use crate::support::{Script, Site, WORK, Wire, event, eventually, quick, quick_relay};

/// As many as a quiet day brings between two looks of autovacuum.
const OLD: i64 = 30_000;
const NEW: usize = 100;

/// Rows and index entries that were read in a table so far. Sessions tell it with a delay of a second.
const READ: &str = "select (sum(coalesce(seq_tup_read, 0)) + (select sum(idx_tup_read) from pg_stat_user_indexes i \
                    where i.relname = $table))::bigint from pg_stat_user_tables t where t.relname = $table";

async fn read(site: &Site, table: &str) -> anyhow::Result<i64> {
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    Ok(site.row::<(i64,)>(&READ.replace("$table", &format!("'{table}'"))).await?.0)
}

async fn without_statistics(site: &Site) -> anyhow::Result<()> {
    for table in ["inbox", "outbox"] {
        site.execute(&format!("alter table {table} set (autovacuum_enabled = false)")).await?;
    }
    Ok(())
}

/// Sessions make their plans while the inbox is empty, then it grows, and nobody has counted it.
async fn costs_the_same(queue: Queue, change: fn(Consumer<Script>) -> Consumer<Script>) -> anyhow::Result<()> {
    let site = Site::open().await?;
    without_statistics(&site).await?;
    let wire = Wire::open_on(&site, queue).await?;
    let script = Script::new().policy(quick()).failing(|delivery| {
        match delivery.message.text == "flaky" && delivery.attempt.number == 1 {
            true => Err(Failure::transient("test", "once")),
            false => Ok(()),
        }
    });
    let consumer = site.consume(WORK, script, ConsumerSettings::default(), change);
    for n in 0..10 {
        wire.send(&format!("warm{n}"), "flaky").await?;
        wire.send(&format!("warm{n}"), "calm").await?;
    }
    site.counted("inbox where status = 'done'", 20).await?;
    site.execute(&format!(
        "insert into inbox (consumer, message_id, key, message_type, finished_at)
         select '{}', gen_random_uuid(), n, 'Old', now() from generate_series(1, {OLD}) as n",
        queue.name
    ))
    .await?;
    let before = read(&site, "inbox").await?;
    for n in 0..NEW {
        let text = if n % 10 == 0 { "flaky" } else { "calm" };
        let id = wire.send(&format!("k{n}"), text).await?;
        wire.send_body(id, &Wire::envelope(id, &format!("k{n}"), text)).await?;
    }
    site.counted("effects", 20 + NEW as i64).await?;
    eventually("an empty queue", async || wire.depth(queue.name).await, |depth| *depth == 0).await?;
    consumer.stop().await?;
    let each = (read(&site, "inbox").await? - before) / NEW as i64;
    assert!(each < 40, "{each} rows and index entries were read for each message");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_reads_no_more_of_a_large_inbox_than_of_an_empty_one() -> anyhow::Result<()> {
    costs_the_same(WORK, |consumer| consumer).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordered_consumer_reads_no_more_of_a_large_inbox_either() -> anyhow::Result<()> {
    costs_the_same(Queue { single_active_consumer: true, ..WORK }, Consumer::ordered).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_reads_no_more_of_a_large_outbox_than_of_an_empty_one() -> anyhow::Result<()> {
    let site = Site::open().await?;
    without_statistics(&site).await?;
    let relay = site.relay(quick_relay());
    site.append(&[event("warm", "up")]).await?;
    site.counted("outbox_history", 1).await?;
    site.execute(&format!(
        "insert into outbox (event_id, aggregate_type, aggregate_id, event_type, correlation_id, exchange, routing_key,
                             mandatory, payload, attempts, next_attempt_at)
         select gen_random_uuid(), 'Held', n, 'Old', 'c', 'nowhere', 'k', false, '{{}}', 1, now() + interval '1 hour'
         from generate_series(1, {OLD}) as n"
    ))
    .await?;
    let before = read(&site, "outbox").await?;
    for n in 0..NEW {
        site.append(&[event(&format!("k{n}"), "new")]).await?;
    }
    site.counted("outbox_history", 1 + NEW as i64).await?;
    relay.stop().await?;
    let each = (read(&site, "outbox").await? - before) / NEW as i64;
    assert!(each < 40, "{each} rows and index entries were read for each message");
    Ok(())
}
