//! An effect is once per message id, whatever is delivered twice, killed or cut off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use messaging::{ConsumerSettings, Failure, outbox};
use tokio::sync::{Barrier, Semaphore};
use uuid::Uuid;

use crate::support::{EVENTS, Script, Site, Spy, WORK, Wire, event, eventually, quick_relay};

#[tokio::test(flavor = "multi_thread")]
async fn two_copies_at_two_consumers_at_once_have_one_effect() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let barrier = Arc::new(Barrier::new(2));
    let script = Script::new().preparing(move |_| {
        let barrier = barrier.clone();
        // Both have found that the message is new.
        async move { barrier.wait().map(|_| Ok(())).await }.boxed()
    });
    let consumers = [site.consumer(WORK, script.clone()), site.consumer(WORK, script)];
    for consumer in &consumers {
        consumer.works().await?;
    }
    for round in 1..=20 {
        let id = Uuid::now_v7();
        let body = Wire::envelope(id, "k", "twin");
        wire.send_body(id, &body).await?;
        wire.send_body(id, &body).await?;
        site.counted("inbox where status = 'done'", round).await?;
        site.counted("effects", round).await?;
    }
    for consumer in consumers {
        consumer.stop().await?;
    }
    assert_eq!((site.count("effects").await?, wire.depth("work").await?), (20, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_comes_again_later_changes_and_emits_nothing() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let script = Script::new().applying(|transaction, batch| {
        async move {
            let follow: Vec<_> = batch.iter().map(|ready| event("f", &ready.delivery.message.text)).collect();
            outbox::append(transaction, &follow).await
        }
        .boxed()
    });
    let consumer = site.consumer(WORK, script);
    let id = wire.send("k", "once").await?;
    site.counted("effects", 1).await?;
    for _ in 0..3 {
        wire.send_body(id, &Wire::envelope(id, "k", "once")).await?;
    }
    wire.send("k", "last").await?;
    site.counted("effects where text = 'last'", 1).await?;
    consumer.stop().await?;
    assert_eq!((site.count("effects").await?, site.count("outbox").await?, wire.depth("work").await?), (2, 2, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_messages_with_one_id_in_one_batch_have_one_effect() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    // A sender's mistake: the same id about two aggregates, so the key's slot does not keep them apart.
    let id = Uuid::now_v7();
    wire.send_body(id, &Wire::envelope(id, "k1", "first")).await?;
    wire.send_body(id, &Wire::envelope(id, "k2", "second")).await?;
    let consumer = site.consumer(WORK, Script::new());
    site.counted("effects", 1).await?;
    consumer.stop().await?;
    assert_eq!((site.count("effects").await?, site.count("inbox").await?, wire.depth("work").await?), (1, 1, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_messages_of_one_handler_go_out_once() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    let relay = site.relay(quick_relay());
    let script = Script::new().applying(|transaction, batch| {
        async move {
            for _ in batch.iter().filter(|ready| ready.delivery.message.text == "many") {
                let follow: Vec<_> = (0..5_000).map(|n| event(&format!("{}", n % 7), "follow")).collect();
                outbox::append(&mut *transaction, &follow).await?;
            }
            Ok(())
        }
        .boxed()
    });
    let consumer = site.consumer(WORK, script);
    wire.send("k", "many").await?;
    spy.saw(5_000).await?;
    // They come back to the same queue, which is bound to the events.
    site.counted("effects", 5_001).await?;
    consumer.stop().await?;
    relay.stop().await?;
    assert_eq!(spy.all().await?.len(), 5_000);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn serialization_conflicts_are_run_again_at_once_and_count_nothing() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let runs = Arc::new(AtomicU32::new(0));
    let counter = runs.clone();
    let script = Script::new().applying(move |transaction, _| {
        let run = counter.fetch_add(1, Ordering::Relaxed);
        async move {
            if run < 4 {
                let conflict = "do $$ begin raise exception using errcode = '40001'; end $$";
                sqlx::query(conflict).execute(transaction).await?;
            }
            Ok(())
        }
        .boxed()
    });
    let consumer = site.consumer(WORK, script);
    wire.send("k", "meets another").await?;
    site.counted("effects where attempt = 1", 1).await?;
    consumer.stop().await?;
    assert_eq!((runs.load(Ordering::Relaxed), site.count("inbox where attempts = 1").await?), (5, 1));
    Ok(())
}

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
    for round in 1..=10 {
        gate.close();
        wire.send_all((0..20).map(|n| (format!("k{n}"), format!("{round}")))).await?;
        gate.waiting(20).await?;
        proxy.cut();
        gate.open();
        site.counted("inbox where status = 'done'", 20 * round).await?;
    }
    consumer.stop().await?;
    assert_eq!((site.count("effects").await?, wire.depth("work").await?), (200, 0));
    assert_eq!(site.count("(select distinct message_id from effects) e").await?, 200);
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
async fn own_database_or_broker_away_holds_a_message_and_counts_nothing() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let (is_away, runs) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU32::new(0)));
    let (away, counter) = (is_away.clone(), runs.clone());
    let script = Script::new().preparing(move |delivery| {
        let held = delivery.message.text == "held" && away.load(Ordering::Relaxed);
        counter.fetch_add(u32::from(held), Ordering::Relaxed);
        async move { if held { Err(Failure::unavailable("database.away", "gone")) } else { Ok(()) } }.boxed()
    });
    let consumer = site.consumer(WORK, script);
    wire.send("k", "held").await?;
    wire.send("other", "goes on").await?;
    site.counted("effects where text = 'goes on'", 1).await?;
    eventually("it is tried more often than its policy allows", async || Ok(runs.load(Ordering::Relaxed)), |n| *n >= 4).await?;
    assert_eq!(site.count("inbox where key = 'Note:k'").await?, 0);
    is_away.store(false, Ordering::Relaxed);
    site.counted("effects where text = 'held' and attempt = 1", 1).await?;
    consumer.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_waiting_messages_are_taken_within_the_prefetch() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    wire.send_all((0..10_000).map(|n| (format!("k{n}"), "x".to_owned()))).await?;
    let (script, gate) = gated();
    let settings = ConsumerSettings { prefetch: 300, ..ConsumerSettings::default() };
    let consumer = site.consume(WORK, script, settings, |consumer| consumer);
    gate.waiting(300).await?;
    eventually("the rest stays at the broker", async || wire.depth("work").await, |depth| *depth == 9_700).await?;
    gate.open();
    site.counted("inbox where status = 'done'", 10_000).await?;
    consumer.stop().await?;
    assert_eq!((site.count("effects").await?, wire.depth("work").await?), (10_000, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_stops_finishes_what_it_prepares_and_gives_nothing_back() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let (script, gate) = gated();
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
    let backoff = messaging::Backoff { first: Duration::from_millis(500), factor: 1, longest: Duration::from_millis(500) };
    let policy = messaging::RetryPolicy { attempts: Some(3), backoff };
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

/// A handler that waits in its first half until the gate is open.
fn gated() -> (Script, Gate) {
    let gate = Gate { open: Arc::new(Semaphore::new(0)), waiting: Arc::default() };
    let (open, waiting) = (gate.open.clone(), gate.waiting.clone());
    let script = Script::new().preparing(move |_| {
        let (open, waiting) = (open.clone(), waiting.clone());
        async move {
            waiting.fetch_add(1, Ordering::Relaxed);
            drop(open.acquire().await);
            waiting.fetch_sub(1, Ordering::Relaxed);
            Ok(())
        }
        .boxed()
    });
    (script, gate)
}

struct Gate {
    open: Arc<Semaphore>,
    waiting: Arc<AtomicU32>,
}

impl Gate {
    async fn waiting(&self, expected: u32) -> anyhow::Result<()> {
        let look = async || Ok(self.waiting.load(Ordering::Relaxed));
        eventually("handlers wait at the gate", look, |waiting| *waiting == expected).await.map(drop)
    }

    fn open(&self) {
        self.open.add_permits(1_000);
    }

    fn close(&self) {
        self.open.forget_permits(self.open.available_permits());
    }
}
