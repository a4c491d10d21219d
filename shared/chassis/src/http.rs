//! The front of a listener: what happens to every request before and after its handler. A span with the caller's
//! trace, its whole body, a correlation id, a bound on how many run at once, and a task of its own, so that a client who leaves cancels
//! nothing: a transaction that is dropped half-way can lose the next write of its connection.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::get;
use futures::FutureExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, Span};
use utoipa_axum::router::OpenApiRouter;
use utoipa_swagger_ui::SwaggerUi;

use crate::correlation::{self, Correlation};
use crate::json::{LONGEST_BODY, read_body};
use crate::problem::Problem;
use crate::settings::Sampling;

mod description;
pub mod server;
mod span;

/// By then there is an answer, whatever the handler waits for: longer than any statement may take (15 s), so that only
/// a database that answers nothing at all, not even that it gives up, is answered for.
const ANSWER: Duration = Duration::from_secs(20);

/// Stands before the routes of a listener.
#[derive(Clone, Debug)]
pub struct Front {
    at_once: Arc<Semaphore>,
    running: TaskTracker,
    sampling: Sampling,
}

impl Front {
    /// Lets `at_once` requests run together and refuses the others.
    pub fn new(at_once: usize, sampling: Sampling) -> Front {
        let at_once = Arc::new(Semaphore::new(at_once.clamp(1, Semaphore::MAX_PERMITS)));
        Front { at_once, running: TaskTracker::new(), sampling }
    }

    /// Everything around the routes: spans, problems for what is routed nowhere, bounds.
    pub fn cover(&self, routes: Router) -> Router {
        routes
            .fallback(not_found)
            .method_not_allowed_fallback(method_not_allowed)
            .layer(from_fn_with_state(self.clone(), handle))
            .layer(DefaultBodyLimit::max(LONGEST_BODY))
    }

    /// The whole listener of a service: its routes, `/openapi.json` and the page at `/docs`.
    pub fn service(&self, name: &str, routes: OpenApiRouter) -> Router {
        let (routes, description) = routes.split_for_parts();
        let description = description::complete(name, description);
        // Whoever opens the bare address in a browser wants to know what there is.
        let start = get(async || Redirect::temporary("/docs"));
        self.cover(routes.route("/", start).merge(SwaggerUi::new("/docs").url("/openapi.json", description)))
    }

    /// Waits until every request that has begun is finished, also those whose client has left.
    pub async fn drained(&self) {
        self.running.close();
        self.running.wait().await;
    }
}

async fn handle(State(front): State<Front>, request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let route = matched.as_ref().map(MatchedPath::as_str).unwrap_or_default().to_owned();
    let method = span::known_method(request.method());
    let span = span::of_request(&request, method, &route, front.sampling);
    let handled = front.running.spawn(finish(front.clone(), method, route, request, next).instrument(span));
    match timeout(ANSWER, handled).await {
        Ok(Ok(response)) => response,
        // Only if the runtime ends: the task catches its own panics.
        Ok(Err(_)) => Problem::unavailable("unavailable", "the service is stopping").into_response(),
        // The task goes on: what it does is done once, and the same key finds it.
        Err(_) => Problem::unavailable("unavailable", "no answer in time, please try again").into_response(),
    }
}

/// Runs in a task that nobody cancels.
async fn finish(front: Front, method: &'static str, route: String, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    // The body first: who sends it slowly holds nobody up.
    let admitted = whole(request).await.and_then(|request| admit(&front, request));
    let response = match admitted {
        Ok((request, correlation, _permit)) => {
            let mut response =
                AssertUnwindSafe(next.run(request)).catch_unwind().await.unwrap_or_else(|_| panicked().into_response());
            if let Some(id) = correlation.caller().and_then(|id| HeaderValue::from_str(id).ok()) {
                response.headers_mut().insert(correlation::HEADER, id);
            }
            response
        }
        Err(problem) => problem.into_response(),
    };
    span::record_answer(&response, method, &route, begun.elapsed());
    response
}

async fn whole(request: Request) -> Result<Request, Problem> {
    let (parts, body) = request.into_parts();
    let mut bodily = Request::new(body);
    bodily.extensions_mut().clone_from(&parts.extensions);
    let body = read_body(bodily).await?;
    Ok(Request::from_parts(parts, Body::from(body)))
}

fn admit(front: &Front, mut request: Request) -> Result<(Request, Correlation, OwnedSemaphorePermit), Problem> {
    let permit = Arc::clone(&front.at_once)
        .try_acquire_owned()
        .map_err(|_| Problem::unavailable("overloaded", "too many requests at once, please try again"))?;
    // No text that a handler reads from path or query can then hold a character that PostgreSQL does not have.
    if request.uri().to_string().contains("%00") {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "request.malformed", "the URL contains the character NUL"));
    }
    let correlation = Correlation::of_request(request.headers(), &Span::current())?;
    request.extensions_mut().insert(correlation.clone());
    Ok((request, correlation, permit))
}

/// The panic itself is in the log, by the process's hook.
fn panicked() -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "something is wrong on our side")
}

pub(crate) async fn not_found() -> Problem {
    Problem::not_found("request.not_found", "there is nothing here")
}

async fn method_not_allowed() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "request.method_not_allowed", "not with this method")
}
