//! Outbox and inbox tell what became of a saga's messages.

use std::time::Duration;

use messaging::{Backoff, Cause, Failure, RetryPolicy, Route, message, outbox, story};
use serde_json::json;
use uuid::Uuid;

use crate::support::{COMMANDS, Script, Site, WORK, Wire, quick_relay};

#[tokio::test(flavor = "multi_thread")]
async fn a_story_has_the_last_failures_and_counts_what_came_again() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let backoff = Backoff { first: Duration::from_millis(1), factor: 1, longest: Duration::from_millis(1) };
    let policy = RetryPolicy { attempts: None, backoff };
    let script = Script::new().policy(policy).failing(|delivery| match delivery.attempt.number {
        1..=24 => Err(Failure::transient("provider.timeout", "asking the provider")),
        _ => Ok(()),
    });
    let consumer = site.consumer(WORK, script);
    let (saga, id) = (Uuid::now_v7(), Uuid::now_v7());
    let mut body = Wire::envelope(id, "k", "patient");
    body["sagaId"] = json!(saga);
    wire.send_raw(body.to_string().as_bytes(), Wire::properties(id)).await?;
    site.counted("inbox where status = 'done' and attempts = 25", 1).await?;
    for times in 1..=2 {
        wire.send_raw(body.to_string().as_bytes(), Wire::properties(id)).await?;
        site.counted(&format!("inbox where repeats = {times}"), 1).await?;
    }
    consumer.stop().await?;
    let told = story::read(&mut site.connection().await?, saga).await?;
    let [received] = told.inbox.as_slice() else { panic!("one message: {told:?}") };
    let attempts: Vec<i32> = received.failures.iter().map(|run| run.attempt).collect();
    assert_eq!(attempts, (5..=24).collect::<Vec<_>>(), "the last twenty");
    assert!(
        received
            .failures
            .iter()
            .all(|run| (run.code.as_str(), run.class.as_str()) == ("provider.timeout", "Transient"))
    );
    assert_eq!((received.repeats, received.repeated_at.is_some(), received.attempts), (2, true, 25));
    assert_eq!(site.count("effects").await?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_story_has_what_was_written_before_and_after_it_was_published() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    let saga = Uuid::now_v7();
    let aggregate = message::Aggregate { kind: "Note".into(), id: "k".into() };
    let cause = Cause::new("test").within_saga(saga);
    let route = Route::mandatory(COMMANDS.name, "work");
    let note = messaging::Message::new("NoteWritten", aggregate, route, &json!({"text": "good"}), cause)?;
    let mut connection = site.connection().await?;
    outbox::append(&mut connection, std::slice::from_ref(&note)).await?;
    let told = story::read(&mut connection, saga).await?;
    assert_eq!(told.outbox.iter().map(|row| (row.event_id, row.published_at)).collect::<Vec<_>>(), [(note.id, None)]);
    assert_eq!(story::find_saga(&mut connection, note.id).await?, Some(saga));
    let relay = site.relay(quick_relay());
    site.counted("outbox_history", 1).await?;
    relay.stop().await?;
    let told = story::read(&mut connection, saga).await?;
    assert!(told.outbox.len() == 1 && told.outbox[0].published_at.is_some(), "{told:?}");
    assert_eq!(story::find_saga(&mut connection, note.id).await?, Some(saga));
    assert_eq!((story::find_saga(&mut connection, Uuid::now_v7()).await?, wire.depth("work").await?), (None, 1));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_story_of_a_saga_that_is_flooded_is_bounded() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let saga = Uuid::now_v7();
    site.execute(&format!(
        "insert into inbox (consumer, message_id, key, message_type)
         select 'work', n::text, '{saga}', 'NoteWritten' from generate_series(1, 1500) as n"
    ))
    .await?;
    let told = story::read(&mut site.connection().await?, saga).await?;
    assert_eq!((told.inbox.len(), told.inbox[0].message_id.as_str()), (1_000, "1"), "the oldest first");
    Ok(())
}
