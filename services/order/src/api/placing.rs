//! New orders, as many as come at the same time in one transaction: each with its saga, its first command and the
//! answer under its key. One that is refused, or fails, leaves the others alone.

use std::slice;

use chassis::idempotency::{self, Claim, Key, StoredAnswer};
use contracts::command::Line;
use futures::future::join_all;
use messaging::{Cause, Class, Failure, hold};
use uuid::Uuid;

use super::Api;
use super::body::PlaceOrder;
use super::place::answer;
use crate::domain::cart::{self, Rejection};
use crate::progress;
use crate::store::moves::Start;
use crate::store::orders;
use crate::store::sagas::OrderDetails;

/// An order that somebody wants to place.
pub(crate) struct Wanted {
    pub(super) key: Key,
    pub(super) fingerprint: [u8; 32],
    pub(super) request: PlaceOrder,
    pub(super) lines: Vec<Line>,
    pub(super) order_id: Uuid,
    pub(super) saga_id: Uuid,
    pub(super) cause: Cause,
}

/// What became of it.
pub(crate) enum Outcome {
    Placed(StoredAnswer),
    /// The same request was answered before.
    Repeated(StoredAnswer),
    /// The key belongs to another request.
    Mismatch,
    Refused(Rejection),
}

/// Places all of them together, or, where that fails, each by itself.
pub(super) async fn place(api: Api, wanted: Vec<Wanted>) -> Vec<Result<Outcome, Failure>> {
    match place_together(&api, &wanted).await {
        Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
        Err(failure) if wanted.len() == 1 || failure.class() == Class::Unavailable => {
            wanted.iter().map(|_| Err(failure.share())).collect()
        }
        // If the commit took effect after all, each finds its own answer under its key.
        Err(_) => join_all(wanted.iter().map(|one| place_alone(&api, one))).await,
    }
}

async fn place_alone(api: &Api, wanted: &Wanted) -> Result<Outcome, Failure> {
    place_together(api, slice::from_ref(wanted)).await.map(|mut outcomes| outcomes.remove(0))
}

async fn place_together(api: &Api, wanted: &[Wanted]) -> Result<Vec<Outcome>, Failure> {
    hold::point("order.received").await;
    let mut transaction = api.pool.begin().await?;
    let skus: Vec<String> = wanted.iter().flat_map(|wanted| &wanted.lines).map(|line| line.sku.clone()).collect();
    let products = orders::list_products(&mut transaction, &skus).await?;
    let mut decided = Vec::with_capacity(wanted.len());
    for wanted in wanted {
        decided.push(match cart::total(&wanted.lines, &products) {
            Ok(total) => {
                let order = OrderDetails {
                    id: wanted.order_id,
                    correlation_id: wanted.cause.correlation_id.clone(),
                    trace: wanted.cause.trace.clone(),
                    total,
                    payment_method: wanted.request.payment_method.clone(),
                    shipping: wanted.request.shipping(),
                    lines: wanted.lines.clone(),
                };
                let answer = answer(api, wanted.saga_id, &order)?;
                Ok((order, answer))
            }
            Err(rejection) => Err(rejection),
        });
    }
    let requests: Vec<_> = wanted
        .iter()
        .zip(&decided)
        .map(|(wanted, decided)| idempotency::Request {
            scope: &wanted.request.customer_id,
            key: &wanted.key,
            fingerprint: &wanted.fingerprint,
            answer: decided.as_ref().ok().map(|(_, answer)| answer),
        })
        .collect();
    let claims = idempotency::claim(&mut transaction, &requests).await?;
    let mut starts = Vec::new();
    let mut outcomes = Vec::with_capacity(wanted.len());
    for ((wanted, decided), claim) in wanted.iter().zip(decided).zip(claims) {
        outcomes.push(match (claim, decided) {
            (Some(Claim::Repeated(answer)), _) => Outcome::Repeated(answer),
            (Some(Claim::Mismatch), _) => Outcome::Mismatch,
            (Some(Claim::First) | None, Ok((order, answer))) => {
                let (saga_id, customer_id) = (wanted.saga_id, wanted.request.customer_id.as_str());
                starts.push(Start { saga_id, customer_id, order, cause: wanted.cause.clone() });
                Outcome::Placed(answer)
            }
            // It has written nothing, and its key can be used for the corrected order.
            (Some(Claim::First) | None, Err(rejection)) => Outcome::Refused(rejection),
        });
    }
    progress::start(&mut transaction, &api.deadlines, &starts).await?;
    hold::point("order.before_commit").await;
    // A crash before this line leaves nothing; after it, a repeat with the key gets this answer.
    hold::during("order.committing", transaction.commit()).await?;
    hold::point("order.committed").await;
    api.poke.poke();
    Ok(outcomes)
}
