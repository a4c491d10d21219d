//! What is forgotten, and what never is.

use std::time::Duration;

use futures::future::join_all;
use messaging::retention::{maintain_history, purge_inbox};

use crate::support::{Script, Site, WORK, Wire, command, quick_relay};

const DAY: Duration = Duration::from_secs(86_400);

#[tokio::test(flavor = "multi_thread")]
async fn days_are_made_ahead_and_old_ones_dropped_with_what_is_in_them() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let _wire = Wire::open(&site).await?;
    let mut connection = site.connection().await?;
    let first = maintain_history(&mut connection, 7 * DAY).await?;
    assert_eq!((first.made, first.dropped), (3, 0));
    let second = maintain_history(&mut connection, 7 * DAY).await?;
    assert_eq!((second.made, second.dropped), (0, 0), "nothing is left to do");
    // What was published meanwhile went into the default partition, and leaves it by age.
    let relay = site.relay(quick_relay());
    site.append(&(0..20).map(|n| command(&n.to_string(), "work", "x")).collect::<Vec<_>>()).await?;
    site.counted("outbox_history", 20).await?;
    site.execute("update outbox_history set published_at = now() - interval '8 days' where id % 2 = 0").await?;
    // A day that is over, with rows.
    let day = "to_char(current_date - 9, 'YYYYMMDD')";
    let (name,): (String,) = site.row(&format!("select 'outbox_history_' || {day}")).await?;
    let (from, to): (String, String) =
        site.row("select (current_date - 9)::timestamptz::text, (current_date - 8)::timestamptz::text").await?;
    site.execute(&format!("create table {name} partition of outbox_history for values from ('{from}') to ('{to}')"))
        .await?;
    site.execute("update outbox_history set published_at = current_date - 9 where id % 4 = 1").await?;
    assert_eq!(site.count(&name).await?, 5);
    let third = maintain_history(&mut connection, 7 * DAY).await?;
    assert_eq!((third.made, third.dropped), (0, 1));
    assert_eq!(site.count("outbox_history").await?, 5);
    relay.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inbox_is_purged_under_load_by_three_at_once_and_keeps_what_is_open() -> anyhow::Result<()> {
    let site = Site::open().await?;
    let wire = Wire::open(&site).await?;
    site.execute(
        "insert into inbox (consumer, message_id, key, message_type, status, received_at, body)
         select 'work', 'old-' || n, 'k' || n % 100, 'NoteWritten',
                (array['done', 'done', 'done', 'discarded', 'parked', 'skipped', 'waiting'])[1 + n % 7],
                now() - interval '11 days', 'x'
         from generate_series(1, 50000) as n",
    )
    .await?;
    let open = site.count("inbox where status in ('parked', 'skipped', 'waiting')").await?;
    let consumer = site.consumer(WORK, Script::new());
    consumer.works().await?;
    let sending = async {
        for round in 0..20 {
            wire.send_all((0..50).map(|n| (format!("k{n}"), round.to_string()))).await?;
        }
        anyhow::Ok(())
    };
    let purging = join_all((0..3).map(|_| async {
        let mut connection = site.connection().await?;
        let mut total = 0;
        loop {
            match purge_inbox(&mut connection, 10 * DAY, 1_000).await? {
                0 => return anyhow::Ok(total),
                gone => total += gone,
            }
        }
    }));
    let (sent, purged) = futures::join!(sending, purging);
    sent?;
    let purged: u64 = purged.into_iter().collect::<anyhow::Result<Vec<_>>>()?.into_iter().sum();
    site.counted("inbox where message_id not like 'old-%' and status = 'done'", 1_000).await?;
    assert_eq!(i64::try_from(purged)?, 50_000 - open);
    assert_eq!(site.count("inbox where message_id like 'old-%'").await?, open, "what is open stays, however old");
    assert_eq!(site.count("effects").await?, 1_000);
    consumer.stop().await
}
