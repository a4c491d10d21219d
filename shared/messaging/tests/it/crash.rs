//! Deaths of the consuming process: what it had begun is done once, and a message that kills it is found out.

use messaging::Failure;

use crate::support::{Child, Script, Site, WORK, Wire};

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_before_or_after_the_commit_leaves_one_effect() -> anyhow::Result<()> {
    for (point, effects) in [("consumer.remembered", 0), ("consumer.before_commit", 0), ("consumer.committed", 20)] {
        let site = Site::open().await?;
        let wire = Wire::open(&site).await?;
        wire.send_all((0..20).map(|n| (format!("k{n}"), "x".to_owned()))).await?;
        let dies = Child::start(&site, "victim", &["consumer"], &[(point, "abort")])?;
        assert!(!dies.ended().await?.0.success());
        let at_death = site.count("effects").await?;
        assert!(if effects == 0 { at_death == 0 } else { at_death > 0 }, "{point}: {at_death}");
        let next = site.consumer(WORK, Script::new());
        wire.send("k", "comes after what is delivered again").await?;
        site.counted("inbox where status = 'done'", 21).await?;
        next.stop().await?;
        assert_eq!((site.count("effects").await?, wire.depth("work").await?), (21, 0), "{point}");
        assert_eq!(site.count("(select distinct message_id from effects) e").await?, 21);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_after_a_retry_was_stored_leaves_one_retry() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    wire.send("k", "transient").await?;
    let dies = Child::start(&site, "victim", &["consumer"], &[("consumer.kept", "abort")])?;
    assert!(!dies.ended().await?.0.success());
    assert_eq!(site.count("inbox where status = 'retrying' and attempts = 1").await?, 1);
    let script = Script::new().failing(|delivery| match delivery.attempt.is_last {
        false => Err(Failure::transient("test", "again")),
        true => Ok(()),
    });
    let next = site.consumer(WORK, script);
    site.counted("effects where attempt = 3", 1).await?;
    next.stop().await?;
    assert_eq!((site.count("inbox").await?, site.count("effects").await?, wire.depth("work").await?), (1, 1, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_between_claim_and_run_counts_the_attempt_and_the_message_is_run_by_the_next() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    wire.send("k", "transient").await?;
    let dies = Child::start(&site, "victim", &["consumer"], &[("consumer.claimed", "abort")])?;
    assert!(!dies.ended().await?.0.success());
    assert_eq!(site.count("inbox where status = 'retrying' and attempts = 2 and unfinished = 1").await?, 1);
    let next = site.consumer(WORK, Script::new());
    site.counted("effects where attempt = 3", 1).await?;
    next.stop().await?;
    let done = site.count("inbox where status = 'done' and unfinished = 0").await?;
    assert_eq!((done, site.count("effects").await?, wire.depth("work").await?), (1, 1, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_kills_the_process_is_parked_unrun_and_its_neighbours_are_done() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let texts = (0..20).map(|n| (format!("k{n}"), if n == 7 { "deadly" } else { "good" }.to_owned()));
    wire.send_all(texts).await?;
    let mut deaths = 0;
    loop {
        let mut victim = Child::start(&site, "victim", &["consumer"], &[])?;
        let parked = site.counted("inbox where status = 'parked' and error_code = 'message.kills_the_process'", 1);
        tokio::select! {
            parked = parked => {
                parked?;
                // It is alive and well.
                wire.send("k", "later").await?;
                site.counted("effects", 20).await?;
                assert!(victim.stop().await?.0.success());
                break;
            }
            () = victim.died() => {
                deaths += 1;
                anyhow::ensure!(deaths <= 3, "it dies again and again");
            }
        }
    }
    // The first death was before anybody knew; two more runs are what the setting allows.
    assert_eq!(deaths, 3);
    assert_eq!(site.count("inbox where status = 'done'").await?, 20);
    assert_eq!(site.count("(select distinct message_id from effects) e").await?, 20);
    assert_eq!(wire.depth("work").await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_asked_to_stop_ends_well_and_leaves_nothing_open() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    wire.send_all((0..50).map(|n| (format!("k{n}"), "x".to_owned()))).await?;
    let process = Child::start(&site, "victim", &["consumer"], &[("consumer.before_commit", "hold")])?;
    process.reached("consumer.before_commit").await?;
    process.terminate()?;
    process.release("consumer.before_commit")?;
    let (status, _) = process.ended().await?;
    assert!(status.success());
    let done = site.count("inbox where status = 'done' and attempts = 1").await?;
    assert!(done > 0, "the batch that was begun is finished");
    assert_eq!(done + i64::from(wire.depth("work").await?), 50, "the rest is with the broker");
    let idle = "pg_stat_activity where datname = current_database() and state like 'idle in transaction%'";
    assert_eq!(site.count(idle).await?, 0);
    Ok(())
}
