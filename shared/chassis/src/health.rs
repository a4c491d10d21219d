//! Health: *live* is whether the loops still go round, *ready* whether the work gets done.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use messaging::{Pulse, State};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::PgPool;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::metrics;

/// A loop that did not go round for so long hangs.
const HANGS: Duration = Duration::from_secs(30);
/// The database answers a cheap query by then, or it counts as away.
const DATABASE: Duration = Duration::from_secs(1);
/// Published messages should not be older than this.
const LATE: Duration = Duration::from_secs(300);
/// How long `health` waits for the answer.
const ASK: Duration = Duration::from_secs(3);

/// What health is told from.
#[derive(Clone)]
pub(crate) struct Health {
    pub(crate) pulses: Arc<[Pulse]>,
    pub(crate) pool: PgPool,
    pub(crate) has_outbox: bool,
    pub(crate) stop: CancellationToken,
    /// Who asks the database just now: the others wait for it. A connection that is being opened is work, and whoever
    /// asks again and again must not have it begun again and again.
    pub(crate) asking: Arc<Semaphore>,
}

/// Whether a service does its work, and what it waits for if not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Readiness {
    /// `ready`, `degraded`, `not_ready` or `stopping`.
    pub status: String,
    /// `up` or `away`.
    pub database: String,
    /// Its loops.
    pub loops: Vec<LoopNow>,
    /// What waits to be published; `None` where it could not be read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub outbox: Option<OutboxNow>,
}

/// The outbox as it is at a moment.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutboxNow {
    /// Rows that wait; counted up to 100,000.
    pub pending: i64,
    /// Age of the oldest one.
    pub oldest_seconds: u64,
}

/// A loop as it is at a moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoopNow {
    /// `relay`, `consumer.QUEUE`, ...
    pub name: String,
    /// `starting`, `working`, `standby`, `waiting` or `stopped`.
    pub state: String,
    /// The stable code of what it waits for.
    pub code: Option<String>,
    /// The same in words.
    pub reason: Option<String>,
    /// How long ago it went round.
    pub last_beat_ms: u64,
}

impl LoopNow {
    /// Reads a pulse.
    pub fn of(pulse: &Pulse) -> LoopNow {
        let (state, age) = pulse.read();
        let (word, code, reason) = match state {
            State::Starting => ("starting", None, None),
            State::Working => ("working", None, None),
            State::Standby => ("standby", None, None),
            State::Waiting { code, reason } => ("waiting", Some(code), Some(reason)),
            State::Stopped => ("stopped", None, None),
        };
        LoopNow {
            name: pulse.name().to_owned(),
            state: word.to_owned(),
            code,
            reason,
            last_beat_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

pub(crate) fn routes(health: Health) -> Router {
    Router::new().route("/health/live", get(live)).route("/health/ready", get(ready)).with_state(health)
}

async fn live(Shared(health): Shared<Health>) -> Response {
    let is_live = health.pulses.iter().all(|pulse| pulse.read().1 < HANGS || pulse.read().0 == State::Stopped);
    let status = if is_live { "live" } else { "hangs" };
    answer(is_live, &json!({ "status": status, "loops": loops(&health.pulses) }))
}

async fn ready(Shared(health): Shared<Health>) -> Response {
    let has_database = database_answers(&health).await;
    let backlog = if has_database && health.has_outbox { metrics::read_backlog(&health.pool).await } else { None };
    let is_late = backlog.is_some_and(|backlog| backlog.oldest > LATE);
    let works = health.pulses.iter().all(is_working);
    let is_ready = works && has_database && !health.stop.is_cancelled();
    let status = match (is_ready, is_late) {
        _ if health.stop.is_cancelled() => "stopping",
        (false, _) => "not_ready",
        (true, true) => "degraded",
        (true, false) => "ready",
    };
    let database = if has_database { "up" } else { "away" };
    let outbox =
        backlog.map(|backlog| OutboxNow { pending: backlog.pending, oldest_seconds: backlog.oldest.as_secs() });
    let loops = loops(&health.pulses);
    answer(is_ready, &Readiness { status: status.to_owned(), database: database.to_owned(), loops, outbox })
}

fn answer(is_good: bool, body: &impl Serialize) -> Response {
    let status = if is_good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(body)).into_response()
}

fn is_working(pulse: &Pulse) -> bool {
    let (state, age) = pulse.read();
    age < HANGS && matches!(state, State::Working | State::Standby)
}

fn loops(pulses: &[Pulse]) -> Vec<LoopNow> {
    pulses.iter().map(LoopNow::of).collect()
}

/// Whether it answers, and takes writes: during a fail-over it may only read. In a task of its own: a query that is
/// dropped half-way costs the pool a connection.
async fn database_answers(health: &Health) -> bool {
    let (pool, asking) = (health.pool.clone(), health.asking.clone());
    let answers = async move {
        let turn = asking.acquire_owned().await.ok()?;
        let query = tokio::spawn(async move {
            let _turn = turn;
            sqlx::query_scalar::<_, String>("show transaction_read_only").fetch_one(&pool).await
        });
        query.await.ok()?.ok()
    };
    matches!(tokio::time::timeout(DATABASE, answers).await, Ok(Some(read_only)) if read_only == "off")
}

/// Asks the process that listens at `ops_address` whether it is ready, and says so in one line.
pub(crate) fn ask(ops_address: SocketAddr) -> ExitCode {
    let url = format!("http://{}/health/ready", reachable(ops_address));
    let answer = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())
        .and_then(|runtime| runtime.block_on(fetch(&url)));
    let (line, code) = match answer {
        Ok((true, body)) => (body, ExitCode::SUCCESS),
        Ok((false, body)) => (body, ExitCode::FAILURE),
        Err(reason) => (format!("{url}: {reason}"), ExitCode::FAILURE),
    };
    drop(writeln!(std::io::stdout(), "{line}"));
    code
}

async fn fetch(url: &str) -> Result<(bool, String), String> {
    let text = |error: reqwest::Error| error.to_string();
    let client = reqwest::Client::builder().no_proxy().timeout(ASK).build().map_err(text)?;
    let answer = client.get(url).send().await.map_err(text)?;
    let is_good = answer.status().is_success();
    Ok((is_good, answer.text().await.map_err(text)?))
}

/// Who listens everywhere is asked on the loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
