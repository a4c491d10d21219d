//! What is appended is published if and only if its transaction commits, and once where nothing fails.

use lapin::types::AMQPValue;
use messaging::{AfterPublish, Cause, Class, RelaySettings, outbox};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{EVENTS, Seen, Site, Spy, event, eventually, quick_relay};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_rolled_back_is_never_published() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    let relay = site.relay(quick_relay());
    let mut transaction = site.pool.begin().await?;
    outbox::append(&mut transaction, &[event("a", "undone")]).await?;
    transaction.rollback().await?;
    site.append(&[event("a", "kept")]).await?;
    spy.saw(1).await?;
    relay.stop().await?;
    assert_eq!(spy.texts().await?, ["kept"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_goes_out_once_with_the_body_and_properties_of_the_contract() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let spy = Spy::on(&site, EVENTS, "Note.NoteWritten").await?;
    let mut message = event("n-1", "hello").with_idempotency_key("saga:note:do");
    let (saga, causation) = (Uuid::now_v7(), Uuid::now_v7());
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    message.cause = Cause::new("corr-1").within_saga(saga);
    message.cause.causation_id = Some(causation);
    message.cause.trace.traceparent = Some(traceparent.to_owned());
    message.cause.trace.baggage = Some("tenant=7".to_owned());
    site.append(std::slice::from_ref(&message)).await?;
    let relay = site.relay(quick_relay());
    site.counted("outbox_history where published_at is not null", 1).await?;
    relay.stop().await?;

    let seen = spy.all().await?;
    let [seen] = seen.as_slice() else { panic!("once, not {} times", seen.len()) };
    let (occurred_at, sequence): (String, i64) = site
        .row("select to_char(created_at at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS.US'), id from outbox_history")
        .await?;
    let mut body: Value = serde_json::from_slice(&seen.body)?;
    let told = body["occurredAt"].take();
    assert_eq!(told.as_str().unwrap().trim_end_matches('Z').trim_end_matches('0'), occurred_at.trim_end_matches('0'));
    let expected = json!({
        "eventId": message.id, "eventType": "NoteWritten", "schemaVersion": 1, "aggregateType": "Note",
        "aggregateId": "n-1", "correlationId": "corr-1", "causationId": causation, "sagaId": saga,
        "idempotencyKey": "saga:note:do", "traceparent": traceparent, "occurredAt": null,
        "payload": { "text": "hello" },
    });
    assert_eq!(body, expected);
    let properties = &seen.properties;
    let text = |value: &Option<lapin::types::ShortString>| value.as_ref().map(ToString::to_string).unwrap_or_default();
    assert_eq!(text(properties.message_id()), message.id.to_string());
    assert_eq!(text(properties.kind()), "NoteWritten");
    assert_eq!(text(properties.correlation_id()), "corr-1");
    assert_eq!(text(properties.app_id()), "shop");
    assert_eq!(text(properties.content_type()), "application/json");
    assert_eq!(*properties.delivery_mode(), Some(2));
    assert!(properties.timestamp().is_some());
    let headers = properties.headers().clone().unwrap_or_default();
    let string = |text: &str| AMQPValue::LongString(text.into());
    let expected = [
        ("baggage", string("tenant=7")),
        ("causation-id", string(&causation.to_string())),
        ("saga-id", string(&saga.to_string())),
        ("schema-version", AMQPValue::ShortInt(1)),
        ("sequence", AMQPValue::LongLongInt(sequence)),
        ("traceparent", string(traceparent)),
    ];
    let seen: Vec<_> = headers.inner().iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    assert_eq!(seen, expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lower_id_that_commits_later_is_not_skipped() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    let relay = site.relay(quick_relay());
    let mut first = site.pool.begin().await?;
    outbox::append(&mut first, &[event("a", "early, late")]).await?;
    // Each of these passes the id that is not there yet.
    for round in 0..5 {
        site.append(&[event("b", &round.to_string())]).await?;
        relay.poke.poke();
        spy.saw(round + 1).await?;
    }
    first.commit().await?;
    spy.saw(6).await?;
    assert_eq!(spy.texts().await?.last().map(String::as_str), Some("early, late"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_nobody_poked_for_goes_out_within_the_poll_interval() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    let _relay = site.relay(quick_relay());
    for round in 1..=3 {
        site.append(&[event("a", "quiet")]).await?;
        spy.saw(round).await?;
    }
    let (slowest,): (f64,) =
        site.row("select max(extract(epoch from published_at - created_at))::float8 from outbox_history").await?;
    assert!(slowest < 5.0, "{slowest} s are no poll of 200 ms, even on a busy machine");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_thousand_handlers_append_at_their_last_moment_arrives() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    let relay = site.relay(quick_relay());
    let writers = (0..8).map(|writer| {
        let (pool, poke) = (site.pool.clone(), relay.poke.clone());
        tokio::spawn(async move {
            for round in 0..125 {
                let mut transaction = pool.begin().await?;
                sqlx::query("insert into effects (text) values ('work')").execute(&mut *transaction).await?;
                outbox::append(&mut transaction, &[event(&format!("{writer}"), &round.to_string())]).await?;
                transaction.commit().await?;
                poke.poke();
            }
            anyhow::Ok(())
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await??;
    }
    spy.saw(1_000).await?;
    site.counted("outbox", 0).await?;
    relay.stop().await?;
    assert_eq!((spy.all().await?.len(), site.count("outbox_history").await?), (1_000, 1_000));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn where_history_is_not_wanted_published_rows_are_deleted() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    let relay = site.relay(RelaySettings { after_publish: AfterPublish::Delete, ..quick_relay() });
    site.append(&[event("a", "1"), event("a", "2")]).await?;
    spy.saw(2).await?;
    site.counted("outbox", 0).await?;
    relay.stop().await?;
    assert_eq!(site.count("outbox_log").await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_never_be_published_is_refused_when_it_is_appended() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let mut transaction = site.pool.begin().await?;
    let large = event("a", &"x".repeat(outbox::LARGEST_PAYLOAD));
    let mut long_type = event("a", "fits");
    long_type.message_type = "T".repeat(256).into();
    let mut long_correlation = event("a", "fits");
    long_correlation.cause.correlation_id = "ö".repeat(128);
    let mut long_key = event("a", "fits");
    long_key.route.routing_key = "k".repeat(256).into();
    for (message, code) in [
        (large, "outbox.payload_too_large"),
        (long_type, "outbox.name_too_long"),
        (long_correlation, "outbox.name_too_long"),
        (long_key, "outbox.name_too_long"),
    ] {
        let refusal = outbox::append(&mut transaction, &[event("a", "good"), message]).await.unwrap_err();
        assert_eq!((refusal.class(), refusal.code()), (Class::Permanent, code));
    }
    // The refusal came before the database was asked: the transaction is whole.
    outbox::append(&mut transaction, &[event("a", "kept")]).await?;
    transaction.commit().await?;
    site.counted("outbox", 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn five_relays_publish_five_thousand_rows_exactly_once_and_leave_nothing() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    let relays: Vec<_> = (0..5).map(|n| format!("shop{n}")).map(|name| site.relay_as(&name, quick_relay())).collect();
    let rows: Vec<_> = (0..5_000).map(|n| event(&format!("{}", n % 50), &n.to_string())).collect();
    for chunk in rows.chunks(1_000) {
        site.append(chunk).await?;
    }
    spy.saw(5_000).await?;
    site.counted("outbox", 0).await?;
    for relay in relays {
        relay.stop().await?;
    }
    let seen = spy.all().await?;
    assert_eq!(seen.len(), 5_000);
    let rising = seen.iter().map(sequence).collect::<Vec<_>>();
    assert!(rising.is_sorted(), "fresh rows go out in the order of their ids");
    // A restart sends nothing again.
    let relay = site.relay(quick_relay());
    site.append(&[event("a", "after")]).await?;
    spy.saw(5_001).await?;
    relay.stop().await?;
    assert_eq!(spy.all().await?.len(), 5_001);
    Ok(())
}

fn sequence(seen: &Seen) -> i64 {
    let headers = seen.properties.headers().as_ref();
    match headers.and_then(|headers| headers.inner().get("sequence")) {
        Some(AMQPValue::LongLongInt(sequence)) => *sequence,
        other => panic!("the sequence is {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_whose_session_is_killed_works_on() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    let relay = site.relay(quick_relay());
    for round in 1..=3 {
        relay.works().await?;
        site.kill_session("shop.relay").await?;
        site.append(&[event("a", &round.to_string())]).await?;
        spy.saw(round).await?;
    }
    site.counted("outbox", 0).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_relay_notices_that_its_connection_to_the_broker_was_closed() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    let relay = site.relay(quick_relay());
    relay.works().await?;
    site.close_connection("shop.relay").await?;
    site.append(&[event("a", "after")]).await?;
    spy.saw(1).await?;
    let look = async || Ok(site.rows::<(i32,)>("select attempts from outbox_history").await?);
    let attempts = eventually("the row is in the history", look, |rows| !rows.is_empty()).await?;
    assert_eq!(attempts, [(0,)], "an outage is no fault of the row");
    Ok(())
}
