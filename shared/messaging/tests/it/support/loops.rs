//! Relays and consumers that run beside the test.

use std::time::Duration;

use messaging::{Backoff, Consumer, ConsumerSettings, Poke, Pulse, Queue, Relay, RelaySettings, State};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::eventually::{DEADLINE, eventually};
use super::script::Script;
use super::site::Site;
use super::wire::EXCHANGES;

/// A loop that runs; it is asked to stop when this is dropped.
pub(crate) struct Loop {
    pub(crate) pulse: Pulse,
    pub(crate) poke: Poke,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

/// Waits that a test can afford.
pub(crate) fn quick_relay() -> RelaySettings {
    let backoff = Backoff { first: Duration::from_millis(100), factor: 2, longest: Duration::from_millis(400) };
    RelaySettings { backoff, ..RelaySettings::default() }
}

impl Site {
    pub(crate) fn relay(&self, settings: RelaySettings) -> Loop {
        self.relay_as("shop", settings)
    }

    /// A relay in a process of its own name.
    pub(crate) fn relay_as(&self, process: &str, settings: RelaySettings) -> Loop {
        let relay = Relay::new(&self.database(), self.broker(process), EXCHANGES, settings);
        let (pulse, poke, stop) = (relay.pulse(), relay.poke(), CancellationToken::new());
        let task = Some(tokio::spawn(relay.run(stop.clone())));
        Loop { pulse, poke, stop, task }
    }

    pub(crate) fn consumer(&self, queue: Queue, script: Script) -> Loop {
        self.consume(queue, script, ConsumerSettings::default(), |consumer| consumer)
    }

    pub(crate) fn consume(
        &self,
        queue: Queue,
        script: Script,
        settings: ConsumerSettings,
        change: impl FnOnce(Consumer<Script>) -> Consumer<Script>,
    ) -> Loop {
        let poke = Poke::default();
        let consumer = Consumer::new(queue, script, &self.database(), self.broker("shop"), poke.clone());
        let consumer = change(consumer.with_settings(settings));
        let (pulse, stop) = (consumer.pulse(), CancellationToken::new());
        let task = Some(tokio::spawn(consumer.run(stop.clone())));
        Loop { pulse, poke, stop, task }
    }
}

impl Loop {
    /// Asks it to stop.
    pub(crate) fn begin_stop(&self) {
        self.stop.cancel();
    }

    /// Stops it and waits until it has.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            tokio::time::timeout(DEADLINE, task).await??;
        }
        anyhow::ensure!(self.pulse.read().0 == State::Stopped, "the pulse says {:?}", self.pulse.read());
        Ok(())
    }

    /// Waits for a state.
    pub(crate) async fn is(&self, reached: impl Fn(&State) -> bool) -> anyhow::Result<State> {
        let what = format!("the state of {}", self.pulse.name());
        eventually(&what, async || Ok(self.pulse.read().0), reached).await
    }

    pub(crate) async fn works(&self) -> anyhow::Result<()> {
        self.is(|state| *state == State::Working).await.map(drop)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
