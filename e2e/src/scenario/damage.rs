//! What a scenario has broken on purpose, until it is whole again.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use anyhow::ensure;
use serde_json::json;

use crate::shop::{Act, Part, Shop, problem};
use crate::stack::Service;

/// What must be taken back when a scenario ends, however it ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Broken {
    Killed(Part),
    Frozen(Part),
    /// With what was there before, as the sandbox tells it.
    Switched(String, Option<Before>),
    /// A message that nobody can read, in the inbox of this service, by its id.
    Parked(Service, String),
}

/// How a switch was set before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Before {
    /// As text: a share cannot be put in order.
    pub(super) rate: String,
    pub(super) delay_ms: u32,
    pub(super) seed: i64,
}

/// All that is broken now.
#[derive(Default)]
pub(super) struct Damage(Mutex<BTreeSet<Broken>>);

impl Damage {
    pub(super) fn remember(&self, broken: Broken) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(broken);
    }

    pub(super) fn forget(&self, broken: &Broken) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(broken);
    }

    /// Makes it whole. What cannot be is remembered, and does not keep the rest from it.
    pub(super) async fn mend(&self, shop: &Shop) -> anyhow::Result<()> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut failed = Ok(());
        for broken in all {
            match whole(shop, &broken).await {
                Ok(()) => self.forget(&broken),
                Err(error) => failed = Err(error.context("it is still broken; `cargo saga mend` takes it back")),
            }
        }
        failed
    }
}

async fn whole(shop: &Shop, broken: &Broken) -> anyhow::Result<()> {
    match broken {
        Broken::Killed(part) => shop.act(*part, Act::Start).await,
        Broken::Frozen(part) => shop.act(*part, Act::Thaw).await,
        Broken::Parked(service, id) => discard(shop, *service, id).await,
        Broken::Switched(name, None) => shop.switch_off(name).await,
        Broken::Switched(name, Some(Before { rate, delay_ms, seed })) => {
            shop.switch_on(name, rate.parse()?, *delay_ms, *seed).await
        }
    }
}

/// Gives a parked message up, as a person would who has looked at it.
async fn discard(shop: &Shop, service: Service, message_id: &str) -> anyhow::Result<()> {
    let which = json!({"messageId": message_id, "status": "parked"});
    let act = json!({"reason": "the scenario is over", "actor": "scenario"});
    let body = json!({"which": which, "act": act});
    let answer = shop.client(service)?.ops_post("/ops/inbox/discard", &body).await?;
    // Somebody else may have looked at it meanwhile.
    ensure!(matches!(answer.status, 200 | 404), "{} does not discard it: {}", service.name(), problem(&answer));
    Ok(())
}
