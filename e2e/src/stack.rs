//! The whole shop for one test: a database and a vhost of its own, and the five services as real processes on them.
//! Stacks stand side by side on the same servers and know nothing of each other. What the processes wrote stays in
//! `target/saga-test` after the run.

pub mod client;
pub mod database;
mod process;
mod service;
mod settings;
pub mod vhost;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use futures::future::try_join_all;
use tokio::time::timeout;

pub use process::{Process, Recipe, programs};
pub use service::{Service, Surroundings};
pub use settings::Settings;

use crate::servers::Coordinates;
use database::Database;
use vhost::Vhost;

/// The directory, inside the target directory, where stacks leave their logs.
pub const LOGS: &str = "saga-test";
const OPS_TOKEN: &str = "operators-of-a-test";
/// A test that stopped its servers leaves nobody to ask.
const CLEANED_WITHIN: Duration = Duration::from_secs(5);

/// The running shop. Dropping it kills the processes and removes database and vhost.
pub struct Stack {
    settings: Settings,
    coordinates: Coordinates,
    directory: PathBuf,
    // Processes end before what they work on.
    processes: BTreeMap<Service, Process>,
    sandbox: String,
    ops: BTreeMap<Service, SocketAddr>,
    pub database: Database,
    pub vhost: Vhost,
}

impl Stack {
    /// Starts everything and waits until it is ready.
    ///
    /// # Errors
    /// There are no servers, or a service does not become ready; the error ends with its log.
    pub async fn start(settings: Settings) -> anyhow::Result<Self> {
        let mut stack = Self::start_empty(settings).await?;
        let mut listeners = Vec::new();
        for service in Service::ALL {
            let (http, ops) = process::addresses()?;
            if service == Service::Sandbox {
                stack.sandbox = format!("http://{http}");
            }
            stack.ops.insert(service, ops);
            listeners.push((service, http, ops));
        }
        let recipe = |(service, http, ops): (Service, SocketAddr, SocketAddr)| {
            stack.recipe(service, service.name(), http, ops).map(|recipe| (service, recipe))
        };
        let recipes = listeners.into_iter().map(recipe).collect::<anyhow::Result<Vec<_>>>()?;
        let started = try_join_all(
            recipes
                .into_iter()
                .map(async |(service, recipe)| Process::start(recipe).await.map(|process| (service, process))),
        );
        stack.processes = started.await?.into_iter().collect();
        Ok(stack)
    }

    /// Only database and vhost, with no service running.
    ///
    /// # Errors
    /// There are no servers.
    pub async fn start_empty(settings: Settings) -> anyhow::Result<Self> {
        let coordinates = match &settings.servers {
            Some(servers) => servers.clone(),
            None => Coordinates::of_this_run()?,
        };
        let name = format!("saga_{:08x}", rand::random::<u32>());
        let directory = logs()?.join(format!("{}-{name}", test_name()));
        fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
        let (database, vhost) =
            tokio::try_join!(Database::create(&coordinates, &name), Vhost::create(&coordinates, &name))?;
        let (processes, sandbox, ops) = (BTreeMap::new(), String::new(), BTreeMap::new());
        Ok(Stack { settings, coordinates, directory, processes, sandbox, ops, database, vhost })
    }

    /// Starts one more process of a service. It is the caller's: dropping it kills it.
    ///
    /// # Errors
    /// It does not become ready.
    pub async fn another(&self, service: Service) -> anyhow::Result<Process> {
        Process::start(self.recipe_of_another(service)?).await
    }

    /// What one more process of a service is started with, for the caller to change.
    ///
    /// # Errors
    /// There are no free ports.
    pub fn recipe_of_another(&self, service: Service) -> anyhow::Result<Recipe> {
        let (http, ops) = process::addresses()?;
        let name = format!("{}-{}", service.name(), http.port());
        self.recipe(service, &name, http, ops)
    }

    pub fn process(&self, service: Service) -> &Process {
        // An empty stack has none, and a test that asks it for one is wrong.
        self.processes.get(&service).expect("a stack that was started with its services")
    }

    pub fn order(&self) -> &Process {
        self.process(Service::Order)
    }

    pub fn payment(&self) -> &Process {
        self.process(Service::Payment)
    }

    pub fn inventory(&self) -> &Process {
        self.process(Service::Inventory)
    }

    pub fn shipping(&self) -> &Process {
        self.process(Service::Shipping)
    }

    pub fn sandbox(&self) -> &Process {
        self.process(Service::Sandbox)
    }

    /// Where the logs are, and room for a test's own files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Connects as the role of a service, to its schema.
    pub fn database_url(&self, service: Service) -> String {
        let at = self.coordinates.postgres.address();
        self.coordinates.database_url(service.schema(), self.database.name(), at)
    }

    /// Connects as the role that may only read.
    pub fn auditor_url(&self) -> String {
        self.coordinates.auditor_url(self.database.name())
    }

    /// RabbitMQ's management, with the administrator's name and password in it.
    pub fn broker_page(&self) -> String {
        self.coordinates.broker_page()
    }

    fn recipe(&self, service: Service, name: &str, http: SocketAddr, ops: SocketAddr) -> anyhow::Result<Recipe> {
        let surroundings = Surroundings {
            coordinates: &self.coordinates,
            database: self.database.name(),
            vhost: self.vhost.name(),
            postgres_at: self.settings.postgres_at.get(&service).copied(),
            broker_at: self.settings.broker_at.get(&service).copied(),
            ops_token: OPS_TOKEN,
            otlp: self.settings.otlp.as_deref(),
            sandbox: Some(self.sandbox.clone()),
            ops: self.ops.clone(),
        };
        let mut environment = surroundings.environment(service, http, ops);
        environment.extend(self.settings.variables.get(&service).cloned().unwrap_or_default());
        Ok(Recipe {
            name: name.to_owned(),
            program: programs()?.join(service.name()),
            arguments: Vec::new(),
            environment,
            directory: self.directory.clone(),
            state: self.coordinates.directory.clone(),
            ops_token: OPS_TOKEN.to_owned(),
        })
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.processes.clear();
        let (coordinates, name) = (self.coordinates.clone(), self.database.name().to_owned());
        // Dropping cannot wait, another thread can. A failure harms nobody: the servers go with the run.
        let cleaning = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let _ = timeout(CLEANED_WITHIN, async {
                    tokio::join!(Database::drop_named(&coordinates, &name), Vhost::drop_named(&coordinates, &name))
                })
                .await;
            });
            std::io::Result::Ok(())
        });
        let _ = cleaning.join();
    }
}

fn logs() -> anyhow::Result<PathBuf> {
    Ok(programs()?.parent().context("the target directory")?.join(LOGS))
}

/// The name of the running test: its thread is called so.
fn test_name() -> String {
    let thread = thread::current();
    let name = thread.name().unwrap_or("stack").rsplit("::").next().unwrap_or("stack");
    name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').take(80).collect()
}
