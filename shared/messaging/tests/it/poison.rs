//! Messages that nobody can read, and messages that are meant to do harm: parked once, whole, and the queue goes on.

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use messaging::Failure;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Script, Site, WORK, Wire};

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_nobody_can_read_are_parked_once_and_the_queue_goes_on() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let valid = |change: &dyn Fn(&mut Value)| {
        let id = Uuid::now_v7();
        let mut body = Wire::envelope(id, "k", "x");
        change(&mut body);
        (body.to_string().into_bytes(), Wire::properties(id))
    };
    let with_id = || Wire::properties(Uuid::now_v7());
    let (without_id, _) = valid(&|_| {});
    let corpus: Vec<(&str, Vec<u8>, BasicProperties)> = [
        ("message.unreadable", (b"not json".to_vec(), with_id())),
        ("message.unreadable", (b"{}".to_vec(), with_id())),
        ("message.unreadable", (b"[1, 2]".to_vec(), with_id())),
        ("message.unreadable", (Vec::new(), with_id())),
        ("message.unreadable", (vec![0xff, 0xfe, 0x00], with_id())),
        ("message.unreadable", (br#"{"eventId": "no uuid"}"#.to_vec(), with_id())),
        ("message.unreadable", valid(&|body| body["schemaVersion"] = json!(-1))),
        ("message.unreadable", valid(&|body| body["occurredAt"] = json!("yesterday"))),
        ("message.without_id", (Vec::new(), BasicProperties::default())),
        ("message.without_id", (without_id, BasicProperties::default())),
        ("message.id_mismatch", valid(&|body| body["eventId"] = json!(Uuid::now_v7()))),
        ("message.unknown_type", valid(&|body| body["eventType"] = json!("NoteBurnt"))),
        ("message.unknown_type", valid(&|body| body["schemaVersion"] = json!(2))),
        ("message.payload", valid(&|body| body["payload"] = json!({ "text": 7 }))),
        ("message.payload", valid(&|body| body["payload"] = Value::Null)),
        ("message.too_large", (vec![b' '; 512 * 1024 + 1], with_id())),
    ]
    .into_iter()
    .map(|(code, (body, properties))| (code, body, properties))
    .collect();
    for (_, body, properties) in &corpus {
        wire.send_raw(body, properties.clone()).await?;
    }
    let consumer = site.consumer(WORK, Script::new());
    wire.send("k", "good").await?;
    site.counted("effects", 1).await?;
    site.counted("inbox where status = 'parked'", i64::try_from(corpus.len())?).await?;
    consumer.stop().await?;
    assert_eq!(wire.depth("work").await?, 0);
    let parked: Vec<(String, Vec<u8>)> =
        site.rows("select error_code, body from inbox where status = 'parked' order by seq").await?;
    let expected: Vec<(String, Vec<u8>)> = corpus.into_iter().map(|(code, body, _)| (code.to_owned(), body)).collect();
    for (seen, expected) in parked.iter().zip(&expected) {
        assert_eq!(seen.0, expected.0, "{}", String::from_utf8_lossy(&expected.1[..expected.1.len().min(80)]));
        assert!(seen.1 == expected.1, "the body of {} is kept byte for byte", seen.0);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_without_id_is_parked_once_however_often_it_comes() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let consumer = site.consumer(WORK, Script::new());
    for _ in 0..3 {
        wire.send_raw(b"", BasicProperties::default()).await?;
    }
    wire.send("k", "good").await?;
    site.counted("effects", 1).await?;
    consumer.stop().await?;
    assert_eq!(site.count("inbox where status = 'parked' and message_id like 'sha256:%'").await?, 1);
    assert_eq!(wire.depth("work").await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_headers_and_names_harm_neither_the_message_nor_the_queue() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let long = |bytes: usize| AMQPValue::LongString("x".repeat(bytes).into());
    let mut deep = AMQPValue::Boolean(true);
    for _ in 0..150 {
        deep = AMQPValue::FieldArray(vec![deep].into());
    }
    let table: FieldTable =
        [("a\0b".into(), AMQPValue::Void)].into_iter().collect::<std::collections::BTreeMap<_, _>>().into();
    let hostile = [
        ("traceparent", AMQPValue::LongString("".into())),
        ("traceparent", long(10_000)),
        ("traceparent", AMQPValue::LongString(vec![0xff, 0x00, 0xfe].into())),
        ("traceparent", AMQPValue::FieldTable(table)),
        ("traceparent", AMQPValue::Double(0.5)),
        ("tracestate", long(60_000)),
        ("baggage", AMQPValue::ByteArray(vec![0; 100].into())),
        ("sequence", AMQPValue::LongString("no number".into())),
        ("nul\0in its name", AMQPValue::LongString("a\0b".into())),
        ("deep", deep),
    ];
    // Each one fails once, so that it is kept and read again from there.
    let script = Script::new().failing(|delivery| match delivery.attempt.number {
        1 => Err(Failure::transient("once", "once")),
        _ => Ok(()),
    });
    let consumer = site.consumer(WORK, script);
    let count = i64::try_from(hostile.len())?;
    for (n, (name, value)) in hostile.into_iter().enumerate() {
        let id = Uuid::now_v7();
        let mut headers = FieldTable::default();
        headers.insert(name.into(), value);
        let body = Wire::envelope(id, &format!("k{n}"), "x").to_string();
        wire.send_raw(body.as_bytes(), Wire::properties(id).with_headers(headers)).await?;
    }
    site.counted("inbox where status = 'done'", count).await?;
    let id = Uuid::now_v7();
    let mut body = Wire::envelope(id, "nul\0key", "x");
    body["correlationId"] = json!("nul\0correlation");
    let properties = Wire::properties(id).with_type("nul\0type".into()).with_correlation_id("nul\0".into());
    wire.send_raw(body.to_string().as_bytes(), properties).await?;
    // An index cannot hold every key, and noise cannot be compressed.
    let noise: String = (0..5_000).map(|_| rand::random_range('\u{4e00}'..'\u{9f00}')).collect();
    let id = Uuid::now_v7();
    wire.send_body(id, &Wire::envelope(id, &noise, "long key")).await?;
    wire.send("k", "good").await?;
    site.counted("inbox where status = 'done'", count + 2).await?;
    // PostgreSQL refuses a NUL in what the handler writes: that parks the message, and only that.
    site.counted("inbox where status = 'parked' and key like 'Note:nul%'", 1).await?;
    consumer.stop().await?;
    assert_eq!(wire.depth("work").await?, 0);
    Ok(())
}
