//! A service as the sum of its parts, and its run from the first listener to the last loop.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use futures::future::{BoxFuture, join, join_all};
use messaging::{Consumer, Failure, Handler, Pulse, Relay};
use sqlx::PgPool;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;

use crate::base::Base;
use crate::cleaning::{Cleaning, LOOP};
use crate::health::Health;
use crate::http::{Front, server};
use crate::messages::{self, Messages};
use crate::metrics::{Figures, Look, Metrics};
use crate::ops::{self, Token};
use crate::pool;
use crate::settings::{Switch, Verb};
use crate::shutdown::{BUDGET, DRAIN, POOL, Signals};
use crate::story;

/// What begins with this is a password that everybody knows.
const DEMO: &str = "demo";

/// Operators' requests that run at once.
const OPERATORS_AT_ONCE: usize = 64;

/// A loop that lives as long as the process.
struct Loop {
    pulse: Pulse,
    work: Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>,
}

/// The parts of a service.
pub struct Service {
    base: Base,
    relay: Option<Relay>,
    loops: Vec<Loop>,
    routes: OpenApiRouter,
    verbs: Router,
    looks: Vec<Look>,
    has_keys: bool,
}

impl Service {
    /// A service that does nothing yet.
    pub fn new(base: Base) -> Service {
        Service {
            base,
            relay: None,
            loops: Vec::new(),
            routes: OpenApiRouter::new(),
            verbs: Router::new(),
            looks: Vec::new(),
            has_keys: false,
        }
    }

    /// Publishes with this relay, unless `RELAY=off`.
    #[must_use]
    pub fn relay(mut self, relay: Relay) -> Service {
        self.relay = Some(relay);
        self
    }

    /// Consumes with this consumer.
    #[must_use]
    pub fn consumer<H: Handler>(self, consumer: Consumer<H>) -> Service {
        let pulse = consumer.pulse();
        self.task(pulse, move |stop| consumer.run(stop))
    }

    /// Runs a loop until the token is cancelled. It must beat its pulse at least every 30 seconds and return only
    /// after the token: if it returns earlier or panics, the process ends with a failure.
    #[must_use]
    pub fn task<F, Fut>(mut self, pulse: Pulse, work: F) -> Service
    where
        F: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.loops.push(Loop { pulse, work: Box::new(move |stop| Box::pin(work(stop))) });
        self
    }

    /// Answers these routes to everybody.
    #[must_use]
    pub fn routes(mut self, routes: OpenApiRouter) -> Service {
        self.routes = self.routes.merge(routes);
        self
    }

    /// Answers these routes to operators, under `/ops`.
    #[must_use]
    pub fn ops(mut self, verbs: Router) -> Service {
        self.verbs = self.verbs.merge(verbs);
        self
    }

    /// Reads figures of its own whenever somebody scrapes.
    #[must_use]
    pub fn figures<F>(mut self, look: impl Fn(PgPool) -> F + Send + Sync + 'static) -> Service
    where
        F: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.looks.push(Arc::new(move |pool| Box::pin(look(pool))));
        self
    }

    /// Forgets requests that were remembered by their [`idempotency`](crate::idempotency) key, when they are old.
    #[must_use]
    pub fn remembers_requests(mut self) -> Service {
        self.has_keys = true;
        self
    }

    pub(crate) async fn run(self, verb: Verb, metrics: Metrics, mut signals: Signals) -> Result<(), Failure> {
        let Service { base, relay, mut loops, routes, mut verbs, looks, has_keys } = self;
        let has_outbox = relay.is_some();
        let retention = base.settings.retention()?;
        if let Some(relay) = &relay {
            let messages = Messages { pool: base.pool.clone(), poke: relay.poke(), dedup_window: retention.inbox };
            verbs = verbs.merge(story::routes(base.pool.clone())).merge(messages::routes(messages));
            let (pulse, cleaning) = (Pulse::new(LOOP), Cleaning { pool: base.pool.clone(), retention, has_keys });
            let beat = pulse.clone();
            loops.push(Loop { pulse, work: Box::new(|stop| Box::pin(cleaning.run(beat, stop))) });
        }
        let publishes = match verb {
            Verb::Relay => {
                loops.clear();
                true
            }
            Verb::Serve | Verb::Health => base.settings.relay == Switch::On,
        };
        match relay {
            Some(relay) if publishes => {
                loops.push(Loop { pulse: relay.pulse(), work: Box::new(|stop| Box::pin(relay.run(stop))) });
            }
            None if verb == Verb::Relay => {
                return Err(Failure::permanent("settings.verb", "this service publishes nothing: it has no relay"));
            }
            _ => {}
        }

        let stop = CancellationToken::new();
        let front = Front::new(base.settings.http_at_once, base.settings.trace_sampling);
        let watch = pool::watch(&base.database);
        let health = Health {
            pulses: loops.iter().map(|one| one.pulse.clone()).collect(),
            pool: watch.clone(),
            has_outbox,
            stop: stop.clone(),
            asking: Arc::new(Semaphore::new(1)),
        };
        // Operators get in however many customers are there.
        let inside = Front::new(OPERATORS_AT_ONCE, base.settings.trace_sampling);
        let figures = Figures { requests: base.pool.clone(), metrics: metrics.clone(), looks: looks.into() };
        let operators = ops::router(&inside, verbs, token(&base)?, health, figures);
        let (ops_listener, ops_address) = bind(base.settings.ops_address).await?;
        let mut servers = JoinSet::new();
        servers.spawn(server::serve(ops_listener, operators, stop.clone()));
        if verb == Verb::Serve {
            let (listener, address) = bind(base.settings.http_address).await?;
            let everybody = front.service(base.identity.name, routes);
            servers.spawn(server::serve(listener, everybody, stop.clone()));
            tracing::info!(httpAddress = %address, opsAddress = %ops_address, "listening");
        } else {
            tracing::info!(opsAddress = %ops_address, "listening");
        }

        tokio::spawn(metrics.upkeep());
        let mut running = Running::start(loops, &stop);
        let ended = tokio::select! {
            name = signals.next() => {
                tracing::info!("{name}: takes no more work and finishes what runs, {} s at most", BUDGET.as_secs());
                Ok(())
            }
            failure = running.first_end() => Err(failure),
            Some(_) = servers.join_next() => Err(Failure::permanent("process.listener", "a listener has ended")),
        };
        signals.exit_on_next();
        stop.cancel();
        drain(servers, [&front, &inside], running).await;
        drop(timeout(POOL, join(base.pool.close(), watch.close())).await);
        ended
    }
}

/// Listeners, then what their requests still do, then loops; none of them beyond the budget.
async fn drain(servers: JoinSet<()>, fronts: [&Front; 2], running: Running) {
    let deadline = Instant::now() + DRAIN;
    drop(timeout_at(deadline, servers.join_all()).await);
    if timeout_at(deadline, join_all(fronts.map(Front::drained))).await.is_err() {
        tracing::warn!("requests did not end in time; their transactions are rolled back");
    }
    running.finish(deadline).await;
}

fn token(base: &Base) -> Result<Token, Failure> {
    let token = base.settings.ops_token()?;
    let why = match token.as_deref() {
        None => "OPS_TOKEN and OPS_TOKEN_FILE are missing",
        Some(token) if token.starts_with(DEMO) => "OPS_TOKEN is one that everybody knows",
        Some(_) => return Ok(Token::new(token.as_deref())),
    };
    if base.settings.saga_demo == Switch::Off {
        let context =
            format!("{why}: set one that only operators know, or SAGA_DEMO=on where nobody else can reach it");
        return Err(Failure::permanent("settings.ops_token", context));
    }
    tracing::warn!("{why}: for a demo only");
    Ok(Token::new(token.as_deref()))
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), Failure> {
    let failed = |error| {
        let context = format!("{address} cannot be listened to");
        Failure::permanent("process.address", context).caused_by(Box::new(error) as Box<std::io::Error>)
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// The loops that run, by name.
struct Running {
    tasks: JoinSet<()>,
    names: HashMap<Id, Arc<str>>,
}

impl Running {
    fn start(loops: Vec<Loop>, stop: &CancellationToken) -> Running {
        let mut running = Running { tasks: JoinSet::new(), names: HashMap::new() };
        for one in loops {
            let handle = running.tasks.spawn((one.work)(stop.clone()));
            running.names.insert(handle.id(), one.pulse.name().into());
        }
        running
    }

    /// Waits for a loop that ends although nobody asked it to: without it the service only looks alive.
    async fn first_end(&mut self) -> Failure {
        let (id, what) = match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => (id, "ended by itself"),
            Some(Err(error)) => (error.id(), "panicked"),
            None => return std::future::pending().await,
        };
        let name = self.names.get(&id).map_or("a loop", AsRef::as_ref);
        Failure::permanent("process.loop_ended", format!("the loop {name} {what}"))
    }

    async fn finish(mut self, deadline: Instant) {
        while let Ok(Some(ended)) = timeout_at(deadline, self.tasks.join_next_with_id()).await {
            let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
            self.names.remove(&id);
        }
        if !self.tasks.is_empty() {
            let names: Vec<&str> = self.names.values().map(AsRef::as_ref).collect();
            tracing::warn!("loops that did not end in time: {}", names.join(", "));
        }
    }
}
