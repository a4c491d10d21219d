//! A private PostgreSQL and RabbitMQ: loopback only, on free ports, with passwords of their own, in a state directory
//! that one run owns. A run that was killed leaves nothing for long: the next one ends its servers.

mod coordinates;
mod directory;
mod find;
mod orphan;
mod packages;
pub mod ports;
mod postgres;
mod product;
mod rabbitmq;
mod registry;
mod root;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use coordinates::{Coordinates, Endpoint, VARIABLE, migrate};
pub use find::{Missing, Programs};
pub(crate) use orphan::MARK;
pub use packages::{Packages, Plan, can_be_fetched, folder};
pub use postgres::Postgres;
pub use product::Product;
pub use rabbitmq::RabbitMq;

use coordinates::derive;
use directory::{Fate, Medium, StateDirectory};
pub use directory::{end_abandoned, is_in_use, state_directory, take_turn};
use orphan::{Manner, reap};

/// Both servers, running. Dropping them ends them at once; [`Servers::stop`] stops those cleanly whose data is kept.
pub struct Servers {
    pub postgres: Postgres,
    pub broker: RabbitMq,
    secret: String,
    directory: Arc<StateDirectory>,
}

impl Servers {
    /// Fresh servers for a test run, or for one test that breaks them. Their data goes with them, and stands in memory
    /// where there is room.
    ///
    /// # Errors
    /// A server is [`Missing`], too old, or does not come up.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_in(StateDirectory::fresh(Medium::Memory).await?).await
    }

    /// The same with their data on a disk: for who measures what a commit costs.
    ///
    /// # Errors
    /// As [`Servers::start`].
    pub async fn start_on_disk() -> anyhow::Result<Self> {
        Self::start_in(StateDirectory::fresh(Medium::Disk).await?).await
    }

    /// The servers of this name, with their data from the last time; `fresh`: without it.
    ///
    /// # Errors
    /// As [`Servers::start`], or they run already.
    pub async fn start_named(name: &str, fresh: bool) -> anyhow::Result<Self> {
        let directory = StateDirectory::named(name).await?;
        if fresh {
            directory.empty()?;
        }
        Self::start_in(directory).await
    }

    async fn start_in(directory: StateDirectory) -> anyhow::Result<Self> {
        let programs = Programs::find()?;
        let secret = secret(&directory)?;
        let directory = Arc::new(directory);
        let (postgres, broker) = tokio::try_join!(
            Postgres::start_new(directory.clone(), programs.postgres, derive(&secret, "superuser")),
            RabbitMq::start_new(directory.clone(), programs.rabbitmq, derive(&secret, "administrator")),
        )?;
        Ok(Servers { postgres, broker, secret, directory })
    }

    /// The servers that `saga test` started for this run.
    ///
    /// # Errors
    /// It did not.
    pub fn of_this_run() -> anyhow::Result<Coordinates> {
        Coordinates::of_this_run()
    }

    pub fn coordinates(&self) -> Coordinates {
        Coordinates {
            directory: self.directory.path().to_owned(),
            postgres: self.postgres.endpoint(),
            broker: self.broker.endpoint(),
            management_port: self.broker.management_port(),
            secret: self.secret.clone(),
        }
    }

    /// Writes the coordinates to a file that only we can read, for [`VARIABLE`] to name.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn export(&self) -> anyhow::Result<PathBuf> {
        let path = self.directory().join("servers.json");
        let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&path)?;
        file.write_all(&serde_json::to_vec(&self.coordinates())?)?;
        Ok(path)
    }

    /// The state directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Stops both, and ends whatever else still runs for their directory. The name server of RabbitMQ goes last.
    ///
    /// # Errors
    /// One of them did not end when it was asked to, or survived.
    pub async fn stop(self) -> anyhow::Result<()> {
        let Servers { postgres, broker, directory, .. } = self;
        let (stopped, manner) = match directory.fate() {
            Fate::Kept => {
                let (postgres, broker) = tokio::join!(postgres.stop(), broker.stop());
                (postgres.and(broker), Manner::Gently)
            }
            // Its data goes: dropping the broker kills it, which takes milliseconds in place of seconds.
            Fate::Removed => (postgres.stop().await, Manner::AtOnce),
        };
        drop((postgres, broker));
        reap(directory.path(), manner).await?;
        stopped
    }
}

/// What all passwords of this directory are derived from.
fn secret(directory: &StateDirectory) -> anyhow::Result<String> {
    let path = directory.path().join("secret");
    if let Ok(secret) = fs::read_to_string(&path)
        && !secret.is_empty()
    {
        return Ok(secret);
    }
    let secret = format!("{:032x}", rand::random::<u128>());
    directory.write(&path, &secret, 0o400)?;
    Ok(secret)
}

/// The last lines of a log, for the error that ends with them.
pub(crate) fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return format!("{} is empty", log.display());
    }
    lines[lines.len().saturating_sub(12)..].join("\n")
}
