//! An effect is once per message id, however often and wherever it is delivered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use messaging::{ConsumerSettings, outbox};
use tokio::sync::Barrier;
use uuid::Uuid;

use crate::support::{EVENTS, Script, Site, Spy, WORK, Wire, event, eventually, gated, quick_relay};

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
    consumer.stop().await?;
    relay.stop().await?;
    assert_eq!(spy.all().await?.len(), 5_000);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_messages_of_a_handler_that_takes_too_long_are_never_sent() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    let relay = site.relay(quick_relay());
    let script = Script::new().applying(|transaction, batch| {
        async move {
            if batch.iter().any(|ready| ready.delivery.message.text == "endless") {
                let follow: Vec<_> = (0..5_000).map(|n| event(&format!("{n}"), "follow")).collect();
                outbox::append(&mut *transaction, &follow).await?;
                tokio::time::sleep(Duration::from_secs(40)).await;
            }
            Ok(())
        }
        .boxed()
    });
    let settings = ConsumerSettings { apply_deadline: Duration::from_secs(1), ..ConsumerSettings::default() };
    let consumer = site.consume(WORK, script, settings, |consumer| consumer);
    wire.send("k", "endless").await?;
    site.counted("inbox where status = 'parked' and error_code = 'handler.deadline'", 1).await?;
    wire.send("k", "next").await?;
    site.counted("effects where text = 'next'", 1).await?;
    consumer.stop().await?;
    relay.stop().await?;
    assert_eq!((site.count("effects").await?, site.count("outbox_log").await?, spy.all().await?.len()), (1, 0, 0));
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
