//! `saga up`: the shop on this machine, until Ctrl-C.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use e2e::servers::{Coordinates, migrate};
use e2e::stack::vhost::Vhost;
use e2e::stack::{Process, Recipe, Service, Surroundings, programs};
use e2e::{Jaeger, Servers, jaeger};
use futures::future::{join_all, try_join_all};
use tokio::time::{Instant, sleep};

use crate::cli::cargo::{cargo, run_well};
use crate::cli::say::{say, timed};
use crate::cli::{ensure_servers, interrupted, until_interrupted};

/// Starts the shop: both servers, the tables, and the five services.
///
/// The data stays for the next time. A service that dies is started again, after a pause that grows. Traces go to a
/// Jaeger that is named by JAEGER or on the PATH, else to where --otlp says. Ctrl-C stops everything.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Build and run with optimizations.
    #[arg(long)]
    release: bool,
    /// Install missing servers with apt-get; needs root. `CI=true` does the same.
    #[arg(long)]
    yes: bool,
    /// Forget the data of the last time: orders, stock, everything.
    #[arg(long)]
    fresh: bool,
    /// Where traces go when there is no Jaeger program.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    otlp: Option<String>,
}

/// Of the database and of the vhost.
const NAME: &str = "saga";
const JAEGER_PAGE: u16 = 16_686;
const JAEGER_OTLP: u16 = 4318;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often the servers are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Who ran so long before it died begins again with the first pause.
const STABLE: Duration = Duration::from_secs(60);

struct Shop {
    // Ended in this order.
    processes: Vec<(Service, Process)>,
    jaeger: Option<Jaeger>,
    servers: Servers,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let mut shop = None;
    let started = until_interrupted(async {
        shop = Some(start(&arguments).await?);
        Ok(ExitCode::SUCCESS)
    });
    let code = started.await?;
    let Some(shop) = shop else { return Ok(code) };
    shop.tell();
    tokio::select! {
        asked = interrupted() => asked?,
        () = shop.watch() => {}
    }
    say("stopping everything");
    timed("everything is stopped", shop.stop()).await?;
    Ok(ExitCode::SUCCESS)
}

async fn start(arguments: &Arguments) -> anyhow::Result<Shop> {
    ensure_servers(arguments.yes).await?;
    // Whatever will fail shall fail before minutes are spent.
    ports_are_free()?;
    let jaeger = jaeger::find();
    if let Some(program) = jaeger.as_ref().filter(|program| !program.is_file()) {
        bail!("there is no program {}: JAEGER names it", program.display());
    }
    let mut build = cargo(&["build", "--workspace", "--bins"]);
    if arguments.release {
        build.arg("--release");
    }
    let (servers, ()) = tokio::try_join!(
        timed("PostgreSQL and RabbitMQ are ready", Servers::start_named("up", arguments.fresh)),
        timed("the services are built", run_well(build)),
    )?;
    let coordinates = servers.coordinates();
    let (_, (), jaeger) = tokio::try_join!(
        Vhost::create(&coordinates, NAME),
        timed("all migrations are applied", migrate(&coordinates, NAME)),
        start_jaeger(jaeger.as_deref(), servers.directory()),
    )?;
    let otlp = jaeger.as_ref().map(Jaeger::endpoint).or_else(|| arguments.otlp.clone());
    let recipes = recipes(&coordinates, otlp.as_deref(), arguments.release)?;
    let processes = timed("all five services are ready", async {
        try_join_all(
            recipes
                .into_iter()
                .map(async |(service, recipe)| Process::start(recipe).await.map(|process| (service, process))),
        )
        .await
    });
    Ok(Shop { processes: processes.await?, jaeger, servers })
}

fn ports_are_free() -> anyhow::Result<()> {
    for service in Service::ALL {
        for address in [address(service), ops_address(service)] {
            if TcpListener::bind(address).is_err_and(|error| error.kind() == ErrorKind::AddrInUse) {
                let (name, port) = (service.name(), address.port());
                bail!(
                    "port {port}, which the {name} service needs, is taken, perhaps by another `saga up`: end what uses \
                     it (`ss -ltnp 'sport = :{port}'` tells) and try again"
                );
            }
        }
    }
    Ok(())
}

async fn start_jaeger(program: Option<&Path>, directory: &Path) -> anyhow::Result<Option<Jaeger>> {
    let Some(program) = program else { return Ok(None) };
    Jaeger::start_on(program, directory, JAEGER_PAGE, JAEGER_OTLP).await.map(Some)
}

fn recipes(coordinates: &Coordinates, otlp: Option<&str>, release: bool) -> anyhow::Result<Vec<(Service, Recipe)>> {
    let directory = coordinates.directory.join("services");
    fs::create_dir_all(&directory)?;
    let built = programs()?;
    let target = built.parent().context("the target directory")?;
    let programs = target.join(if release { "release" } else { "debug" });
    let ops_token = ops_token(coordinates);
    let surroundings = Surroundings {
        coordinates,
        database: NAME,
        vhost: NAME,
        postgres_at: None,
        broker_at: None,
        ops_token: &ops_token,
        otlp,
        sandbox: Some(format!("http://{}", address(Service::Sandbox))),
    };
    let recipe = |service: Service| Recipe {
        name: service.name().to_owned(),
        program: programs.join(service.name()),
        arguments: Vec::new(),
        environment: surroundings.environment(service, address(service), ops_address(service)),
        directory: directory.clone(),
        state: coordinates.directory.clone(),
        ops_token: ops_token.clone(),
    };
    Ok(Service::ALL.into_iter().map(|service| (service, recipe(service))).collect())
}

/// Where a service listens for its customers.
fn address(service: Service) -> SocketAddr {
    let port = match service {
        Service::Order => 8001,
        Service::Payment => 8002,
        Service::Inventory => 8003,
        Service::Shipping => 8004,
        Service::Sandbox => 8005,
    };
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Where it listens for operators.
fn ops_address(service: Service) -> SocketAddr {
    let mut address = address(service);
    address.set_port(address.port() + 1000);
    address
}

fn ops_token(coordinates: &Coordinates) -> String {
    coordinates.password_of("operators")
}

impl Shop {
    /// Says where everything is.
    fn tell(&self) {
        let coordinates = self.servers.coordinates();
        for (service, _) in &self.processes {
            let name = service.name();
            say(format!("{name:<10} http://{}   operators http://{}", address(*service), ops_address(*service)));
        }
        say(format!("operators' token  export OPS_TOKEN={}", ops_token(&coordinates)));
        match &self.jaeger {
            Some(jaeger) => say(format!("Jaeger            {}", jaeger.page())),
            None => say("Jaeger            none: name one with JAEGER, or put `jaeger` on the PATH"),
        }
        let broker = &coordinates.broker;
        let management = coordinates.management_port;
        say(format!("RabbitMQ          http://{}:{management}  {} / {}", broker.host, broker.user, broker.password));
        let postgres = &coordinates.postgres;
        let Coordinates { directory, .. } = &coordinates;
        say(format!(
            "PostgreSQL        postgres://{}:{}@{}/{NAME}",
            postgres.user,
            postgres.password,
            postgres.address()
        ));
        say(format!("logs              {}/services", directory.display()));
        say(format!("data              {}: kept for the next time, forgotten with --fresh", directory.display()));
        say("everything is up; Ctrl-C stops it");
    }

    /// Starts again whoever dies, for ever.
    async fn watch(&self) {
        let services = join_all(self.processes.iter().map(|(service, process)| keep_up(service.name(), process)));
        tokio::join!(services, self.keep_servers_up());
    }

    async fn keep_servers_up(&self) {
        loop {
            sleep(LOOK).await;
            if self.servers.postgres.has_ended().await {
                revive("PostgreSQL", self.servers.postgres.start()).await;
            }
            if self.servers.broker.has_ended().await {
                revive("RabbitMQ", self.servers.broker.start()).await;
            }
        }
    }

    async fn stop(self) -> anyhow::Result<()> {
        for ended in join_all(self.processes.iter().map(|(_, process)| process.terminate())).await {
            if let Err(error) = ended {
                say(format!("{error:#}"));
            }
        }
        drop(self.jaeger);
        self.servers.stop().await
    }
}

async fn revive(name: &str, starting: impl Future<Output = anyhow::Result<()>>) {
    say(format!("{name} died and is started again"));
    let started = starting.await;
    let failed = started.is_err();
    told(name, started);
    if failed {
        sleep(LONGEST_PAUSE).await;
    }
}

fn told(name: &str, started: anyhow::Result<()>) {
    match started {
        Ok(()) => say(format!("{name} is ready again")),
        Err(error) => say(format!("{error:#}")),
    }
}

async fn keep_up(name: &str, process: &Process) {
    let mut pause = FIRST_PAUSE;
    let mut begin = Instant::now();
    loop {
        if let Ok(status) = process.ended().await {
            say(format!("{name} died ({status})"));
        }
        if begin.elapsed() > STABLE {
            pause = FIRST_PAUSE;
        }
        say(format!("{name} is started again in {} s", pause.as_secs()));
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        begin = Instant::now();
        told(name, process.restart().await);
    }
}
