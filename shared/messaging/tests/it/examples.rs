//! The examples do what they say.

use messaging::{Exchange, Kind, Message, Relay, RelaySettings, Route};
use tokio_util::sync::CancellationToken;

use crate::support::{Child, Site, event};

#[tokio::test(flavor = "multi_thread")]
async fn what_the_first_example_publishes_it_consumes() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let (status, printed) = Child::start(&site, "publish_and_consume", &["3"], &[])?.ended().await?;
    assert!(status.success());
    assert_eq!(printed.matches("Hello, ").count(), 3, "{printed}");
    assert_eq!(site.count("greetings where answer like 'Hello, %'").await?, 3);
    assert_eq!((site.count("outbox").await?, site.count("outbox_history").await?), (0, 3));
    assert_eq!(site.count("inbox where consumer = 'hello.answers' and status = 'done'").await?, 3);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ordered_subscriber_holds_one_key_and_projects_the_others() -> anyhow::Result<()> {
    const EVENTS: &[Exchange] = &[Exchange { name: "saga.events", kind: Kind::Topic }];
    let site = Site::open().await?;
    let relay = Relay::new(&site.database(), site.broker("shop"), EVENTS, RelaySettings::default());
    let stop = CancellationToken::new();
    tokio::spawn(relay.run(stop.clone()));
    // Mandatory, so that they wait for the subscriber's queue.
    let to_saga_events = |key: &str| -> Message {
        Message { route: Route::mandatory("saga.events", "Note.NoteWritten"), ..event(key, "") }
    };
    let subscriber = Child::start_with(&site, "ordered_subscriber", &[], &[], &[("POISON", "Note:poison")])?;
    let keys = ["poison", "b", "poison", "c", "b", "poison"];
    site.append(&keys.map(to_saga_events)).await?;
    site.counted("inbox where status = 'done'", 3).await?;
    site.counted("inbox where status = 'parked' and error_code = 'projection.poison'", 1).await?;
    site.counted("inbox where status = 'waiting' and key = 'Note:poison'", 2).await?;
    let projected: Vec<(String, i32)> = site.rows("select key, events from last_events order by key").await?;
    assert_eq!(projected, [("Note:b".to_owned(), 2), ("Note:c".to_owned(), 1)]);
    assert!(subscriber.stop().await?.0.success());
    // Without the poison, an operator's retry lets all of them go, in order.
    let subscriber = Child::start(&site, "ordered_subscriber", &[], &[])?;
    site.execute("update inbox set status = 'retrying', next_attempt_at = now() where status = 'parked'").await?;
    site.counted("inbox where status = 'done'", 6).await?;
    site.counted("last_events where key = 'Note:poison' and events = 3", 1).await?;
    assert!(subscriber.stop().await?.0.success());
    stop.cancel();
    Ok(())
}
