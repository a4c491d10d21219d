//! A service that does as little as a consumer can: one insert for each message. `saga bench inbox` measures it, and
//! through it everything that every consumer of the shop does.

use std::process::ExitCode;

use chassis::{Base, Identity, Service};
use e2e::bench::EFFECTS;
use messaging::{Decode, Delivery, Envelope, Failure, Handler, Poke, Ready, RetryPolicy};
use sqlx::PgConnection;

/// Everything that comes.
#[derive(Debug)]
struct Any;

impl Decode for Any {
    fn decode(_envelope: &Envelope) -> Result<Any, Failure> {
        Ok(Any)
    }
}

struct Effects;

impl Handler for Effects {
    type Message = Any;
    type Prepared = ();
    const PREPARES: bool = false;

    async fn prepare(&self, _delivery: &Delivery<Any>) -> Result<(), Failure> {
        Ok(())
    }

    async fn apply(&self, transaction: &mut PgConnection, batch: &[Ready<Any, ()>]) -> Result<(), Failure> {
        let envelopes = || batch.iter().map(|ready| &ready.delivery.envelope);
        sqlx::query(e2e::bench::EFFECT)
            .bind(envelopes().map(|envelope| envelope.event_id).collect::<Vec<_>>())
            .bind(envelopes().map(Envelope::key).collect::<Vec<_>>())
            .execute(transaction)
            .await?;
        Ok(())
    }

    fn retry_policy(&self, _message: &Any) -> RetryPolicy {
        RetryPolicy::default()
    }
}

#[derive(Clone, Debug, clap::Args)]
struct Settings {}

fn start(_settings: &Settings, base: Base) -> Result<Service, Failure> {
    let consumer = base.consumer(EFFECTS, Effects, Poke::default())?;
    Ok(Service::new(base).consumer(consumer))
}

fn main() -> ExitCode {
    chassis::run(Identity { name: "effects", http_port: 8009, ops_port: 9009 }, start)
}
