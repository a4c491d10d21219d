//! A process that the tests let die: `victim relay` or `victim consumer`. The message with the text `deadly` aborts
//! it, `transient` fails.

#![allow(clippy::unwrap_used, reason = "a process that is made to die")]
#![allow(
    dead_code,
    unused_imports,
    reason = "the tests share their support with this process, which needs little of it"
)]

mod support;

use std::time::Duration;

use messaging::{Broker, Consumer, ConsumerSettings, Failure, Poke, Relay};
use sqlx::postgres::PgConnectOptions;
use support::wire::EXCHANGES;
use support::{Script, WORK, quick_relay};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database: PgConnectOptions = std::env::var("DATABASE_URL")?.parse()?;
    let broker = Broker::new(&std::env::var("AMQP_URL")?, "victim")?;
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let asked = stop.clone();
    tokio::spawn(async move {
        terminate.recv().await;
        asked.cancel();
    });
    if std::env::args().nth(1).as_deref() == Some("relay") {
        Relay::new(&database, broker, EXCHANGES, quick_relay()).run(stop).await;
    } else {
        let script = Script::new().failing(|delivery| match delivery.message.text.as_str() {
            "deadly" => std::process::abort(),
            "transient" => Err(Failure::transient("test", "not yet")),
            _ => Ok(()),
        });
        // Long enough for any run here, short enough to wait for after a death.
        let lease = Duration::from_secs(1);
        let settings = ConsumerSettings { deadly_after: 2, lease, ..ConsumerSettings::default() };
        Consumer::new(WORK, script, &database, broker, Poke::default()).with_settings(settings).run(stop).await;
    }
    Ok(())
}
