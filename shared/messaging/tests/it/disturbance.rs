//! Sessions killed, connections cut, queues deleted, loops stopped, all in the middle of work: nothing is lost, nothing
//! happens twice, and nothing of it counts against a message.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use messaging::{Backoff, ConsumerSettings, Failure, RetryPolicy};

use crate::support::{Script, Site, WORK, Wire, command, eventually, gated, gated_and_slow, quick, quick_relay};

#[tokio::test(flavor = "multi_thread")]
async fn a_session_killed_in_the_middle_of_the_transaction_leaves_one_effect() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let (pool, is_first) = (site.pool.clone(), Arc::new(AtomicBool::new(true)));
    let script = Script::new().applying(move |transaction, _| {
        let (pool, is_first) = (pool.clone(), is_first.swap(false, Ordering::Relaxed));
        async move {
            if is_first {
                let (pid,): (i32,) = sqlx::query_as("select pg_backend_pid()").fetch_one(&mut *transaction).await?;
                sqlx::query("select pg_terminate_backend($1)").bind(pid).execute(&pool).await?;
                sqlx::query("select 1").execute(&mut *transaction).await?;
            }
            Ok(())
        }
        .boxed()
    });
    let consumer = site.consumer(WORK, script);
    wire.send_all((0..20).map(|n| (format!("k{n}"), "x".to_owned()))).await?;
    site.counted("inbox where status = 'done' and attempts = 1", 20).await?;
    consumer.stop().await?;
    assert_eq!((site.count("effects").await?, wire.depth("work").await?), (20, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_killed_while_handlers_prepare_leaves_one_effect() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let (script, gate) = gated();
    let consumer = site.consumer(WORK, script);
    wire.send_all((0..20).map(|n| (format!("k{n}"), "x".to_owned()))).await?;
    gate.waiting(20).await?;
    site.kill_session("shop.consumer.work").await?;
    gate.open();
    site.counted("inbox where status = 'done'", 20).await?;
    consumer.stop().await?;
    assert_eq!((site.count("effects").await?, wire.depth("work").await?), (20, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_cut_while_twenty_messages_run_loses_and_doubles_nothing() -> anyhow::Result<()> {
    let mut site = Site::open().await?;
    let proxy = site.through_proxy().await?;
    let wire = Wire::open(&site).await?;
    let (script, gate) = gated();
    let settings = ConsumerSettings { prefetch: 20, ..ConsumerSettings::default() };
    let consumer = site.consume(WORK, script, settings, |consumer| consumer);
    for round in 1..=4 {
        gate.close();
        wire.send_all((0..20).map(|n| (format!("k{n}"), format!("{round}")))).await?;
        gate.waiting(20).await?;
        proxy.cut();
        // The first runs end after the recovery, beside the second ones.
        gate.waiting(40).await?;
        gate.open();
        site.counted("inbox where status = 'done'", 20 * round).await?;
    }
    consumer.stop().await?;
    assert_eq!((site.count("effects").await?, wire.depth("work").await?), (80, 0));
    assert_eq!(site.count("(select distinct message_id from effects) e").await?, 80);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_queue_is_declared_again_and_consumed() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let consumer = site.consumer(WORK, Script::new());
    for round in 1..=3 {
        consumer.works().await?;
        wire.send("k", "x").await?;
        site.counted("effects", round).await?;
        site.delete("queues", &["work"]).await?;
        let depth = async || Wire::open(&site).await?.depth("work").await;
        eventually("the queue is there again", depth, |depth| *depth == 0).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_exchange_or_binding_is_there_again_without_a_restart() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let settings = ConsumerSettings { redeclare: Duration::from_millis(500), ..ConsumerSettings::default() };
    let consumer = site.consume(WORK, Script::new(), settings, |consumer| consumer);
    let relay = site.relay(quick_relay());
    consumer.works().await?;
    relay.works().await?;
    for (kind, name) in
        [("exchanges", &["shop.commands"][..]), ("bindings", &["e", "shop.commands", "q", "work", "work"][..])]
    {
        site.delete(kind, name).await?;
        let before = site.count("effects").await?;
        site.append(&(0..10).map(|n| command(&n.to_string(), "work", kind)).collect::<Vec<_>>()).await?;
        site.counted("effects", before + 10).await?;
    }
    // The consumer is the one of the beginning: its channel was not closed over it.
    assert_eq!(site.count("inbox where attempts > 1").await?, 0);
    consumer.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn own_database_or_broker_away_holds_a_message_and_counts_nothing() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let (is_away, runs) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU32::new(0)));
    let (away, counter) = (is_away.clone(), runs.clone());
    let once = RetryPolicy { attempts: Some(1), ..quick() };
    let script = Script::new().policy(once).preparing(move |delivery| {
        let held = delivery.message.text == "held" && away.load(Ordering::Relaxed);
        counter.fetch_add(u32::from(held), Ordering::Relaxed);
        async move { if held { Err(Failure::unavailable("database.away", "gone")) } else { Ok(()) } }.boxed()
    });
    let consumer = site.consumer(WORK, script);
    wire.send("k", "held").await?;
    wire.send("other", "goes on").await?;
    site.counted("effects where text = 'goes on'", 1).await?;
    eventually("it is tried more often than its policy allows", async || Ok(runs.load(Ordering::Relaxed)), |n| *n >= 2)
        .await?;
    assert_eq!(site.count("inbox where key = 'Note:k'").await?, 0);
    is_away.store(false, Ordering::Relaxed);
    site.counted("effects where text = 'held' and attempt = 1", 1).await?;
    consumer.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_stops_finishes_what_it_prepares_and_gives_nothing_back() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    // So that it still prepares when the consumer begins to stop.
    let (script, gate) = gated_and_slow(Duration::from_millis(200));
    let consumer = site.consumer(WORK, script);
    wire.send_all((0..20).map(|n| (format!("k{}", n % 10), "x".to_owned()))).await?;
    gate.waiting(10).await?;
    consumer.begin_stop();
    gate.open();
    consumer.stop().await?;
    assert_eq!((site.count("effects where attempt = 1").await?, wire.depth("work").await?), (20, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stopping_consumer_cannot_finish_counts_no_attempt_and_is_run_by_the_next() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let is_stuck = Arc::new(AtomicBool::new(false));
    let stuck = is_stuck.clone();
    let backoff = Backoff { first: Duration::from_millis(500), factor: 1, longest: Duration::from_millis(500) };
    let policy = RetryPolicy { attempts: Some(3), backoff };
    let script = Script::new().policy(policy).preparing(move |delivery| {
        let (stuck, first) = (stuck.clone(), delivery.attempt.number == 1);
        let fails = first && delivery.message.text == "claimed";
        async move {
            if fails {
                return Err(Failure::transient("test", "once"));
            }
            stuck.store(true, Ordering::Relaxed);
            std::future::pending().await
        }
        .boxed()
    });
    let consumer = site.consumer(WORK, script);
    wire.send("a", "claimed").await?;
    site.counted("inbox where status = 'retrying' and attempts = 2 and unfinished = 1", 1).await?;
    wire.send("b", "fresh").await?;
    eventually("it is stuck", async || Ok(is_stuck.load(Ordering::Relaxed)), |stuck| *stuck).await?;
    consumer.stop().await?;
    assert_eq!(site.count("inbox where status = 'retrying' and attempts = 1 and unfinished = 0").await?, 1);
    let next = site.consumer(WORK, Script::new());
    site.counted("inbox where status = 'done' and unfinished = 0", 2).await?;
    next.stop().await?;
    let attempts: Vec<(String, i32)> = site.rows("select text, attempt from effects order by text").await?;
    assert_eq!(attempts, [("claimed".to_owned(), 2), ("fresh".to_owned(), 1)]);
    Ok(())
}
