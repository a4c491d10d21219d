//! What a person does with messages: each act does what it says, only that, once, and leaves a record.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use lapin::options::QueueDeleteOptions;
use messaging::operate::look::{Kept, Sent, list_kept, list_pending, list_published, show};
use messaging::operate::{Act, MOST, Outcome, kept, pending, replay};
use messaging::{ConsumerSettings, Failure, Queue};
use sqlx::PgConnection;

use crate::support::{COMMANDS, Loop, Script, Site, WORK, Wire, command, eventually, quick, quick_relay};

const WINDOW: Duration = Duration::from_secs(10 * 86_400);
const ORDERED: Queue = Queue { single_active_consumer: true, ..WORK };

fn by(reason: &str) -> Act {
    Act { actor: "ada".to_owned(), reason: reason.to_owned(), is_dry_run: false }
}

fn dry() -> Act {
    Act { is_dry_run: true, ..by("looking first") }
}

/// Fails for the text `bad` as long as the switch says so, and is parked at once.
fn parking_while(switch: &Arc<AtomicBool>) -> Script {
    let switch = switch.clone();
    Script::new().policy(quick()).failing(move |delivery| {
        match delivery.message.text == "bad" && switch.load(Ordering::Relaxed) {
            true => Err(Failure::permanent("test.bad", "not now")),
            false => Ok(()),
        }
    })
}

async fn on_kept(connection: &mut PgConnection, verb: kept::Verb, which: &Kept, act: &Act) -> anyhow::Result<Outcome> {
    Ok(kept::act(connection, verb, which, act, MOST).await?)
}

fn parked() -> Kept {
    Kept { statuses: vec!["parked".to_owned()], ..Kept::default() }
}

async fn records(site: &Site, verb: &str) -> anyhow::Result<i64> {
    site.count(&format!("operator_actions where verb = '{verb}' and actor = 'ada' and reason <> ''")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_message_is_taken_up_again_after_a_dry_run_and_only_once() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let is_bad = Arc::new(AtomicBool::new(true));
    let consumer = site.consumer(WORK, parking_while(&is_bad));
    wire.send_all([("a", "bad"), ("b", "good"), ("c", "bad")].map(|(k, t)| (k.to_owned(), t.to_owned()))).await?;
    site.counted("inbox where status = 'parked'", 2).await?;
    site.counted("inbox where status = 'done'", 1).await?;
    is_bad.store(false, Ordering::Relaxed);
    let mut connection = site.connection().await?;
    let would = on_kept(&mut connection, kept::Verb::Retry, &parked(), &dry()).await?;
    assert_eq!((would.changed.len(), would.dry_run), (2, true));
    assert_eq!((site.count("inbox where status = 'parked'").await?, site.count("operator_actions").await?), (2, 0));
    let one = Kept { message_id: Some(would.changed[0].message_id.clone()), ..Kept::default() };
    let did = on_kept(&mut connection, kept::Verb::Retry, &one, &by("mended")).await?;
    assert_eq!((did.changed[0].was.as_str(), did.changed[0].now.as_str()), ("parked", "retrying"));
    // With all its attempts before it.
    site.counted("inbox where status = 'done' and attempts = 1 and failures is not null", 1).await?;
    assert_eq!((site.count("effects").await?, site.count("inbox where status = 'parked'").await?), (2, 1));
    let again = on_kept(&mut connection, kept::Verb::Retry, &one, &by("mended")).await?;
    assert!(again.changed.is_empty() && !again.unchanged[0].already && again.unchanged[0].why.contains("done"));
    assert_eq!(records(&site, "retry message").await?, 1);
    let discarded = on_kept(&mut connection, kept::Verb::Discard, &parked(), &by("nobody needs it")).await?;
    assert_eq!(discarded.changed.len(), 1);
    let which = Kept { statuses: vec!["discarded".to_owned()], ..Kept::default() };
    let twice = on_kept(&mut connection, kept::Verb::Discard, &which, &by("nobody needs it")).await?;
    assert!(twice.changed.is_empty() && twice.unchanged[0].already);
    assert_eq!((records(&site, "discard message").await?, site.count("effects").await?), (1, 2));
    consumer.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_runs_is_left_alone() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let (is_held, runs) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    let (held, running) = (is_held.clone(), runs.clone());
    let script = Script::new().policy(quick()).preparing(move |delivery| {
        let (is_first, held, running) = (delivery.attempt.number == 1, held.clone(), running.clone());
        async move {
            if is_first {
                return Err(Failure::transient("test", "once more"));
            }
            running.store(true, Ordering::Relaxed);
            while held.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        }
        .boxed()
    });
    let consumer = site.consumer(WORK, script);
    wire.send("a", "x").await?;
    eventually("the second attempt runs", async || Ok(runs.load(Ordering::Relaxed)), |runs| *runs).await?;
    let mut connection = site.connection().await?;
    let all = Kept { statuses: vec!["retrying".to_owned()], ..Kept::default() };
    for verb in [kept::Verb::Skip, kept::Verb::Discard, kept::Verb::Retry] {
        let outcome = on_kept(&mut connection, verb, &all, &by("impatient")).await?;
        assert!(outcome.changed.is_empty() && outcome.unchanged[0].why.contains("runs just now"), "{outcome:?}");
    }
    is_held.store(false, Ordering::Relaxed);
    site.counted("effects where attempt = 2", 1).await?;
    assert_eq!(site.count("operator_actions").await?, 0);
    consumer.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_skipped_holds_nobody_and_can_be_taken_up_later() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let is_bad = Arc::new(AtomicBool::new(true));
    let consumer: Loop =
        site.consume(WORK, parking_while(&is_bad), ConsumerSettings::default(), messaging::Consumer::ordered);
    consumer.works().await?;
    let wire = Wire::open_on(&site, ORDERED).await?;
    wire.send("a", "bad").await?;
    site.counted("inbox where status = 'parked'", 1).await?;
    wire.send_all(["1", "2"].map(|text| ("a".to_owned(), text.to_owned()))).await?;
    site.counted("inbox where status = 'waiting'", 2).await?;
    let mut connection = site.connection().await?;
    let waiting = Kept { statuses: vec!["waiting".to_owned()], ..Kept::default() };
    let listed = list_kept(&mut connection, &waiting, 10).await?;
    let head = list_kept(&mut connection, &parked(), 10).await?[0].message_id.clone();
    assert!(listed.len() == 2 && listed.iter().all(|line| line.held_by.as_deref() == Some(&head)), "{listed:?}");
    let behind = on_kept(&mut connection, kept::Verb::Retry, &waiting, &by("impatient")).await?;
    assert!(behind.changed.is_empty() && behind.unchanged.len() == 2, "{behind:?}");
    on_kept(&mut connection, kept::Verb::Skip, &parked(), &by("later")).await?;
    site.counted("effects", 2).await?;
    is_bad.store(false, Ordering::Relaxed);
    let skipped = Kept { message_id: Some(head), ..Kept::default() };
    on_kept(&mut connection, kept::Verb::Retry, &skipped, &by("now")).await?;
    site.counted("effects where text = 'bad'", 1).await?;
    assert_eq!((records(&site, "skip message").await?, records(&site, "retry message").await?), (1, 1));
    consumer.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_row_is_retried_at_once_or_thrown_away_with_what_waits_behind_it_set_free() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let mut settings = quick_relay();
    // Longer than the test: only a person ends the wait.
    settings.backoff.first = Duration::from_secs(600);
    settings.backoff.longest = Duration::from_secs(600);
    let relay = site.relay(settings);
    relay.works().await?;
    site.append(&["a", "b"].map(|key| command(key, "nowhere", "lost"))).await?;
    site.counted("outbox where next_attempt_at > now() and attempts = 1", 2).await?;
    site.append(&["a", "b"].map(|key| command(key, "work", "behind"))).await?;
    site.counted("outbox where next_attempt_at > now()", 4).await?;
    let mut connection = site.connection().await?;
    let put_off = Sent { is_put_off: true, ..Sent::default() };
    let listed = list_pending(&mut connection, &put_off, 10).await?;
    let refused: Vec<_> = listed.iter().filter(|line| line.attempts > 0).collect();
    assert!(listed.len() == 4 && refused.iter().all(|line| line.last_error.is_some()), "{listed:?}");
    let which = |id| Sent { event_id: Some(id), ..Sent::default() };
    let first = which(refused[0].message_id);
    let would = pending::act(&mut connection, pending::Verb::Discard, &first, &dry(), MOST).await?;
    assert_eq!((would.changed.len(), site.count("outbox").await?), (1, 4));
    pending::act(&mut connection, pending::Verb::Discard, &first, &by("goes nowhere"), MOST).await?;
    relay.poke.poke();
    site.counted("outbox_history where routing_key = 'work'", 1).await?;
    let kept = site.count(
        "operator_actions where verb = 'discard unpublished' and outcome -> 'row' ->> 'routing_key' = 'nowhere'",
    );
    assert_eq!(kept.await?, 1, "the row itself is not lost");
    // The other one: its way is made, then it is tried.
    let nowhere = ("work".into(), COMMANDS.name.into(), "nowhere".into());
    wire.channel.queue_bind(nowhere.0, nowhere.1, nowhere.2, Default::default(), Default::default()).await?;
    let second = which(refused[1].message_id);
    let retried = pending::act(&mut connection, pending::Verb::Retry, &second, &by("bound now"), MOST).await?;
    assert_eq!(retried.changed.len(), 1);
    relay.poke.poke();
    site.counted("outbox", 0).await?;
    assert_eq!(site.count("outbox_history").await?, 3);
    assert_eq!(records(&site, "retry publishing").await?, 1);
    relay.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_repairs_a_wiped_queue_and_doubles_nothing() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let relay = site.relay(quick_relay());
    // Ten are done, ten more are in the queue when it is wiped.
    let consumer = site.consumer(WORK, Script::new());
    site.append(&(0..10).map(|n| command(&n.to_string(), "work", "done before")).collect::<Vec<_>>()).await?;
    site.counted("effects", 10).await?;
    consumer.stop().await?;
    site.append(&(0..10).map(|n| command(&n.to_string(), "work", "wiped")).collect::<Vec<_>>()).await?;
    site.counted("outbox_history", 20).await?;
    wire.channel.queue_delete("work".into(), QueueDeleteOptions::default()).await?;
    let sequences: Vec<(i64,)> = site.rows("select id from outbox_history order by id").await?;
    let consumer = site.consumer(WORK, Script::new());
    consumer.works().await?;
    let mut connection = site.connection().await?;
    let all = Sent { since: Some(time::OffsetDateTime::now_utc() - Duration::from_secs(3600)), ..Sent::default() };
    let would = replay::act(&mut connection, &all, WINDOW, &dry(), MOST).await?;
    assert_eq!((would.changed.len(), site.count("outbox_history").await?), (20, 20));
    let did_at = time::OffsetDateTime::now_utc();
    let did = replay::act(&mut connection, &all, WINDOW, &by("the queue was wiped"), MOST).await?;
    assert_eq!(did.changed.len(), 20);
    relay.poke.poke();
    site.counted("effects", 20).await?;
    site.counted("inbox where repeats = 1", 10).await?;
    site.counted("outbox_history where replayed_at is not null", 20).await?;
    // When they went out first stays known, and a second look by that time finds them again.
    assert_eq!(site.count("outbox_history where first_published_at < replayed_at").await?, 20);
    let before = Sent { until: Some(did_at), ..all.clone() };
    assert_eq!(list_published(&mut connection, &before, 100).await?.len(), 20);
    // In their order, under their sequence.
    assert_eq!(site.rows::<(i64,)>("select id from outbox_history order by id").await?, sequences);
    assert_eq!(site.count("(select distinct message_id from effects) e").await?, 20);
    assert_eq!(records(&site, replay::VERB).await?, 20);
    consumer.stop().await?;
    relay.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_older_than_inboxes_remember_is_not_replayed() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let _wire = Wire::open(&site).await?;
    let relay = site.relay(quick_relay());
    site.append(&[command("a", "work", "old"), command("b", "work", "young")]).await?;
    site.counted("outbox_history", 2).await?;
    let age = format!("now() - interval '{} seconds'", WINDOW.as_secs() + 60);
    site.execute(&format!("update outbox_history set created_at = {age} where aggregate_id = 'a'")).await?;
    let mut connection = site.connection().await?;
    let all = Sent { since: Some(time::OffsetDateTime::UNIX_EPOCH), ..Sent::default() };
    assert_eq!(list_published(&mut connection, &all, 10).await?.len(), 2);
    let did = replay::act(&mut connection, &all, WINDOW, &by("once more"), MOST).await?;
    assert_eq!((did.changed.len(), did.unchanged.len()), (1, 1));
    assert!(did.unchanged[0].why.contains("older than the 10 days"), "{did:?}");
    relay.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_pass_over_nothing_that_was_there() -> anyhow::Result<()> {
    let site = Site::open().await?;
    // Nobody publishes.
    let rows = |keys: std::ops::Range<i32>| keys.map(|n| command(&n.to_string(), "work", "x")).collect::<Vec<_>>();
    site.append(&rows(0..7)).await?;
    // One that was made before them and commits when the first page was read.
    let mut late = site.connection().await?;
    let mut connection = site.connection().await?;
    let mut which = Sent::default();
    let mut seen = Vec::new();
    loop {
        let page = list_pending(&mut connection, &which, 3).await?;
        if seen.is_empty() {
            messaging::outbox::append(&mut late, &rows(100..101)).await?;
            sqlx::query("delete from outbox where id = $1").bind(page[1].id).execute(&mut late).await?;
        }
        let Some(last) = page.last() else { break };
        which.after = Some(last.id);
        seen.extend(page.iter().map(|line| line.aggregate.clone()));
    }
    let expected: Vec<String> = (0..7).chain([100]).map(|n| format!("Note {n}")).collect();
    assert_eq!(seen, expected);
    let id = list_pending(&mut connection, &Sent::default(), 1).await?[0].message_id;
    let shown = show(&mut connection, &id.to_string()).await?;
    assert_eq!(
        (shown.len(), shown[0]["table"].as_str(), shown[0]["row"]["payload"]["text"].as_str()),
        (1, Some("outbox"), Some("x"))
    );
    assert!(show(&mut connection, "no id of anything").await?.is_empty());
    Ok(())
}

/// Waits until a session waits for another one's lock.
async fn somebody_waits(site: &Site) -> anyhow::Result<()> {
    site.counted("pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'", 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_people_who_act_at_once_the_second_is_told_what_the_first_has_done() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let relay = site.relay(quick_relay());
    let consumer = site.consumer(WORK, parking_while(&Arc::new(AtomicBool::new(true))));
    wire.send("a", "bad").await?;
    site.counted("inbox where status = 'parked'", 1).await?;
    let (mut ada, mut bob) = (site.pool.begin().await?, site.pool.begin().await?);
    let (discards, retries) = (by("nobody needs it"), by("mended"));
    kept::act(&mut ada, kept::Verb::Discard, &parked(), &discards, MOST).await?;
    let which = parked();
    let second = kept::act(&mut bob, kept::Verb::Retry, &which, &retries, MOST);
    let first = async {
        somebody_waits(&site).await?;
        anyhow::Ok(ada.commit().await?)
    };
    let (second, first) = futures::join!(second, first);
    first?;
    let second = second?;
    assert!(second.changed.is_empty() && second.unchanged[0].why.contains("discarded meanwhile"), "{second:?}");
    bob.rollback().await?;

    site.append(&[command("b", "work", "good")]).await?;
    site.counted("outbox_history", 1).await?;
    let (mut ada, mut bob) = (site.pool.begin().await?, site.pool.begin().await?);
    let all = Sent { since: Some(time::OffsetDateTime::UNIX_EPOCH), ..Sent::default() };
    assert_eq!(replay::act(&mut ada, &all, WINDOW, &retries, MOST).await?.changed.len(), 1);
    let second = replay::act(&mut bob, &all, WINDOW, &retries, MOST);
    let first = async {
        somebody_waits(&site).await?;
        anyhow::Ok(ada.commit().await?)
    };
    let (second, first) = futures::join!(second, first);
    first?;
    assert!(second?.changed.is_empty(), "it was replayed once");
    bob.commit().await?;
    assert_eq!(records(&site, replay::VERB).await?, 1);
    consumer.stop().await?;
    relay.stop().await
}
