//! What operators can do with messages, under `/ops` of every service that has an outbox: look at outbox, history and
//! inbox, retry, skip, discard and replay. The rules are those of [`messaging::operate`].

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use garde::Validate;
use messaging::operate::look::{self, KeptLine, SentLine};
use messaging::operate::{self, Outcome, kept, pending, replay};
use messaging::{Failure, Poke};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::{PgConnection, PgPool};

use crate::json::{Json, Path, Query, printable};
use crate::problem::Problem;

mod which;

use which::{WhichKept, WhichSent};

/// Rows of a page, if nobody says how many.
const PAGE: i64 = 50;

/// What the routes share.
#[derive(Clone)]
pub(crate) struct Messages {
    pub(crate) pool: PgPool,
    pub(crate) poke: Poke,
    /// For how long inboxes remember.
    pub(crate) dedup_window: Duration,
}

/// Who acts and why, and whether only to say what would happen.
#[derive(Clone, Debug, Deserialize, Validate)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Acting {
    /// 3 to 500 characters, for those who ask later.
    #[garde(length(chars, min = 3, max = 500), custom(printable))]
    pub reason: String,
    /// Who; `operator` if not said.
    #[garde(inner(length(chars, min = 1, max = 64), custom(printable)))]
    pub actor: Option<String>,
    /// Only say what it would do.
    #[serde(default)]
    #[garde(skip)]
    pub dry_run: bool,
}

impl Acting {
    /// For [`messaging::operate`].
    pub fn act(&self) -> operate::Act {
        let actor = self.actor.clone().unwrap_or_else(|| "operator".to_owned());
        operate::Act { actor, reason: self.reason.clone(), is_dry_run: self.dry_run }
    }
}

/// Messages that are meant, and who acts on them.
#[derive(Debug, Deserialize, Validate)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Request<W: Validate<Context = ()>> {
    #[garde(dive)]
    which: W,
    #[garde(dive)]
    act: Acting,
}

/// A page of a list.
#[derive(Debug, Serialize)]
struct Page<L> {
    rows: Vec<L>,
    /// Pass it as `after` to get the next page; null on the last one.
    next: Option<i64>,
}

pub(crate) fn routes(messages: Messages) -> Router {
    Router::new()
        .route("/inbox", get(list_kept))
        .route(
            "/inbox/retry",
            post(|messages: State<Messages>, request: Json<Request<WhichKept>>| {
                act_on_kept(kept::Verb::Retry, messages, request)
            }),
        )
        .route(
            "/inbox/skip",
            post(|messages: State<Messages>, request: Json<Request<WhichKept>>| {
                act_on_kept(kept::Verb::Skip, messages, request)
            }),
        )
        .route(
            "/inbox/discard",
            post(|messages: State<Messages>, request: Json<Request<WhichKept>>| {
                act_on_kept(kept::Verb::Discard, messages, request)
            }),
        )
        .route("/outbox", get(list_pending))
        .route(
            "/outbox/retry",
            post(|messages: State<Messages>, request: Json<Request<WhichSent>>| {
                act_on_pending(pending::Verb::Retry, messages, request)
            }),
        )
        .route(
            "/outbox/discard",
            post(|messages: State<Messages>, request: Json<Request<WhichSent>>| {
                act_on_pending(pending::Verb::Discard, messages, request)
            }),
        )
        .route("/history", get(list_published))
        .route("/history/replay", post(replay_published))
        .route("/messages/{id}", get(show))
        .with_state(messages)
}

async fn list_kept(
    State(messages): State<Messages>,
    Query(which): Query<WhichKept>,
) -> Result<Json<Page<KeptLine>>, Problem> {
    let limit = which.limit().unwrap_or(PAGE);
    let rows = look::list_kept(&mut *messages.pool.acquire().await?, &which.filter(), limit).await?;
    Ok(Json(page(rows, limit, |row| row.seq)))
}

async fn list_pending(
    State(messages): State<Messages>,
    Query(which): Query<WhichSent>,
) -> Result<Json<Page<SentLine>>, Problem> {
    let limit = which.limit().unwrap_or(PAGE);
    let rows = look::list_pending(&mut *messages.pool.acquire().await?, &which.filter(), limit).await?;
    Ok(Json(page(rows, limit, |row| row.id)))
}

async fn list_published(
    State(messages): State<Messages>,
    Query(which): Query<WhichSent>,
) -> Result<Json<Page<SentLine>>, Problem> {
    let limit = which.limit().unwrap_or(PAGE);
    let rows = look::list_published(&mut *messages.pool.acquire().await?, &which.filter(), limit).await?;
    Ok(Json(page(rows, limit, |row| row.id)))
}

async fn show(State(messages): State<Messages>, Path(id): Path<String>) -> Result<Json<Vec<Value>>, Problem> {
    if printable(&id, &()).is_err() {
        return Err(unknown());
    }
    let found = look::show(&mut *messages.pool.acquire().await?, &id).await?;
    if found.is_empty() { Err(unknown()) } else { Ok(Json(found)) }
}

async fn act_on_kept(
    verb: kept::Verb,
    State(messages): State<Messages>,
    Json(Request { which, act }): Json<Request<WhichKept>>,
) -> Result<Json<Outcome>, Problem> {
    meant(which.names_something(), WhichKept::NEEDED)?;
    let (is_one, limit, which) = (which.is_one(), which.limit().unwrap_or(operate::MOST), which.filter());
    let (act, verb) = (act.act(), verb);
    transact(&messages, is_one, act.is_dry_run, verb.name(), async |transaction| {
        kept::act(transaction, verb, &which, &act, limit).await
    })
    .await
}

async fn act_on_pending(
    verb: pending::Verb,
    State(messages): State<Messages>,
    Json(Request { which, act }): Json<Request<WhichSent>>,
) -> Result<Json<Outcome>, Problem> {
    meant(which.names_waiting(), WhichSent::NEEDED_OF_WAITING)?;
    let (is_one, limit, which) = (which.is_one(), which.limit().unwrap_or(operate::MOST), which.filter());
    let act = act.act();
    transact(&messages, is_one, act.is_dry_run, verb.name(), async |transaction| {
        pending::act(transaction, verb, &which, &act, limit).await
    })
    .await
}

async fn replay_published(
    State(messages): State<Messages>,
    Json(Request { which, act }): Json<Request<WhichSent>>,
) -> Result<Json<Outcome>, Problem> {
    meant(which.names_published(), WhichSent::NEEDED_OF_PUBLISHED)?;
    let (is_one, limit, which) = (which.is_one(), which.limit().unwrap_or(operate::MOST), which.filter());
    let (act, window) = (act.act(), messages.dedup_window);
    transact(&messages, is_one, act.is_dry_run, replay::VERB, async |transaction| {
        replay::act(transaction, &which, window, &act, limit).await
    })
    .await
}

/// Without a criterion an act would mean everything: nobody means that.
fn meant(names_something: bool, what: &str) -> Result<(), Problem> {
    let refused = || Problem::new(StatusCode::BAD_REQUEST, "request.which", format!("name {what} in `which`"));
    names_something.then_some(()).ok_or_else(refused)
}

/// Does it in one transaction, and tells who asked for one message in vain.
async fn transact(
    messages: &Messages,
    is_one: bool,
    is_dry_run: bool,
    verb: &str,
    act: impl AsyncFnOnce(&mut PgConnection) -> Result<Outcome, Failure>,
) -> Result<Json<Outcome>, Problem> {
    let mut transaction = messages.pool.begin().await?;
    let outcome = act(&mut transaction).await?;
    if is_one && outcome.changed.is_empty() {
        match outcome.unchanged.first() {
            None => return Err(unknown()),
            Some(left) if !left.already => {
                let detail = format!("{}: {}", left.message_id, left.why);
                return Err(Problem::conflict("message.not_possible", detail));
            }
            Some(_) => {}
        }
    }
    if !is_dry_run && !outcome.changed.is_empty() {
        // A crash before this line leaves everything as it was; after it, act and record are both there.
        transaction.commit().await?;
        messages.poke.poke();
        // Who and why stand in the table, behind the token: people write names there.
        tracing::warn!("an operator chose to {verb}: {} of them", outcome.changed.len());
    }
    Ok(Json(outcome))
}

fn unknown() -> Problem {
    Problem::not_found("message.not_found", "this service has no such message there")
}

fn page<L>(rows: Vec<L>, limit: i64, place: impl Fn(&L) -> i64) -> Page<L> {
    let is_full = i64::try_from(rows.len()).is_ok_and(|count| count >= limit);
    let next = rows.last().filter(|_| is_full).map(place);
    Page { rows, next }
}
