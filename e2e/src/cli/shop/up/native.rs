//! The shop as processes of ours: kept up, broken on request, and stopped.

use std::future::pending;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use e2e::shop::{Act, Disturbed, Part, Whereabouts};
use e2e::stack::{Process, Service};
use e2e::{Jaeger, Servers};
use futures::future::{join_all, try_join_all};
use tokio::time::{Instant, sleep};

use crate::cli::say::say;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often everything is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Who ran so long before it died begins again with the first pause.
const STABLE: Duration = Duration::from_secs(60);

/// The running shop.
pub(crate) struct Native {
    pub(crate) at: Whereabouts,
    /// What is killed or frozen because somebody asked for it.
    pub(super) disturbed: Arc<Mutex<Disturbed>>,
    // Ended in this order.
    pub(super) processes: Vec<(Service, Process)>,
    pub(super) jaeger: Option<Jaeger>,
    pub(super) servers: Servers,
}

impl Native {
    /// The state directory.
    pub(super) fn directory(&self) -> &Path {
        self.servers.directory()
    }

    /// Does something to a part; done when it is.
    pub(super) async fn act(&self, part: Part, act: Act) -> anyhow::Result<()> {
        say(format!("{act} {part}, as asked"));
        // Before it is done: nobody shall start again by himself what is killed on request.
        match act {
            Act::Kill | Act::Freeze => drop(self.disturbed().insert(part, act)),
            Act::Start | Act::Thaw => {}
        }
        self.do_it(part, act).await?;
        if matches!(act, Act::Start | Act::Thaw) {
            self.disturbed().remove(&part);
        }
        Ok(())
    }

    fn disturbed(&self) -> MutexGuard<'_, Disturbed> {
        self.disturbed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_killed(&self, part: Part) -> bool {
        self.disturbed().get(&part) == Some(&Act::Kill)
    }

    async fn do_it(&self, part: Part, act: Act) -> anyhow::Result<()> {
        let Servers { postgres, broker, .. } = &self.servers;
        match (part, act) {
            (Part::Postgres, Act::Kill) => postgres.kill().await,
            (Part::Postgres, Act::Start) => postgres.start().await,
            (Part::Postgres, Act::Freeze) => {
                postgres.pause().await;
                Ok(())
            }
            (Part::Postgres, Act::Thaw) => {
                postgres.resume().await;
                Ok(())
            }
            (Part::Rabbitmq, Act::Kill) => broker.kill().await,
            (Part::Rabbitmq, Act::Start) => broker.start().await,
            (Part::Rabbitmq, Act::Freeze) => {
                broker.pause().await;
                Ok(())
            }
            (Part::Rabbitmq, Act::Thaw) => {
                broker.resume().await;
                Ok(())
            }
            (Part::Service(service), act) => {
                // All instances: what is left would do the work.
                let processes = self.processes.iter().filter(|(known, _)| *known == service);
                let acts = processes.map(async |(_, process)| match act {
                    Act::Kill if !process.is_running() => Ok(()),
                    Act::Kill => process.kill().await,
                    Act::Start if process.is_running() => Ok(()),
                    Act::Start => process.restart().await,
                    Act::Freeze => process.pause(),
                    Act::Thaw => process.resume(),
                });
                try_join_all(acts).await.map(drop)
            }
        }
    }

    /// Starts again whoever dies, for ever. What was killed on request stays away.
    pub(super) async fn watch(&self) {
        let services = self.processes.iter().map(|(service, process)| {
            let part = Part::Service(*service);
            self.keep_up(
                part,
                process.name(),
                async || process.exit().is_some(),
                async || match process.is_running() {
                    true => Ok(()),
                    false => process.restart().await,
                },
            )
        });
        let Servers { postgres, broker, .. } = &self.servers;
        tokio::join!(
            join_all(services),
            self.keep_up(
                Part::Postgres,
                "postgres",
                async || postgres.has_ended().await,
                async || postgres.start().await
            ),
            self.keep_up(Part::Rabbitmq, "rabbitmq", async || broker.has_ended().await, async || broker.start().await),
            self.tell_of_jaeger(),
        );
    }

    /// Starts a part again whenever it has died, after a pause that grows.
    async fn keep_up(
        &self,
        part: Part,
        name: &str,
        mut has_died: impl AsyncFnMut() -> bool,
        mut start: impl AsyncFnMut() -> anyhow::Result<()>,
    ) {
        let mut pause = FIRST_PAUSE;
        let mut begin = Instant::now();
        loop {
            sleep(LOOK).await;
            if !has_died().await {
                continue;
            }
            if begin.elapsed() > STABLE {
                pause = FIRST_PAUSE;
            }
            say(format!("{name} died and is started again in {} s", pause.as_secs()));
            loop {
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                // Somebody may have killed it for good meanwhile.
                if self.is_killed(part) {
                    break;
                }
                begin = Instant::now();
                match start().await {
                    Ok(()) => {
                        say(format!("{name} is ready again"));
                        break;
                    }
                    Err(error) => say(format!("{error:#}; {name} is tried again in {} s", pause.as_secs())),
                }
            }
        }
    }

    /// Traces are not worth a restart, and worth a word.
    async fn tell_of_jaeger(&self) {
        if let Some(jaeger) = &self.jaeger {
            jaeger.ended().await;
            say("Jaeger died: traces are lost until the next `cargo saga up`");
        }
        pending().await
    }

    pub(super) async fn stop(self) -> anyhow::Result<()> {
        let running = self.processes.iter().filter(|(_, process)| process.is_running());
        for ended in join_all(running.map(|(_, process)| process.terminate())).await {
            if let Err(error) = ended {
                say(format!("{error:#}"));
            }
        }
        drop(self.jaeger);
        self.servers.stop().await
    }
}
