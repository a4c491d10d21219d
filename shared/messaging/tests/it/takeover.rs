//! A relay may die, or be thought dead, at any moment: nothing is lost, and nothing that is published comes back.

use std::time::{Duration, Instant};

use crate::support::{Child, EVENTS, Site, Spy, event, quick_relay};

/// From the death of a leader to the first row of the next: what is promised for a death that the server sees.
const TAKE_OVER: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn the_rows_that_a_dead_leader_had_read_are_published_by_the_next() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    site.append(&[event("a", "1"), event("a", "2")]).await?;
    let leader = Child::start(&site, "victim", &["relay"], &[("relay.read", "abort")])?;
    let (status, _) = leader.ended().await?;
    assert!(!status.success());
    assert_eq!((site.count("outbox").await?, spy.all().await?.len()), (2, 0));
    let begun = Instant::now();
    let relay = site.relay(quick_relay());
    spy.saw(2).await?;
    assert!(begun.elapsed() < TAKE_OVER, "it took {:?}", begun.elapsed());
    site.counted("outbox", 0).await?;
    relay.stop().await?;
    assert_eq!(spy.texts().await?, ["1", "2"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_leader_had_published_but_not_moved_is_sent_again_and_not_lost() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    site.append(&[event("a", "1"), event("a", "2")]).await?;
    let leader = Child::start(&site, "victim", &["relay"], &[("relay.confirmed", "abort")])?;
    assert!(!leader.ended().await?.0.success());
    assert_eq!((site.count("outbox").await?, spy.texts().await?.len()), (2, 2));
    let relay = site.relay(quick_relay());
    site.counted("outbox_history", 2).await?;
    relay.stop().await?;
    // Known duplicates: the same ids, so an inbox drops them.
    assert_eq!((spy.texts().await?, spy.distinct()), (["1", "2", "1", "2"].map(str::to_owned).to_vec(), 2));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standing_by_relay_takes_over_from_a_killed_leader() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    let leader = Child::start(&site, "victim", &["relay"], &[])?;
    site.append(&[event("a", "1")]).await?;
    spy.saw(1).await?;
    let standby = site.relay(quick_relay());
    standby.is(|state| *state == messaging::State::Standby).await?;
    leader.kill().await?;
    site.append(&[event("a", "2")]).await?;
    let begun = Instant::now();
    spy.saw(2).await?;
    assert!(begun.elapsed() < TAKE_OVER, "it took {:?}", begun.elapsed());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_leader_loses_its_lock_and_changes_nothing_when_it_goes_on() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    let leader = Child::start(&site, "victim", &["relay"], &[])?;
    site.append(&[event("a", "1")]).await?;
    spy.saw(1).await?;
    let standby = site.relay(quick_relay());
    standby.is(|state| *state == messaging::State::Standby).await?;
    leader.freeze()?;
    site.append(&[event("a", "2")]).await?;
    // Its session is idle to the server until the server has had enough.
    site.counted("outbox_history", 2).await?;
    leader.thaw()?;
    site.append(&[event("a", "3")]).await?;
    site.counted("outbox_history", 3).await?;
    let (status, _) = leader.stop().await?;
    assert!(status.success());
    standby.stop().await?;
    assert_eq!((spy.texts().await?, site.count("outbox").await?), (["1", "2", "3"].map(str::to_owned).to_vec(), 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_superseded_while_it_slept_changes_nothing() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    site.append(&[event("a", "1")]).await?;
    let sleeper = Child::start(&site, "victim", &["relay"], &[("relay.confirmed", "hold")])?;
    sleeper.reached("relay.confirmed").await?;
    // To the server it is idle for too long; here it loses its session at once.
    site.kill_session("victim.relay").await?;
    let next = site.relay(quick_relay());
    site.counted("outbox_history", 1).await?;
    let before: (String,) = site.row("select h::text from outbox_history h").await?;
    sleeper.release("relay.confirmed")?;
    // The sleeper has gone past its late write when it stands by.
    site.append(&[event("a", "2")]).await?;
    spy.saw(2).await?;
    next.stop().await?;
    let (status, _) = sleeper.stop().await?;
    assert!(status.success());
    assert_eq!(site.count("outbox").await?, 0);
    let after: Vec<(String,)> = site.rows("select h::text from outbox_history h where payload->>'text' = '1'").await?;
    assert_eq!(after, [before], "once, and as it was");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_relay_finishes_the_batch_that_it_has_begun() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let spy = Spy::on(&site, EVENTS, "#").await?;
    site.append(&[event("a", "1")]).await?;
    let relay = Child::start(&site, "victim", &["relay"], &[("relay.confirmed", "hold")])?;
    relay.reached("relay.confirmed").await?;
    relay.terminate()?;
    relay.release("relay.confirmed")?;
    let (status, _) = relay.ended().await?;
    assert!(status.success());
    assert_eq!((site.count("outbox_history").await?, spy.texts().await?.len()), (1, 1));
    Ok(())
}
