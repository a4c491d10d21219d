//! A broker that cannot take everything in time: over a narrow link, or in alarm.

use std::time::Duration;

use messaging::relay::ALARM;
use messaging::{RelaySettings, State};

use crate::support::{EVENTS, Site, Spy, event, quick_relay};

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_cannot_be_confirmed_in_time_goes_out_in_smaller_ones() -> anyhow::Result<()> {
    let mut site = Site::open().await?;
    let proxy = site.through_proxy().await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    let text = "x".repeat(20_000);
    let numbered = |n: i32| event(&format!("{}", n % 5), &format!("{n} {text}"));
    site.append(&(0..150).map(numbered).collect::<Vec<_>>()).await?;
    // Three megabytes, of which one passes in the time that a batch has.
    proxy.narrow(2_000_000);
    let (confirm_deadline, poll) = (Duration::from_millis(500), Duration::from_secs(5));
    let relay = site.relay(RelaySettings { confirm_deadline, poll, ..quick_relay() });
    spy.saw_some(1).await?;
    site.append(&(150..200).map(numbered).collect::<Vec<_>>()).await?;
    site.counted("outbox_history", 200).await?;
    relay.stop().await?;
    let texts = spy.texts().await?;
    assert_eq!((spy.distinct(), site.count("outbox").await?), (200, 0));
    let mut last = [-5, -4, -3, -2, -1];
    for text in texts {
        let number: i32 = text.split(' ').next().unwrap().parse()?;
        let last = &mut last[usize::try_from(number % 5)?];
        // What was unknown came again, but nothing of an aggregate before something older of it.
        assert!(number <= *last + 5, "{number} came after {last}");
        *last = number.max(*last);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_in_alarm_is_waited_for_and_said_so() -> anyhow::Result<()> {
    let mut site = Site::open().await?;
    let proxy = site.through_proxy().await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    let relay = site.relay(RelaySettings { confirm_deadline: Duration::from_millis(500), ..quick_relay() });
    relay.works().await?;
    proxy.block();
    site.append(&(0..40).map(|n| event(&format!("{n}"), "late")).collect::<Vec<_>>()).await?;
    relay.is(|state| matches!(state, State::Waiting { code, .. } if code == ALARM)).await?;
    // Longer than the database lets a session be idle.
    tokio::time::sleep(Duration::from_secs(12)).await;
    relay.is(|state| matches!(state, State::Waiting { code, .. } if code == ALARM)).await?;
    assert_eq!(spy.distinct(), 0);
    proxy.unblock();
    site.counted("outbox_history", 40).await?;
    relay.works().await?;
    relay.stop().await?;
    let seen = spy.all().await?.len();
    assert_eq!((spy.distinct(), site.count("outbox").await?), (40, 0));
    assert!(seen <= 80, "{seen} copies of 40 messages: each try during the alarm left one");
    Ok(())
}
