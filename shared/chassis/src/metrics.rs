//! Metrics for Prometheus: the process's recorder, what it buckets, and the gauges that are read when somebody looks.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
use futures::future::{BoxFuture, join_all};
use messaging::Failure;
use messaging::figures::{self, Backlog};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use sqlx::PgPool;

use crate::telemetry;

/// From half a millisecond to a minute: a request, a confirm, a whole saga.
const SECONDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Whoever scrapes gets an answer by then, with or without the database.
const QUERY: Duration = Duration::from_secs(1);

/// The process's recorder.
#[derive(Clone)]
pub struct Metrics {
    handle: PrometheusHandle,
}

impl Metrics {
    /// Takes over everything that the process records, each with the label `service`. Once in a process.
    ///
    /// # Errors
    /// Permanent, if it was done before.
    pub fn install(service: &'static str) -> Result<Metrics, Failure> {
        let failed = |error| Failure::permanent("process.metrics", "metrics cannot be recorded").caused_by(error);
        let handle = PrometheusBuilder::new()
            .add_global_label("service", service)
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS)
            .map_err(|error| failed(Box::new(error)))?
            .install_recorder()
            .map_err(|error| failed(Box::new(error)))?;
        figures::describe();
        telemetry::describe();
        describe_gauge!("database_pool_connections", "Connections of the pool for requests, by state.");
        describe_counter!(
            "retention_purged_rows_total",
            "Rows that were older than their time and are gone, by table."
        );
        describe_gauge!("process_start_time_seconds", Unit::Seconds, "When the process started, as Unix time.");
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        ::metrics::gauge!("process_start_time_seconds").set(started.as_secs_f64());
        describe_histogram!(
            "http_server_request_duration_seconds",
            Unit::Seconds,
            "Answers to requests, by method, route and status."
        );
        Ok(Metrics { handle })
    }

    /// Keeps histograms small; for ever.
    pub(crate) async fn upkeep(self) {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            self.handle.run_upkeep();
        }
    }

    /// All of them as text.
    pub(crate) fn render(&self) -> String {
        self.handle.render()
    }
}

/// Figures that a service reads when somebody scrapes, beside those of the core.
pub(crate) type Look = Arc<dyn Fn(PgPool) -> BoxFuture<'static, Result<(), Failure>> + Send + Sync>;

/// Looks at the outbox of one's own schema; `None` where the database does not answer.
pub(crate) async fn read_backlog(pool: &PgPool) -> Option<Backlog> {
    within(pool, |pool| async move { figures::read_backlog(&mut *pool.acquire().await?).await }).await
}

/// What a scrape is answered from.
#[derive(Clone)]
pub(crate) struct Figures {
    /// The pool that those who order share: told of, never used.
    pub(crate) requests: PgPool,
    pub(crate) metrics: Metrics,
    pub(crate) looks: Arc<[Look]>,
}

impl Figures {
    /// Reads everything that is read when somebody scrapes. Where the database does not answer, the last values stay.
    pub(crate) async fn read(&self, watch: &PgPool, has_outbox: bool) -> String {
        let state = |state: &'static str, count: f64| {
            ::metrics::gauge!("database_pool_connections", "state" => state).set(count);
        };
        let (open, idle) = (f64::from(self.requests.size()), self.requests.num_idle() as f64);
        state("idle", idle);
        state("in_use", open - idle);
        let core = async {
            if has_outbox {
                within(watch, |pool| async move { figures::read(&mut *pool.acquire().await?).await }).await;
            }
        };
        // Beside each other: whoever scrapes has an answer within the one second.
        tokio::join!(core, join_all(self.looks.iter().map(|look| within(watch, |pool| look(pool)))));
        self.metrics.render()
    }
}

/// In a task of its own: a query that is dropped half-way costs the pool a connection.
async fn within<T: Send + 'static, F>(pool: &PgPool, read: impl FnOnce(PgPool) -> F) -> Option<T>
where
    F: Future<Output = Result<T, Failure>> + Send + 'static,
{
    let reading = tokio::spawn(read(pool.clone()));
    match tokio::time::timeout(QUERY, reading).await.ok()?.ok()? {
        Ok(read) => Some(read),
        Err(failure) => {
            tracing::debug!(error.code = failure.code(), "figures cannot be read: {}", failure.chain());
            None
        }
    }
}
