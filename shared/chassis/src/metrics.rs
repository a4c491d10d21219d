//! Metrics for Prometheus: the process's recorder, what it buckets, and the gauges that are read when somebody looks.

use std::time::Duration;

use messaging::Failure;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use sqlx::PgPool;

/// From half a millisecond to a minute: a request, a confirm, a whole saga.
const SECONDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Whoever scrapes gets an answer by then, with or without the database.
const QUERY: Duration = Duration::from_secs(1);
/// A longer outbox is not counted to its end: the alarm has long gone off.
const COUNTED: i64 = 100_000;

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

/// The outbox as it is now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backlog {
    pub(crate) pending: i64,
    pub(crate) oldest: Duration,
}

/// Looks at the outbox of one's own schema and records what it sees; `None` where the database does not answer.
pub(crate) async fn read_backlog(pool: &PgPool) -> Option<Backlog> {
    let backlog = tokio::time::timeout(QUERY, tokio::spawn(backlog(pool.clone()))).await.ok()?.ok()?.ok()?;
    ::metrics::gauge!("outbox_pending").set(as_f64(backlog.pending));
    ::metrics::gauge!("outbox_oldest_seconds").set(backlog.oldest.as_secs_f64());
    Some(backlog)
}

async fn backlog(pool: PgPool) -> Result<Backlog, sqlx::Error> {
    let row = sqlx::query!(
        r#"select (select count(*) from (select from outbox limit $1) as counted) as "pending!",
                  coalesce((select extract(epoch from clock_timestamp() - created_at)::float8
                            from outbox order by id limit 1), 0) as "oldest!""#,
        COUNTED
    )
    .fetch_one(&pool)
    .await?;
    Ok(Backlog { pending: row.pending, oldest: Duration::try_from_secs_f64(row.oldest).unwrap_or_default() })
}

fn as_f64(count: i64) -> f64 {
    i32::try_from(count).map_or(f64::from(i32::MAX), f64::from)
}
