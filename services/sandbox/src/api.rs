//! The third parties over HTTP: what they offer to the shop, and what a test asks of them. There is no login: they
//! listen where only the demo can reach them. Faults are switched on by operators only.

use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use chassis::Problem;
use tracing::Span;
use utoipa_axum::router::OpenApiRouter;

use crate::desk::{Desk, Handled, Take, Wish};
use crate::domain::TakeAnswer;
use crate::fault::{Behaviour, Plan, Refusal};
use crate::store::decisions::Subject;
use crate::switch::{Interference, Party};

mod carrier;
mod ledger;
mod provider;
mod switches;

/// The longest key.
const LONGEST_KEY: usize = 255;
/// The longest other text. The shop checks its customers' input; this only bounds what is stored.
const LONGEST_TEXT: usize = 1_000;

/// What the handlers share.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) desk: Desk,
    /// How long a request is held that gets no answer.
    pub(crate) hold: Duration,
}

impl Api {
    pub(crate) fn routes(self) -> OpenApiRouter {
        OpenApiRouter::new().merge(provider::routes()).merge(carrier::routes()).merge(ledger::routes()).with_state(self)
    }

    /// The routes for operators.
    pub(crate) fn verbs(self) -> Router {
        switches::verbs().with_state(self)
    }

    /// Lets the switches have their way with a request: some end here, some wait.
    async fn interfere(&self, party: Party, wish: Wish) -> Result<Interference, Problem> {
        let interference = self.desk.interfere(party, wish).await?;
        tokio::time::sleep(Duration::from_millis(interference.delay_ms)).await;
        match interference.instead {
            None | Some(Plan::Answer) => Ok(interference),
            Some(Plan::Refuse(refusal)) => Err(refuse(refusal)),
            Some(Plan::Hold(_)) => Err(self.keep_silent().await),
        }
    }

    /// A capture or a shipment, disturbed or not.
    async fn take(&self, party: Party, take: &Take, behaviour: Behaviour) -> Result<(TakeAnswer, Subject), Problem> {
        if let Some(handled) = self.desk.take_undisturbed(party, take, behaviour).await? {
            return self.answer(handled).await;
        }
        self.interfere(party, Wish::Take).await?;
        let handled = self.desk.take(party, take, behaviour).await?;
        self.answer(handled).await
    }

    async fn answer<A>(&self, handled: Handled<A>) -> Result<(A, Subject), Problem> {
        match handled {
            Handled::Answered(answer, subject) => Ok((answer, subject)),
            Handled::Refused(refusal) => Err(refuse(refusal)),
            Handled::Silent => Err(self.keep_silent().await),
        }
    }

    /// Holds the request longer than its caller waits. No transaction is open meanwhile.
    async fn keep_silent(&self) -> Problem {
        tokio::time::sleep(self.hold).await;
        Problem::new(StatusCode::GATEWAY_TIMEOUT, "sandbox.timeout", "held until the caller gave up, as asked")
    }
}

fn refuse(refusal: Refusal) -> Problem {
    let second = Duration::from_secs(1);
    match refusal {
        Refusal::Unavailable => Problem::unavailable("sandbox.unavailable", "away, as asked"),
        Refusal::RateLimited => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "sandbox.rate_limited", "too many requests, as asked")
                .retry_after(second)
        }
    }
}

/// Names the order on the request's span.
fn describe(order_id: Option<&str>, key: &str) {
    let span = Span::current();
    span.record("idempotency.key", key);
    if let Some(order_id) = order_id {
        span.record("order.id", order_id);
    }
}
