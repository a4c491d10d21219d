//! What fails is kept, whole and where it can be seen; it never takes its neighbours with it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use lapin::types::{AMQPValue, FieldTable};
use messaging::{Backoff, ConsumerSettings, Failure, Queue, RetryPolicy, State};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Script, Site, WORK, Wire, quick};

type Runs = Arc<Mutex<Vec<(String, u32)>>>;

/// Fails transiently for the text `bad`, and remembers each of its runs.
fn transient_for_bad(policy: RetryPolicy) -> (Script, Runs) {
    let runs = Runs::default();
    let notebook = runs.clone();
    let script = Script::new().policy(policy).failing(move |delivery| {
        if delivery.message.text != "bad" {
            return Ok(());
        }
        notebook.lock().unwrap().push(("bad".to_owned(), delivery.attempt.number));
        Err(Failure::transient("provider.timeout", "asking the provider").caused_by("nobody answered"))
    });
    (script, runs)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_batch_of_a_hundred_only_the_culprit_is_set_aside() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let texts = (0..100).map(|n| (format!("k{n}"), if n == 37 { "bad" } else { "good" }.to_owned()));
    wire.send_all(texts).await?;
    let backoff = Backoff { first: Duration::from_secs(600), factor: 1, longest: Duration::from_secs(600) };
    let (script, runs) = transient_for_bad(RetryPolicy { attempts: None, backoff });
    let consumer = site.consumer(WORK, script);
    site.counted("inbox where status = 'done'", 99).await?;
    site.counted("inbox where status = 'retrying' and attempts = 1 and next_attempt_at > now()", 1).await?;
    consumer.stop().await?;
    assert_eq!((site.count("effects").await?, wire.depth("work").await?), (99, 0));
    // Once among the others, once alone.
    assert!(runs.lock().unwrap().iter().all(|(_, attempt)| *attempt == 1));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_somebody_holds_in_our_database_parks_nothing() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let mut holder = site.connection().await?;
    sqlx::query("select pg_advisory_lock(4711)").execute(&mut holder).await?;
    let script = Script::new().policy(RetryPolicy { attempts: Some(2), ..quick() }).applying(|transaction, _| {
        async move {
            sqlx::query("select pg_advisory_xact_lock(4711)").execute(transaction).await?;
            Ok(())
        }
        .boxed()
    });
    let consumer = site.consumer(WORK, script);
    wire.send("k", "patient").await?;
    // More attempts than the policy gives to failures of its own.
    site.counted("inbox where status = 'retrying' and attempts = 3 and error_code = 'database.55P03'", 1).await?;
    sqlx::query("select pg_advisory_unlock(4711)").execute(&mut holder).await?;
    site.counted("inbox where status = 'done'", 1).await?;
    consumer.stop().await?;
    assert_eq!((site.count("effects").await?, wire.depth("work").await?), (1, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transient_failure_is_tried_to_its_last_attempt_and_parked_whole() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let (script, runs) = transient_for_bad(quick());
    let consumer = site.consumer(WORK, script);
    let id = Uuid::now_v7();
    let mut body = Wire::envelope(id, "k", "bad");
    body["unknownField"] = json!({ "kept": [1, 2] });
    let body = format!(" {body}\n");
    let mut headers = FieldTable::default();
    headers.insert("sequence".into(), AMQPValue::LongLongInt(7));
    headers.insert("tenant".into(), AMQPValue::LongString("blue".into()));
    let properties = Wire::properties(id)
        .with_correlation_id("test".into())
        .with_app_id("elsewhere".into())
        .with_content_type("application/json".into())
        .with_timestamp(1_700_000_000)
        .with_reply_to("somewhere".into())
        .with_headers(headers);
    wire.send_raw(body.as_bytes(), properties).await?;
    wire.send("k", "good").await?;
    site.counted("inbox where status = 'parked'", 1).await?;
    site.counted("effects where text = 'good'", 1).await?;
    consumer.stop().await?;
    let attempts: Vec<u32> = runs.lock().unwrap().iter().map(|(_, attempt)| *attempt).collect();
    let mut distinct = attempts.clone();
    distinct.dedup();
    assert_eq!(distinct, [1, 2, 3], "{attempts:?}");
    let parked: Parked = site.row(&format!("{PARKED} and message_id = '{id}'")).await?;
    assert_eq!((parked.attempts, parked.key.as_str(), parked.correlation_id.as_deref()), (3, "Note:k", Some("test")));
    assert_eq!(parked.error_class.as_deref(), Some("Transient"));
    assert_eq!(parked.error_code.as_deref(), Some("provider.timeout"));
    assert_eq!(parked.last_error.as_deref(), Some("asking the provider: nobody answered"));
    assert_eq!(String::from_utf8(parked.body)?, body);
    assert_eq!((parked.exchange.as_str(), parked.routing_key.as_str()), ("shop.commands", "work"));
    let expected = json!({
        "messageId": id, "type": "NoteWritten", "correlationId": "test", "appId": "elsewhere", "deliveryMode": 2,
        "contentType": "application/json", "timestamp": 1_700_000_000, "replyTo": "somewhere",
        "headers": { "sequence": 7, "tenant": "blue" },
    });
    assert_eq!(parked.properties, expected);
    assert_eq!(site.count("effects where text = 'bad'").await?, 0);
    Ok(())
}

#[derive(sqlx::FromRow)]
struct Parked {
    attempts: i32,
    key: String,
    correlation_id: Option<String>,
    error_class: Option<String>,
    error_code: Option<String>,
    last_error: Option<String>,
    body: Vec<u8>,
    properties: Value,
    exchange: String,
    routing_key: String,
}

const PARKED: &str = "select attempts, key, correlation_id, error_class, error_code, last_error, body, properties,
                      exchange, routing_key from inbox where status = 'parked'";

#[tokio::test(flavor = "multi_thread")]
async fn attempts_are_counted_over_restarts() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let backoff = Backoff { first: Duration::from_millis(300), factor: 1, longest: Duration::from_millis(300) };
    let (script, runs) = transient_for_bad(RetryPolicy { attempts: Some(4), backoff });
    wire.send("k", "bad").await?;
    for attempts in 1..=3 {
        let consumer = site.consumer(WORK, script.clone());
        site.counted(&format!("inbox where attempts >= {attempts}"), 1).await?;
        consumer.stop().await?;
    }
    let _last = site.consumer(WORK, script);
    site.counted("inbox where status = 'parked' and attempts = 4", 1).await?;
    let runs: Vec<u32> = runs.lock().unwrap().iter().map(|(_, attempt)| *attempt).collect();
    assert_eq!(runs, [1, 2, 3, 4]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permanent_failure_parks_at_once_in_either_half() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let refuse = |text: &str, half: &str| match text == half {
        true => Err(Failure::permanent("note.broken", "reading the note")),
        false => Ok(()),
    };
    let script = Script::new()
        .preparing(move |delivery| async move { refuse(&delivery.message.text, "prepare") }.boxed())
        .failing(move |delivery| refuse(&delivery.message.text, "apply"));
    let consumer = site.consumer(WORK, script);
    for text in ["prepare", "apply", "good"] {
        wire.send(text, text).await?;
    }
    let parked =
        "inbox where status = 'parked' and attempts = 1 and error_class = 'Permanent' and error_code = 'note.broken'";
    site.counted(parked, 2).await?;
    site.counted("effects", 1).await?;
    consumer.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_either_half_counts_as_a_failed_attempt_and_the_loop_lives() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let script = Script::new()
        .preparing(|delivery| {
            async move {
                assert!(delivery.message.text != "prepare", "in prepare");
                Ok(())
            }
            .boxed()
        })
        .failing(|delivery| {
            assert!(delivery.message.text != "apply", "in apply");
            Ok(())
        });
    let consumer = site.consumer(WORK, script);
    for text in ["prepare", "apply", "good"] {
        wire.send(text, text).await?;
    }
    site.counted("inbox where status = 'parked' and attempts = 3 and error_code = 'handler.panicked'", 2).await?;
    wire.send("k", "later").await?;
    site.counted("effects", 2).await?;
    consumer.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_beyond_its_deadline_is_rolled_back_and_tried_again() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let script = Script::new().applying(|transaction, batch| {
        async move {
            for ready in batch.iter().filter(|ready| ready.delivery.attempt.number == 1) {
                match ready.delivery.message.text.as_str() {
                    "waits" => std::future::pending().await,
                    // The server is busy with it long after the client has gone.
                    "queries" => {
                        sqlx::query("select pg_sleep(8)").execute(&mut *transaction).await?;
                    }
                    _ => {}
                }
            }
            Ok(())
        }
        .boxed()
    });
    let settings = ConsumerSettings { apply_deadline: Duration::from_millis(400), ..ConsumerSettings::default() };
    let consumer = site.consume(WORK, script, settings, |consumer| consumer);
    for text in ["good", "waits", "queries"] {
        wire.send(text, text).await?;
    }
    site.counted("effects", 3).await?;
    consumer.stop().await?;
    let attempts: Vec<(String, i32)> = site.rows("select text, attempt from effects order by text").await?;
    assert_eq!(attempts, [("good".to_owned(), 1), ("queries".to_owned(), 2), ("waits".to_owned(), 2)]);
    assert_eq!(site.count("inbox where status = 'done' and error_code = 'handler.deadline'").await?, 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_waits_no_longer_than_its_own_time() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let script = Script::new().failing(|delivery| match (delivery.message.text.as_str(), delivery.attempt.number) {
        ("long", 1) => Err(Failure::transient("busy", "busy").retry_after(Duration::from_secs(600))),
        ("short", 1) => Err(Failure::transient("busy", "busy").retry_after(Duration::from_millis(300))),
        _ => Ok(()),
    });
    let _consumer = site.consumer(WORK, script);
    wire.send("a", "long").await?;
    site.counted("inbox where next_attempt_at > now() + interval '500 seconds'", 1).await?;
    wire.send("b", "short").await?;
    site.counted("effects where text = 'short'", 1).await?;
    let waited = "inbox where status = 'done' and finished_at - received_at >= interval '300 milliseconds'";
    assert_eq!(site.count(waited).await?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_due_retry_runs_as_soon_as_it_is_due() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let backoff = Backoff { first: Duration::from_millis(5), factor: 1, longest: Duration::from_millis(5) };
    let script = Script::new().policy(RetryPolicy { attempts: None, backoff }).failing(|delivery| {
        match delivery.attempt.number {
            100 => Ok(()),
            _ => Err(Failure::transient("test", "not yet")),
        }
    });
    let _consumer = site.consumer(WORK, script);
    wire.send("k", "tries often").await?;
    // Were each to wait for the consumer's regular look at its inbox, this would take more than a minute.
    site.counted("effects where attempt = 100", 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_exists_with_other_arguments_stops_its_consumer_only_and_says_which() -> anyhow::Result<()> {
    const ODD: Queue = Queue { name: "odd", bindings: &[], single_active_consumer: false };
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let durable = lapin::options::QueueDeclareOptions { durable: true, ..Default::default() };
    wire.channel.queue_declare("odd".into(), durable, FieldTable::default()).await?;
    let refused = site.consumer(ODD, Script::new());
    let works = site.consumer(WORK, Script::new());
    let reason = refused.is(|state| matches!(state, State::Waiting { .. })).await?;
    assert!(format!("{reason:?}").contains("x-queue-type"), "{reason:?}");
    wire.send("k", "good").await?;
    site.counted("effects", 1).await?;
    works.works().await?;
    // It looks again by itself.
    site.delete("queues", &["odd"]).await?;
    refused.works().await?;
    refused.stop().await?;
    works.stop().await
}
