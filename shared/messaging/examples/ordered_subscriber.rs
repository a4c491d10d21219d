//! A projection that needs order: for each key the type of its last event, from everything on `saga.events`.
//! While an event of a key cannot be digested the later ones of that key wait in the inbox, and other keys go on.
//!
//! It is independent of the shop: its own queue, its own schema with `migrations/messaging/*.sql` applied.
//!
//! ```sh
//! export DATABASE_URL='postgres://me:secret@localhost/mine?options[search_path]=projection'
//! export AMQP_URL='amqp://guest:guest@localhost:5672/%2f'
//! cargo run -p messaging --example ordered_subscriber            # until Ctrl-C
//! POISON=<key> cargo run -p messaging --example ordered_subscriber   # this key's events fail
//! ```
//!
//! Held keys: `select key, status, seq, last_error from inbox where status <> 'done' order by key, seq`. Let go by
//! `update inbox set status = 'retrying', next_attempt_at = now() where …`, or by `status = 'discarded'`.

use std::env;

use messaging::{
    Broker, Consumer, Decode, Delivery, Envelope, Exchange, Failure, Handler, Kind, Poke, Queue, Ready, RetryPolicy,
};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Executor as _};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

const EVENTS: Exchange = Exchange { name: "saga.events", kind: Kind::Topic };
/// `#`: every event, whatever it is about.
const QUEUE: Queue = Queue { name: "projection.orders", bindings: &[(EVENTS, "#")], single_active_consumer: true };

const TABLES: &str = "create table if not exists last_events (
    key text primary key, event_type text not null, events integer not null, occurred_at timestamptz not null)";

/// Takes every type and version: it only reads the envelope.
#[derive(Debug)]
struct Any;

impl Decode for Any {
    fn decode(_envelope: &Envelope) -> Result<Any, Failure> {
        Ok(Any)
    }
}

struct Projection {
    poison: Option<String>,
}

impl Handler for Projection {
    type Message = Any;
    type Prepared = ();

    async fn prepare(&self, delivery: &Delivery<Any>) -> Result<(), Failure> {
        match &self.poison {
            Some(poison) if *poison == delivery.envelope.key() => {
                Err(Failure::transient("projection.poison", "as asked"))
            }
            _ => Ok(()),
        }
    }

    /// The keys of a batch differ, so one statement is enough.
    async fn apply(&self, transaction: &mut PgConnection, batch: &[Ready<Any, ()>]) -> Result<(), Failure> {
        let envelopes = || batch.iter().map(|ready| &ready.delivery.envelope);
        let upsert = "insert into last_events (key, event_type, events, occurred_at)
                      select key, event_type, 1, occurred_at
                      from unnest($1::text[], $2::text[], $3::timestamptz[]) as e(key, event_type, occurred_at)
                      on conflict (key) do update set event_type = excluded.event_type,
                          events = last_events.events + 1, occurred_at = excluded.occurred_at";
        sqlx::query(upsert)
            .bind(envelopes().map(Envelope::key).collect::<Vec<_>>())
            .bind(envelopes().map(|envelope| envelope.event_type.clone()).collect::<Vec<_>>())
            .bind(envelopes().map(|envelope| envelope.occurred_at).collect::<Vec<_>>())
            .execute(transaction)
            .await?;
        Ok(())
    }

    fn retry_policy(&self, _message: &Any) -> RetryPolicy {
        RetryPolicy::default()
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database: PgConnectOptions = env::var("DATABASE_URL")?.parse()?;
    let broker = Broker::new(&env::var("AMQP_URL")?, "projection")?;
    database.connect().await?.execute(TABLES).await?;

    // It emits nothing, so there is no relay to poke.
    let projection = Projection { poison: env::var("POISON").ok() };
    let consumer = Consumer::new(QUEUE, projection, &database, broker, Poke::default()).ordered();
    let stop = CancellationToken::new();
    let running = tokio::spawn(consumer.run(stop.clone()));

    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    stop.cancel();
    Ok(running.await?)
}
