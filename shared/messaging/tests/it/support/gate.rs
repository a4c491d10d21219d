//! Handlers that wait until the test lets them go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use tokio::sync::Semaphore;

use super::eventually::eventually;
use super::script::Script;

/// A handler that waits in its first half until the gate is open.
pub(crate) fn gated() -> (Script, Gate) {
    gated_and_slow(Duration::ZERO)
}

/// The same, and each takes a while after that.
pub(crate) fn gated_and_slow(pause: Duration) -> (Script, Gate) {
    let gate = Gate { open: Arc::new(Semaphore::new(0)), waiting: Arc::default() };
    let (open, waiting) = (gate.open.clone(), gate.waiting.clone());
    let script = Script::new().preparing(move |_| {
        let (open, waiting) = (open.clone(), waiting.clone());
        async move {
            waiting.fetch_add(1, Ordering::Relaxed);
            drop(open.acquire().await);
            tokio::time::sleep(pause).await;
            waiting.fetch_sub(1, Ordering::Relaxed);
            Ok(())
        }
        .boxed()
    });
    (script, gate)
}

pub(crate) struct Gate {
    open: Arc<Semaphore>,
    waiting: Arc<AtomicU32>,
}

impl Gate {
    /// Waits until so many handlers wait.
    pub(crate) async fn waiting(&self, expected: u32) -> anyhow::Result<()> {
        let look = async || Ok(self.waiting.load(Ordering::Relaxed));
        eventually("handlers wait at the gate", look, |waiting| *waiting == expected).await.map(drop)
    }

    pub(crate) fn open(&self) {
        self.open.add_permits(1_000);
    }

    pub(crate) fn close(&self) {
        self.open.forget_permits(self.open.available_permits());
    }
}
