//! What the broker does not take stays, is tried again, and holds up its own aggregate only.

use std::time::Duration;

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Channel, ExchangeKind};
use messaging::{Backoff, Message, RelaySettings, Route, State};

use crate::support::{EVENTS, Site, Spy, Wire, command, event, eventually, quick_relay};

/// An event that must reach a queue, about an aggregate, under a key that nobody has bound.
fn unroutable(key: &str, text: &str) -> Message {
    let mut message = event(key, text);
    message.route = Route::mandatory("shop.commands", "nobody");
    message
}

fn to_missing_exchange(key: &str, text: &str) -> Message {
    let mut message = event(key, text);
    message.route = Route::mandatory("shop.missing", "any");
    message
}

/// Gives the unroutable ones a queue that takes them.
async fn bind_nobody(channel: &Channel) -> anyhow::Result<()> {
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare("nobody".into(), durable, FieldTable::default()).await?;
    let (queue, exchange, key) = ("nobody".into(), "shop.commands".into(), "nobody".into());
    Ok(channel.queue_bind(queue, exchange, key, QueueBindOptions::default(), FieldTable::default()).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unroutable_row_stays_with_its_reason_and_goes_out_when_the_binding_appears() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let _relay = site.relay(quick_relay());
    site.append(&[unroutable("a", "1"), command("b", "work", "2")]).await?;
    site.counted("outbox_history", 1).await?;
    site.counted("outbox where attempts >= 2 and last_error = 'unroutable: NO_ROUTE'", 1).await?;
    assert_eq!(site.count("outbox_history where routing_key = 'nobody'").await?, 0);
    bind_nobody(&wire.channel).await?;
    site.counted("outbox", 0).await?;
    assert_eq!(wire.depth("nobody").await?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn not_one_of_eight_hundred_unroutable_rows_is_taken_for_published() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let _wire = Wire::open(&site).await?;
    let slow = Backoff { first: Duration::from_secs(60), factor: 1, longest: Duration::from_secs(60) };
    let relay = site.relay(RelaySettings { batch: 20, backoff: slow, ..quick_relay() });
    let rows: Vec<_> = (0..4_000)
        .map(|n| if n % 5 == 2 { unroutable(&format!("u{n}"), "") } else { command(&format!("{n}"), "work", "") })
        .collect();
    site.append(&rows).await?;
    relay.poke.poke();
    site.counted("outbox_history", 3_200).await?;
    site.counted("outbox where attempts = 1 and last_error = 'unroutable: NO_ROUTE'", 800).await?;
    assert_eq!(site.count("outbox_history where routing_key = 'nobody'").await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_return_after_a_confirm_that_never_came_is_told_by_its_own_message() -> anyhow::Result<()> {
    let mut site = Site::open().await?;
    let proxy = site.through_proxy().await?;
    let _wire = Wire::open(&site).await?;
    let settings = RelaySettings { confirm_deadline: Duration::from_millis(500), ..quick_relay() };
    let relay = site.relay(settings);
    relay.works().await?;
    proxy.silence();
    site.append(&[command("a", "work", "confirm lost")]).await?;
    // It gives up on the confirm, cannot open a channel either, and says so.
    relay.is(|state| matches!(state, State::Waiting { .. })).await?;
    assert_eq!(site.count("outbox where attempts = 0 and last_error is null").await?, 1, "silence is no one's fault");
    let row = |n: u32| if n.is_multiple_of(5) { unroutable(&n.to_string(), "") } else { command("w", "work", "") };
    site.append(&(0..20).map(row).collect::<Vec<_>>()).await?;
    proxy.heal();
    site.counted("outbox_history", 17).await?;
    site.counted("outbox where attempts > 0 and last_error = 'unroutable: NO_ROUTE'", 4).await?;
    assert_eq!(site.count("outbox_history where routing_key = 'nobody'").await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn between_aggregates_of_one_transaction_no_order_is_kept() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    let _relay = site.relay(quick_relay());
    // One transaction; what was appended first cannot leave yet, and what comes after it does not wait.
    site.append(&[unroutable("a", "first"), event("b", "second")]).await?;
    spy.saw(1).await?;
    assert_eq!(spy.texts().await?, ["second"]);
    bind_nobody(&wire.channel).await?;
    site.counted("outbox", 0).await?;
    let published: Vec<(String,)> =
        site.rows("select payload->>'text' from outbox_history order by published_at, id").await?;
    assert_eq!(published[0].0, "second", "the first of the transaction came after it: {published:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_wait_behind_the_failed_row_of_their_aggregate_and_nobody_elses_do() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    let relay = site.relay(quick_relay());
    site.append(&[unroutable("a", "head")]).await?;
    site.counted("outbox where attempts >= 1", 1).await?;
    // These come later, in another batch: they may not overtake it, however often it fails.
    site.append(&[event("a", "second"), event("b", "other"), event("a", "third")]).await?;
    spy.saw(1).await?;
    site.counted("outbox where attempts >= 4", 1).await?;
    assert_eq!(spy.texts().await?, ["other"]);
    assert_eq!(site.count("outbox where attempts = 0 and next_attempt_at > '-infinity'").await?, 2);
    bind_nobody(&wire.channel).await?;
    spy.saw(3).await?;
    site.counted("outbox", 0).await?;
    relay.stop().await?;
    assert_eq!(spy.texts().await?, ["other", "second", "third"]);
    let published: Vec<(String,)> =
        site.rows("select payload->>'text' from outbox_history order by published_at, id").await?;
    let published: Vec<_> = published.iter().map(|(text,)| text.as_str()).collect();
    assert_eq!(published, ["other", "head", "second", "third"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waited_goes_on_when_an_operator_takes_the_head_away() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let _wire = Wire::open(&site).await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    let _relay = site.relay(quick_relay());
    site.append(&[unroutable("a", "head")]).await?;
    site.counted("outbox where attempts >= 1", 1).await?;
    site.append(&[event("a", "second")]).await?;
    site.counted("outbox where attempts = 0 and next_attempt_at > '-infinity'", 1).await?;
    assert_eq!(site.execute("delete from outbox where attempts > 0").await?, 1);
    spy.saw(1).await?;
    assert_eq!(spy.texts().await?, ["second"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hold_of_an_aggregate_outlives_the_relay_that_made_it() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    let relay = site.relay(quick_relay());
    site.append(&[unroutable("a", "head")]).await?;
    site.counted("outbox where attempts >= 1", 1).await?;
    relay.stop().await?;
    site.append(&[event("a", "second"), event("b", "other")]).await?;
    let _next = site.relay(quick_relay());
    site.counted("outbox where attempts >= 3", 1).await?;
    spy.saw(1).await?;
    assert_eq!(spy.texts().await?, ["other"]);
    bind_nobody(&wire.channel).await?;
    spy.saw(2).await
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_events_of_one_aggregate_keep_their_order_through_five_relays_that_die() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    let _relays: Vec<_> = (0..5)
        .map(|n| format!("shop{n}"))
        .map(|name| site.relay_as(&name, RelaySettings { batch: 7, ..quick_relay() }))
        .collect();
    for round in 0..50 {
        site.append(&[event("a", &format!("{round:02}"))]).await?;
        if round % 20 == 5 {
            // One of them leads, and may be in the middle of a batch.
            spy.saw_some(round).await?;
            site.execute(
                "select pg_terminate_backend(l.pid) from pg_locks l join pg_database d on d.oid = l.database
                 where d.datname = current_database() and l.locktype = 'advisory' and l.granted",
            )
            .await?;
        }
    }
    spy.saw(50).await?;
    site.counted("outbox", 0).await?;
    let mut texts = spy.texts().await?;
    let mut seen = std::collections::HashSet::new();
    texts.retain(|text| seen.insert(text.clone()));
    assert!(texts.is_sorted(), "first sightings rise: {texts:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_poison_rows_at_the_head_do_not_stop_the_others() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    let poison: Vec<_> = (0..500).map(|n| unroutable(&format!("p{n}"), "")).collect();
    site.append(&poison).await?;
    let good: Vec<_> = (0..500).map(|n| event(&format!("g{n}"), "")).collect();
    site.append(&good).await?;
    let relay = site.relay(quick_relay());
    spy.saw(500).await?;
    site.counted("outbox_history", 500).await?;
    relay.stop().await?;
    assert_eq!(site.count("outbox where attempts > 0").await?, 500);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_to_a_missing_exchange_is_the_only_one_that_counts_an_attempt() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    let mut rows: Vec<_> = (0..20).map(|n| event(&n.to_string(), &n.to_string())).collect();
    rows.insert(7, to_missing_exchange("lost", "7b"));
    site.append(&rows).await?;
    let _relay = site.relay(quick_relay());
    spy.saw(20).await?;
    site.counted("outbox_history where attempts = 0 and last_error is null", 20).await?;
    site.counted("outbox where attempts >= 2 and last_error like '%NOT_FOUND%shop.missing%'", 1).await?;
    // It is not lost: it goes out when somebody makes the exchange.
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let (missing, none) = ("shop.missing".into(), FieldTable::default());
    wire.channel.exchange_declare(missing, ExchangeKind::Fanout, durable, none.clone()).await?;
    wire.channel.queue_bind("work".into(), "shop.missing".into(), "".into(), QueueBindOptions::default(), none).await?;
    site.counted("outbox", 0).await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_rows_to_a_missing_exchange_do_not_stop_the_others() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    let mut rows: Vec<_> = (0..200).map(|n| to_missing_exchange(&format!("p{n}"), "")).collect();
    rows.extend((0..100).map(|n| event(&format!("g{n}"), "")));
    site.append(&rows).await?;
    let _relay = site.relay(quick_relay());
    spy.saw(100).await?;
    site.counted("outbox_history where attempts = 0", 100).await
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_to_a_missing_exchange_behind_a_slow_link_are_put_off_in_portions() -> anyhow::Result<()> {
    let mut site = Site::open().await?;
    let proxy = site.through_proxy().await?;
    let relay = site.relay(RelaySettings { confirm_deadline: Duration::from_secs(2), ..quick_relay() });
    relay.works().await?;
    // A channel for each row of a batch: together longer than a session of the relay may be idle.
    proxy.delay(Duration::from_millis(10));
    let rows: Vec<_> = (0..500).map(|n| to_missing_exchange(&format!("p{n}"), "")).collect();
    site.append(&rows).await?;
    let look = async || site.count("outbox where attempts > 0 and last_error like '%NOT_FOUND%'").await;
    eventually("some are put off", look, |count| *count > 0).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_burns_no_attempts_and_everything_goes_out_after_it() -> anyhow::Result<()> {
    let mut site = Site::open().await?;
    let proxy = site.through_proxy().await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    let relay = site.relay(quick_relay());
    relay.works().await?;
    let mut expected = 0;
    for rows in [3, 5_000] {
        site.shut_broker().await?;
        proxy.cut();
        let batch: Vec<_> = (0..rows).map(|n| event(&format!("{}", n % 10), "")).collect();
        site.append(&batch).await?;
        relay.poke.poke();
        relay.is(|state| matches!(state, State::Waiting { .. })).await?;
        assert_eq!(site.count("outbox where attempts = 0 and next_attempt_at = '-infinity'").await?, rows);
        site.open_broker().await?;
        expected += usize::try_from(rows)?;
        spy.saw(expected).await?;
        site.counted("outbox", 0).await?;
    }
    assert_eq!(site.count("outbox_history where attempts > 0").await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_published_to_a_deleted_exchange_stay_until_it_is_back() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let relay = site.relay(quick_relay());
    relay.works().await?;
    site.delete("exchanges", &["shop.commands"]).await?;
    let rows: Vec<_> = (0..100).map(|n| command(&format!("{}", n % 10), "work", "")).collect();
    site.append(&rows).await?;
    // The relay makes the exchange again, but nobody has bound a queue to it: not one row is taken for published.
    site.counted("outbox where last_error like 'unroutable%'", 10).await?;
    assert_eq!(site.count("outbox_history").await?, 0);
    let work = ("work".into(), "shop.commands".into(), "work".into());
    wire.channel.queue_bind(work.0, work.1, work.2, QueueBindOptions::default(), FieldTable::default()).await?;
    site.counted("outbox_history", 100).await?;
    eventually("all are in the queue", async || wire.depth("work").await, |depth| *depth >= 100).await.map(drop)
}
