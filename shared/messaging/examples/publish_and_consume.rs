//! One process that publishes and consumes: a greeting is written down and its event appended in one transaction; the
//! relay publishes it; the consumer writes the answer down, once.
//!
//! Apply `migrations/messaging/*.sql` in a schema of your own, then, with your PostgreSQL and RabbitMQ:
//!
//! ```sh
//! export DATABASE_URL='postgres://me:secret@localhost/mine?options[search_path]=hello'
//! export AMQP_URL='amqp://guest:guest@localhost:5672/%2f'
//! cargo run -p messaging --example publish_and_consume -- 3   # ends after three greetings; without a number: Ctrl-C
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use std::env;

use messaging::{
    Aggregate, Broker, Cause, Consumer, Decode, Delivery, Envelope, Exchange, Failure, Handler, Kind, Message, Queue,
    Ready, Relay, RelaySettings, RetryPolicy, Route, outbox, unknown_type,
};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const GREETINGS: Exchange = Exchange { name: "hello.events", kind: Kind::Topic };
const ANSWERS: Queue =
    Queue { name: "hello.answers", bindings: &[(GREETINGS, "Greeting.*")], single_active_consumer: false };

const TABLES: &str = "create table if not exists greetings (name text primary key, answer text)";

#[derive(Debug, Serialize, Deserialize)]
struct Greeted {
    name: String,
}

impl Decode for Greeted {
    fn decode(envelope: &Envelope) -> Result<Greeted, Failure> {
        match (envelope.event_type.as_str(), envelope.schema_version) {
            ("Greeted", 1) => envelope.payload(),
            _ => Err(unknown_type(envelope)),
        }
    }
}

/// Thinks of an answer, which may take its time, and writes it down.
struct Answer {
    seen: mpsc::UnboundedSender<String>,
}

impl Handler for Answer {
    type Message = Greeted;
    type Prepared = String;

    async fn prepare(&self, delivery: &Delivery<Greeted>) -> Result<String, Failure> {
        Ok(format!("Hello, {}!", delivery.message.name))
    }

    async fn apply(&self, transaction: &mut PgConnection, batch: &[Ready<Greeted, String>]) -> Result<(), Failure> {
        let names: Vec<_> = batch.iter().map(|ready| ready.delivery.message.name.clone()).collect();
        let answers: Vec<_> = batch.iter().map(|ready| ready.prepared.clone()).collect();
        let update = "update greetings g set answer = n.answer
                      from unnest($1::text[], $2::text[]) as n(name, answer) where g.name = n.name";
        sqlx::query(update).bind(names).bind(&answers).execute(transaction).await?;
        // Not committed yet: a program that counts on this asks the table.
        answers.into_iter().for_each(|answer| drop(self.seen.send(answer)));
        Ok(())
    }

    fn retry_policy(&self, _message: &Greeted) -> RetryPolicy {
        RetryPolicy::default()
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database: PgConnectOptions = env::var("DATABASE_URL")?.parse()?;
    let broker = Broker::new(&env::var("AMQP_URL")?, "hello")?;
    let count = env::args().nth(1).map_or(Ok(usize::MAX), |count| count.parse())?;
    let pool = PgPool::connect_with(database.clone()).await?;
    sqlx::raw_sql(TABLES).execute(&pool).await?;

    let relay = Relay::new(&database, broker.clone(), &[GREETINGS], RelaySettings::default());
    let (seen, mut answers) = mpsc::unbounded_channel();
    let poke = relay.poke();
    let consumer = Consumer::new(ANSWERS, Answer { seen }, &database, broker, poke.clone());
    let stop = CancellationToken::new();
    let loops = [tokio::spawn(relay.run(stop.clone())), tokio::spawn(consumer.run(stop.clone()))];

    let mut terminate = signal(SignalKind::terminate())?;
    for number in 0..count {
        let name = format!("{} the {number}th", std::process::id());
        greet(&pool, &name).await?;
        poke.poke();
        tokio::select! {
            answer = answers.recv() => println!("{}", answer.unwrap_or_default()),
            _ = terminate.recv() => break,
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    // Both finish what they have begun.
    stop.cancel();
    futures::future::try_join_all(loops).await?;
    Ok(())
}

/// The row and the event that tells of it: both, or neither.
async fn greet(pool: &PgPool, name: &str) -> Result<(), Failure> {
    let mut transaction = pool.begin().await?;
    sqlx::query("insert into greetings (name) values ($1)").bind(name).execute(&mut *transaction).await?;
    let greeted = Message::new(
        "Greeted",
        Aggregate { kind: "Greeting".into(), id: name.to_owned() },
        // Mandatory: it waits in the outbox until the consumer's queue is there.
        Route::mandatory(GREETINGS.name, "Greeting.Greeted"),
        &Greeted { name: name.to_owned() },
        Cause::new("hello"),
    )?;
    outbox::append(&mut transaction, &[greeted]).await?;
    Ok(transaction.commit().await?)
}
