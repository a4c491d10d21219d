//! The shop as processes of ours: started in the right order, kept up, broken on request, and stopped.

use std::fs;
use std::future::pending;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use e2e::servers::{Coordinates, migrate};
use e2e::shop::{Act, Disturbed, Origin, Part, Whereabouts, native};
use e2e::stack::vhost::Vhost;
use e2e::stack::{Process, Recipe, Service, Surroundings, programs};
use e2e::{Jaeger, Servers, jaeger};
use futures::future::{join_all, try_join_all};
use tokio::time::{Instant, sleep};

use super::How;
use super::ports::Ports;
use crate::cli::cargo::{cargo, run_well};
use crate::cli::ensure_servers;
use crate::cli::say::{say, timed};

/// Of the database and of the vhost.
const NAME: &str = "saga";
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often everything is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How often a start looks for other ports.
const TRIES: usize = 3;
/// Who ran so long before it died begins again with the first pause.
const STABLE: Duration = Duration::from_secs(60);

/// The running shop.
pub(crate) struct Native {
    pub(crate) at: Whereabouts,
    /// What is killed or frozen because somebody asked for it.
    pub(super) disturbed: Arc<Mutex<Disturbed>>,
    // Ended in this order.
    processes: Vec<(Service, Process)>,
    jaeger: Option<Jaeger>,
    servers: Servers,
}

/// Starts everything and waits until it is ready.
pub(super) async fn start(how: &How) -> anyhow::Result<Native> {
    ensure_servers(how.yes).await?;
    // Whatever will fail shall fail before minutes are spent.
    let ports = Ports::choose(how.ports)?;
    let program = jaeger::find();
    if let Some(program) = program.as_ref().filter(|program| !program.is_file()) {
        bail!("there is no program {}: JAEGER names it", program.display());
    }
    let (servers, ()) = tokio::try_join!(
        timed("PostgreSQL and RabbitMQ are ready", Servers::start_named(native::NAME, how.fresh)),
        build(how),
    )?;
    let coordinates = servers.coordinates();
    tokio::try_join!(
        Vhost::create(&coordinates, NAME),
        timed("all migrations are applied", migrate(&coordinates, NAME)),
    )?;
    let mut ports = ports;
    let mut more = 1..TRIES;
    loop {
        match start_on(how, ports, program.as_deref(), &coordinates).await {
            Ok((at, processes, jaeger)) => {
                return Ok(Native { at, disturbed: Arc::default(), processes, jaeger, servers });
            }
            // Somebody took a port since we looked.
            Err(error) if ports.are_taken() && more.next().is_some() => {
                say(format!("{error:#}"));
                ports = Ports::choose(how.ports)?;
            }
            Err(error) => return Err(error),
        }
    }
}

async fn build(how: &How) -> anyhow::Result<()> {
    if how.no_build {
        return Ok(());
    }
    let mut build = cargo(&["build", "--workspace", "--bins"]);
    if how.release {
        build.arg("--release");
    }
    timed("the services are built", run_well(build)).await
}

type Started = (Whereabouts, Vec<(Service, Process)>, Option<Jaeger>);

/// Jaeger and the services, on these ports.
async fn start_on(
    how: &How,
    ports: Ports,
    program: Option<&Path>,
    coordinates: &Coordinates,
) -> anyhow::Result<Started> {
    let jaeger = start_jaeger(program, ports, &coordinates.directory).await?;
    let otlp = jaeger.as_ref().map(Jaeger::endpoint).or_else(|| how.otlp.clone());
    let at = whereabouts(coordinates, ports, jaeger.as_ref());
    let recipes = recipes(coordinates, &at, otlp.as_deref(), how.release)?;
    let processes = timed("all five services are ready", async {
        try_join_all(
            recipes
                .into_iter()
                .map(async |(service, recipe)| Process::start(recipe).await.map(|process| (service, process))),
        )
        .await
    });
    Ok((at, processes.await?, jaeger))
}

async fn start_jaeger(program: Option<&Path>, ports: Ports, directory: &Path) -> anyhow::Result<Option<Jaeger>> {
    let Some(program) = program else { return Ok(None) };
    let (page, otlp) = ports.jaeger();
    Jaeger::start_on(program, directory, page, otlp).await.map(Some)
}

fn whereabouts(coordinates: &Coordinates, ports: Ports, jaeger: Option<&Jaeger>) -> Whereabouts {
    let Coordinates { directory, postgres, broker, management_port, .. } = coordinates;
    Whereabouts {
        origin: Origin::Native,
        services: Service::ALL.into_iter().map(|service| (service, ports.of(service))).collect(),
        ops_token: coordinates.password_of("operators"),
        broker: format!("amqp://{}:{}@{}/{NAME}", broker.user, broker.password, broker.address()),
        broker_page: format!("http://{}:{}@{}:{management_port}", broker.user, broker.password, broker.host),
        postgres: format!("postgres://{}:{}@{}/{NAME}", postgres.user, postgres.password, postgres.address()),
        jaeger: jaeger.map(Jaeger::page),
        logs: directory.join("services").display().to_string(),
        data: Some(directory.clone()),
    }
}

fn recipes(
    coordinates: &Coordinates,
    at: &Whereabouts,
    otlp: Option<&str>,
    release: bool,
) -> anyhow::Result<Vec<(Service, Recipe)>> {
    let directory = coordinates.directory.join("services");
    fs::create_dir_all(&directory)?;
    let built = programs()?;
    let target = built.parent().context("the target directory")?;
    let programs = target.join(if release { "release" } else { "debug" });
    let listeners = |service: Service| at.services.get(&service).with_context(|| format!("no {}", service.name()));
    let surroundings = Surroundings {
        coordinates,
        database: NAME,
        vhost: NAME,
        postgres_at: None,
        broker_at: None,
        ops_token: &at.ops_token,
        otlp,
        sandbox: Some(format!("http://{}", listeners(Service::Sandbox)?.http)),
    };
    let recipe = |service: Service| {
        let listeners = listeners(service)?;
        let mut environment = surroundings.environment(service, listeners.http, listeners.ops);
        if let Some(page) = &at.jaeger {
            environment.insert("JAEGER_UI_URL".to_owned(), page.clone());
        }
        anyhow::Ok(Recipe {
            name: service.name().to_owned(),
            program: programs.join(service.name()),
            arguments: Vec::new(),
            environment,
            directory: directory.clone(),
            state: coordinates.directory.clone(),
            ops_token: at.ops_token.clone(),
        })
    };
    Service::ALL.into_iter().map(|service| Ok((service, recipe(service)?))).collect()
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
                let found = self.processes.iter().find(|(known, _)| *known == service);
                let (_, process) = found.with_context(|| format!("there is no {}", service.name()))?;
                match act {
                    Act::Kill => process.kill().await,
                    Act::Start if process.is_running() => Ok(()),
                    Act::Start => process.restart().await,
                    Act::Freeze => process.pause(),
                    Act::Thaw => process.resume(),
                }
            }
        }
    }

    /// Starts again whoever dies, for ever. What was killed on request stays away.
    pub(super) async fn watch(&self) {
        let services = self.processes.iter().map(|(service, process)| {
            let part = Part::Service(*service);
            self.keep_up(
                part,
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
            self.keep_up(Part::Postgres, async || postgres.has_ended().await, async || postgres.start().await),
            self.keep_up(Part::Rabbitmq, async || broker.has_ended().await, async || broker.start().await),
            self.tell_of_jaeger(),
        );
    }

    /// Starts a part again whenever it has died, after a pause that grows.
    async fn keep_up(
        &self,
        part: Part,
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
            say(format!("{part} died and is started again in {} s", pause.as_secs()));
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
                        say(format!("{part} is ready again"));
                        break;
                    }
                    Err(error) => say(format!("{error:#}; {part} is tried again in {} s", pause.as_secs())),
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
