//! An ordered consumer: while a key has a message that is not done, the later ones of that key wait, and only they.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use messaging::{Backoff, ConsumerSettings, Failure, Queue, RetryPolicy};
use serde_json::json;
use uuid::Uuid;

use crate::support::{Loop, Script, Site, WORK, Wire, eventually};

const ORDERED: Queue = Queue { single_active_consumer: true, ..WORK };

fn start(site: &Site, script: Script) -> Loop {
    site.consume(WORK, script, ConsumerSettings::default(), messaging::Consumer::ordered)
}

/// Fails for the text `bad` as long as the switch says so.
fn failing_while(switch: &Arc<AtomicBool>, attempts: Option<u32>) -> Script {
    let switch = switch.clone();
    let backoff = Backoff { first: Duration::from_millis(50), factor: 1, longest: Duration::from_millis(50) };
    Script::new().policy(RetryPolicy { attempts, backoff }).failing(move |delivery| {
        match delivery.message.text == "bad" && switch.load(Ordering::Relaxed) {
            true => Err(Failure::transient("test", "not yet")),
            false => Ok(()),
        }
    })
}

async fn texts(site: &Site, key: &str) -> anyhow::Result<Vec<String>> {
    let rows: Vec<(String,)> = site.rows(&format!("select text from effects where key = '{key}' order by id")).await?;
    Ok(rows.into_iter().map(|(text,)| text).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_key_retries_its_later_messages_wait_and_other_keys_go_on() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let is_bad = Arc::new(AtomicBool::new(true));
    let consumer = start(&site, failing_while(&is_bad, None));
    consumer.works().await?;
    let wire = Wire::open_on(&site, ORDERED).await?;
    wire.send("a", "first").await?;
    wire.send("a", "bad").await?;
    wire.send_all((0..5).map(|n| ("a".to_owned(), n.to_string()))).await?;
    wire.send_all((0..5).map(|n| ("b".to_owned(), n.to_string()))).await?;
    site.counted("effects where key = 'b'", 5).await?;
    site.counted("inbox where status = 'waiting'", 5).await?;
    site.counted("inbox where status = 'retrying' and attempts >= 3", 1).await?;
    // One that comes long after waits too.
    wire.send("a", "5").await?;
    site.counted("inbox where status = 'waiting'", 6).await?;
    assert_eq!(texts(&site, "a").await?, ["first"]);
    is_bad.store(false, Ordering::Relaxed);
    site.counted("inbox where status = 'done'", 13).await?;
    consumer.stop().await?;
    assert_eq!(texts(&site, "a").await?, ["first", "bad", "0", "1", "2", "3", "4", "5"]);
    assert_eq!(wire.depth("work").await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_message_holds_its_key_until_it_is_discarded() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let is_bad = Arc::new(AtomicBool::new(true));
    let consumer = start(&site, failing_while(&is_bad, Some(2)));
    consumer.works().await?;
    let wire = Wire::open_on(&site, ORDERED).await?;
    wire.send("a", "bad").await?;
    site.counted("inbox where status = 'parked'", 1).await?;
    wire.send_all(["1", "2", "3"].map(|text| ("a".to_owned(), text.to_owned()))).await?;
    wire.send("b", "other").await?;
    site.counted("effects where key = 'b'", 1).await?;
    site.counted("inbox where status = 'waiting'", 3).await?;
    assert_eq!(texts(&site, "a").await?, Vec::<String>::new());
    site.execute("update inbox set status = 'discarded', body = null where status = 'parked'").await?;
    site.counted("inbox where status = 'done'", 4).await?;
    consumer.stop().await?;
    assert_eq!(texts(&site, "a").await?, ["1", "2", "3"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_an_unknown_type_holds_its_key_from_the_very_next_message_on() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open_on(&site, ORDERED).await?;
    // All in one delivery, so that nobody can have asked the inbox in between.
    let id = Uuid::now_v7();
    let mut body = Wire::envelope(id, "a", "x");
    body["eventType"] = json!("NoteBurnt");
    wire.send_body(id, &body).await?;
    wire.send_all((0..5).map(|n| ("a".to_owned(), n.to_string()))).await?;
    wire.send("b", "other").await?;
    let consumer = start(&site, Script::new());
    site.counted("effects where key = 'b'", 1).await?;
    site.counted("inbox where status = 'waiting'", 5).await?;
    consumer.stop().await?;
    assert_eq!(texts(&site, "a").await?, Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn redelivery_keeps_the_order_of_each_key() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let is_held = Arc::new(AtomicBool::new(true));
    let held = is_held.clone();
    let waits = Arc::new(AtomicBool::new(false));
    let waiting = waits.clone();
    let script = Script::new().preparing(move |_| {
        let (held, waiting) = (held.clone(), waiting.clone());
        async move {
            while held.load(Ordering::Relaxed) {
                waiting.store(true, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        }
        .boxed()
    });
    // The first of each key fails once more after the redelivery: the others must not overtake it then either.
    let script =
        script.failing(|delivery| match delivery.attempt.number == 1 && delivery.message.text.as_str() < "10" {
            true => Err(Failure::transient("test", "not yet")),
            false => Ok(()),
        });
    let consumer = start(&site, script);
    consumer.works().await?;
    let wire = Wire::open_on(&site, ORDERED).await?;
    wire.send_all((0..100).map(|n| (format!("k{}", n % 10), format!("{n:02}")))).await?;
    eventually("the first of each key runs", async || Ok(waits.load(Ordering::Relaxed)), |waits| *waits).await?;
    site.close_connection("shop.work").await?;
    is_held.store(false, Ordering::Relaxed);
    site.counted("inbox where status = 'done'", 100).await?;
    consumer.stop().await?;
    assert_eq!(site.count("effects").await?, 100);
    for key in 0..10 {
        let texts = texts(&site, &format!("k{key}")).await?;
        assert!(texts.len() == 10 && texts.is_sorted(), "{texts:?}");
    }
    Ok(())
}
