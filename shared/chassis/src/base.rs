//! What a service is given at its start: its identity, its pool, and the makers of everything that the settings
//! decide.

use messaging::{Broker, Consumer, ConsumerSettings, Exchange, Failure, Handler, Later, Poke, Queue, Relay};
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;

use crate::settings::{Common, Identity, TraceLater};

/// What a service builds its parts from.
#[derive(Clone)]
pub struct Base {
    /// Who the service is.
    pub identity: Identity,
    /// For handlers of requests and small loops: six connections, two seconds of waiting. Relay and consumers have
    /// their own.
    pub pool: PgPool,
    /// How to reach the database, for sessions of one's own.
    pub database: PgConnectOptions,
    /// Jaeger's page, without a slash at the end.
    pub jaeger_ui_url: String,
    pub(crate) settings: Common,
}

impl Base {
    pub(crate) fn new(identity: Identity, settings: Common) -> Result<Base, Failure> {
        let database = settings.database(identity)?;
        let pool = crate::pool::open(&database);
        let jaeger_ui_url = settings.jaeger_ui_url.trim_end_matches('/').to_owned();
        Ok(Base { identity, pool, database, jaeger_ui_url, settings })
    }

    /// The broker that the settings name.
    ///
    /// # Errors
    /// Permanent if none is named or its URL cannot be read.
    pub fn broker(&self) -> Result<Broker, Failure> {
        Broker::new(self.settings.amqp_url()?, self.identity.name)
    }

    /// The relay of this service's outbox. With `RELAY=off` the [`Service`](crate::Service) does not run it; its poke
    /// is there all the same.
    ///
    /// # Errors
    /// As [`Base::broker`].
    pub fn relay(&self, exchanges: &'static [Exchange]) -> Result<Relay, Failure> {
        Ok(Relay::new(&self.database, self.broker()?, exchanges, self.settings.relay_settings()))
    }

    /// A consumer of this queue, with what the settings say.
    ///
    /// # Errors
    /// As [`Base::broker`].
    pub fn consumer<H: Handler>(&self, queue: Queue, handler: H, poke: Poke) -> Result<Consumer<H>, Failure> {
        let settings = ConsumerSettings { later: self.later(), ..ConsumerSettings::default() };
        Ok(Consumer::new(queue, handler, &self.database, self.broker()?, poke).with_settings(settings))
    }

    /// In which trace retries and deadlines are shown.
    pub fn later(&self) -> Later {
        match self.settings.trace_later {
            TraceLater::Continue => Later::Continue,
            TraceLater::Link => Later::Link,
        }
    }

    /// Where a trace can be seen, if traces go anywhere.
    pub fn trace_url(&self, trace_id: &str) -> Option<String> {
        self.settings.otlp_endpoint().map(|_| format!("{}/trace/{trace_id}", self.jaeger_ui_url))
    }
}
