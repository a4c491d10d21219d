//! What a scenario has broken on purpose, until it is whole again.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::shop::{Act, Part, Shop};

/// What must be taken back when a scenario ends, however it ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Broken {
    Killed(Part),
    Frozen(Part),
    Switched(String),
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

    /// Makes it whole.
    pub(super) async fn mend(&self, shop: &Shop) -> anyhow::Result<()> {
        loop {
            let next = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_first();
            match next {
                None => return Ok(()),
                Some(Broken::Killed(part)) => shop.act(part, Act::Start).await?,
                Some(Broken::Frozen(part)) => shop.act(part, Act::Thaw).await?,
                Some(Broken::Switched(name)) => shop.switch_off(&name).await?,
            }
        }
    }
}
