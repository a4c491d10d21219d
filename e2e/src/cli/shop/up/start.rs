//! Brings the shop up: servers, tables, Jaeger and services, in the right order.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use e2e::servers::{Coordinates, migrate};
use e2e::shop::{Listeners, Origin, Whereabouts, native};
use e2e::stack::vhost::Vhost;
use e2e::stack::{Process, Recipe, Service, Surroundings, programs};
use e2e::{Jaeger, Servers, jaeger};
use futures::future::try_join_all;

use super::ports::Ports;
use super::{How, Native};
use crate::cli::cargo::{cargo, run_well};
use crate::cli::ensure_servers;
use crate::cli::say::{say, timed};

/// Of the database and of the vhost.
const NAME: &str = "saga";
/// How often a start looks for other ports.
const TRIES: usize = 3;
/// A free port of this machine.
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// A log of so many bytes is put aside.
const LONG_LOG: u64 = 32 << 20;

/// Starts everything and waits until it is ready.
pub(super) async fn start(how: &How) -> anyhow::Result<Native> {
    ensure_servers(how.yes).await?;
    // Whatever will fail shall fail before minutes are spent.
    native::socket()?;
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
    let recipes = recipes(coordinates, &at, otlp.as_deref(), how)?;
    let what = match how.replicas {
        1 => "all five services are ready".to_owned(),
        count => format!("all five services are ready, four of them {count} times"),
    };
    let processes = timed(what, async {
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
    let starting = Jaeger::start_on(program, directory, page, otlp);
    timed("Jaeger is ready", starting).await.context("JAEGER, or the PATH, names it").map(Some)
}

fn whereabouts(coordinates: &Coordinates, ports: Ports, jaeger: Option<&Jaeger>) -> Whereabouts {
    let Coordinates { directory, postgres, broker, .. } = coordinates;
    Whereabouts {
        origin: Origin::Native,
        services: Service::ALL.into_iter().map(|service| (service, ports.of(service))).collect(),
        ops_token: coordinates.password_of("operators"),
        broker: format!("amqp://{}:{}@{}/{NAME}", broker.user, broker.password, broker.address()),
        broker_page: coordinates.broker_page(),
        postgres: format!("postgres://{}:{}@{}/{NAME}", postgres.user, postgres.password, postgres.address()),
        auditor: coordinates.auditor_url(NAME),
        jaeger: jaeger.map(Jaeger::page),
        logs: directory.join("services").display().to_string(),
        data: Some(directory.clone()),
    }
}

fn recipes(
    coordinates: &Coordinates,
    at: &Whereabouts,
    otlp: Option<&str>,
    how: &How,
) -> anyhow::Result<Vec<(Service, Recipe)>> {
    let directory = coordinates.directory.join("services");
    fs::create_dir_all(&directory)?;
    put_aside_long_logs(&directory)?;
    let built = programs()?;
    let target = built.parent().context("the target directory")?;
    let programs = target.join(if how.release { "release" } else { "debug" });
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
        ops: at.services.iter().map(|(service, listeners)| (*service, listeners.ops)).collect(),
    };
    let recipe = |service: Service, number: u8| {
        let listeners = match number {
            1 => *listeners(service)?,
            // Whatever is free: nobody has to know where the others are.
            _ => Listeners { http: ANY, ops: ANY },
        };
        let program = programs.join(service.name());
        if !program.is_file() {
            bail!("{} is not built: leave out --no-build", program.display());
        }
        let mut environment = surroundings.environment(service, listeners.http, listeners.ops);
        if let Some(page) = &at.jaeger {
            environment.insert("JAEGER_UI_URL".to_owned(), page.clone());
        }
        anyhow::Ok(Recipe {
            name: if number == 1 { service.name().to_owned() } else { format!("{}-{number}", service.name()) },
            program,
            arguments: Vec::new(),
            environment,
            directory: directory.clone(),
            state: coordinates.directory.clone(),
            ops_token: at.ops_token.clone(),
        })
    };
    let instances = Service::ALL.into_iter().flat_map(|service| {
        let count = if service.has_broker() { how.replicas } else { 1 };
        (1..=count).map(move |number| (service, number))
    });
    instances.map(|(service, number)| Ok((service, recipe(service, number)?))).collect()
}

/// Every start goes on in the logs of the last time. One that has become long is kept until the next such start.
fn put_aside_long_logs(directory: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(directory)?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "log") && entry.metadata()?.len() > LONG_LOG {
            fs::rename(&path, path.with_extension("log.old"))?;
        }
    }
    Ok(())
}
