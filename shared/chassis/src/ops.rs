//! The operators' listener: health and metrics for machines that watch, and under `/ops` the verbs of the service,
//! which need the token. It listens on another port than everybody's requests.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::health::{self, Health};
use crate::http::Front;
use crate::metrics::Figures;
use crate::problem::Problem;

/// What a bearer must show. Only its digest is kept.
#[derive(Clone, Copy)]
pub struct Token(Option<[u8; 32]>);

impl Token {
    /// Without a token nobody is let in.
    pub fn new(token: Option<&str>) -> Token {
        Token(token.map(|token| Sha256::digest(token).into()))
    }

    /// The digests have one length and are compared to their end, so the time tells nothing about the token.
    fn admits(&self, shown: &str) -> bool {
        let shown: [u8; 32] = Sha256::digest(shown).into();
        self.0.is_some_and(|expected| bool::from(expected.ct_eq(&shown)))
    }
}

/// The verbs of a service under `/ops`, behind the token.
pub fn guard(verbs: Router, token: Token) -> Router {
    // Also what is routed nowhere asks for the token first: strangers learn nothing about what there is.
    let verbs = verbs.fallback(crate::http::not_found).layer(from_fn_with_state(token, authorize));
    Router::new().nest("/ops", verbs)
}

pub(crate) fn router(front: &Front, verbs: Router, token: Token, health: Health, figures: Figures) -> Router {
    let (watch, has_outbox) = (health.pool.clone(), health.has_outbox);
    let scrape = get(move || async move {
        let text = figures.read(&watch, has_outbox).await;
        ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
    });
    // What machines ask every few seconds makes no spans.
    front.cover(guard(verbs, token)).merge(health::routes(health)).route("/metrics", scrape)
}

async fn authorize(State(token): State<Token>, request: Request, next: Next) -> Response {
    let shown = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    match shown.and_then(|value| value.strip_prefix("Bearer ")) {
        Some(shown) if token.admits(shown.trim()) => next.run(request).await,
        _ => {
            let problem = Problem::new(StatusCode::UNAUTHORIZED, "ops.unauthorized", "a valid bearer token is needed");
            ([(header::WWW_AUTHENTICATE, "Bearer")], problem).into_response()
        }
    }
}
