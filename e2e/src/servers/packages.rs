//! PostgreSQL and RabbitMQ from the packages of Debian or Ubuntu, unpacked into a folder of ours: nothing is installed,
//! nothing needs root, and nothing is written elsewhere. Each server has a folder of its own, which takes its name only
//! when it is whole: who is killed on the way leaves nothing that is taken for a server.

mod apt;
mod platform;
mod simulation;
mod unpack;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::time::sleep;

use crate::path::on_path;
use crate::servers::directory;
use crate::servers::orphan::{Manner, reap};
use crate::servers::product::{Product, upstream};
use crate::servers::root::Root;

use apt::Apt;
use platform::Platform;
use simulation::Package;

/// How often a long download says how far it is.
const NEWS: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(200);

/// The folder for this distribution, held by us alone.
pub struct Packages {
    place: PathBuf,
    platform: Platform,
    /// Held, never read; the kernel lets go when we die.
    _lock: File,
}

/// What is about to be fetched.
pub struct Plan {
    packages: Packages,
    apt: Apt,
    servers: Vec<Server>,
    /// All of their packages, as apt-get takes them.
    wanted: BTreeSet<String>,
    bytes: u64,
}

/// A server, the version of its package, and all that it needs.
type Server = (Product, String, Vec<Package>);

/// Where the unpacked packages of a server are, if they were ever fetched.
pub(crate) fn root_of(product: Product) -> anyhow::Result<Root> {
    Ok(Root::unpacked(place(&Platform::here())?.join(product.package())))
}

/// The folder that all of this happens in.
///
/// # Errors
/// It cannot be made.
pub fn folder() -> anyhow::Result<PathBuf> {
    place(&Platform::here())
}

/// Whether this machine has what fetches and unpacks packages.
pub fn can_be_fetched() -> bool {
    ["apt-get", "dpkg", "dpkg-query"].iter().all(|program| on_path(program).is_some())
}

fn place(platform: &Platform) -> anyhow::Result<PathBuf> {
    Ok(directory::base()?.join("packages").join(platform.folder()))
}

impl Packages {
    /// Waits until nobody else fetches packages, and clears away what somebody left who was killed.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub async fn take(report: &dyn Fn(String)) -> anyhow::Result<Self> {
        let platform = Platform::here();
        let place = place(&platform)?;
        if place.to_string_lossy().contains(char::is_whitespace) {
            bail!(
                "RabbitMQ's scripts cannot run from {}, which has a space in it: name another folder with SAGA_STATE",
                place.display()
            );
        }
        make(&place)?;
        let lock = File::create(place.join("lock"))?;
        let mut has_told = false;
        while lock.try_lock().is_err() {
            if !has_told {
                report("waiting for another `saga` that fetches packages".to_owned());
                has_told = true;
            }
            sleep(PAUSE).await;
        }
        reap(&place, Manner::AtOnce).await?;
        let packages = Packages { place, platform, _lock: lock };
        packages.clear()?;
        Ok(packages)
    }

    /// Asks apt what the servers need that this machine does not have. Only lists are read so far.
    ///
    /// # Errors
    /// Apt does not know a server, or has only one that is too old.
    pub async fn plan(self, products: &[Product], report: &dyn Fn(String)) -> anyhow::Result<Plan> {
        report(format!("asking apt-get of {} for its lists of packages", self.platform.name));
        let begin = Instant::now();
        let apt = Apt::new(&self.place, &self.work())?;
        apt.update().await;
        report(format!("the lists are read ({:.1} s)", begin.elapsed().as_secs_f64()));
        let installed = apt.installed().await?;
        let mut servers = Vec::new();
        for &product in products {
            let closure = simulation::packages(&apt.simulate(product.package()).await?);
            let server = closure.iter().find(|package| package.name == product.package());
            let version = server.with_context(|| format!("apt-get offers no {}", product.package()))?.version.clone();
            servers.push((product, version, simulation::needed(closure, &installed)));
        }
        if let Some(refusal) = too_old(&self.platform.name, &servers) {
            bail!(refusal);
        }
        let wanted = with_versions(&servers);
        let bytes = simulation::sizes(&apt.locate(&wanted).await?)?.iter().sum();
        Ok(Plan { packages: self, apt, servers, wanted, bytes })
    }

    fn work(&self) -> PathBuf {
        self.place.join("work")
    }

    /// Nothing of a broken fetch is used again: apt would take a damaged package of the right size for whole.
    fn clear(&self) -> anyhow::Result<()> {
        match fs::remove_dir_all(self.work()) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error).context("removing what a fetch left"),
            _ => Ok(()),
        }
    }
}

impl Drop for Packages {
    fn drop(&mut self) {
        // A program that is just ending may still write: what is left goes with the next fetch.
        let _ = self.clear();
    }
}

impl Plan {
    /// Downloads and unpacks everything.
    ///
    /// # Errors
    /// A download fails, or what was unpacked cannot run on this machine.
    pub async fn fetch(self, report: &dyn Fn(String)) -> anyhow::Result<()> {
        let begin = Instant::now();
        report(format!("downloading {} packages, {} MB", self.wanted.len(), megabytes(self.bytes)));
        let debs = self.apt.debs();
        tokio::select! {
            done = self.apt.download(&self.wanted) => done?,
            never = tell_progress(&debs, self.bytes, report) => match never {},
        }
        report(format!("downloaded ({:.1} s)", begin.elapsed().as_secs_f64()));
        for (product, _, needed) in &self.servers {
            let begin = Instant::now();
            let place = self.unpack(*product, needed).await?;
            let (name, place) = (product.name(), place.display());
            report(format!("{name} is unpacked into {place} ({:.1} s)", begin.elapsed().as_secs_f64()));
        }
        Ok(())
    }

    /// Unpacks a server aside, and gives it its name when it is whole and can run.
    async fn unpack(&self, product: Product, needed: &[Package]) -> anyhow::Result<PathBuf> {
        let place = self.packages.place.join(product.package());
        let aside = self.packages.work().join("roots").join(product.package());
        make(&aside)?;
        for deb in simulation::files(&self.apt.debs(), needed)? {
            self.apt.unpack(&deb, &aside).await?;
        }
        unpack::settle(&aside, &place)?;
        unpack::check(product, &Root::unpacked(aside.clone()), &self.packages.platform.name).await?;
        if place.exists() {
            fs::remove_dir_all(&place).with_context(|| format!("removing {}", place.display()))?;
        }
        fs::rename(&aside, &place)?;
        Ok(place)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = |(product, version, _): &Server| format!("{} {}", product.name(), upstream(version));
        let servers = self.servers.iter().map(each).collect::<Vec<_>>().join(" and ");
        let (count, size, from) = (self.wanted.len(), megabytes(self.bytes), &self.packages.platform.name);
        let place = self.packages.place.display();
        write!(formatter, "{servers} from {from}: {count} packages, {size} MB to download and unpack into {place}")
    }
}

/// What to say when the distribution is older than what we need.
fn too_old(distribution: &str, servers: &[Server]) -> Option<String> {
    let refused = servers.iter().filter(|(product, version, _)| product.is_too_old(version));
    let each = |(product, version, _): &Server| {
        format!("has only {} {}, but {}", product.name(), upstream(version), product.remedy())
    };
    let refused: Vec<String> = refused.map(each).collect();
    (!refused.is_empty()).then(|| format!("{distribution} {}. Nothing was downloaded", refused.join("; it ")))
}

/// The packages of all servers, as apt-get takes them; two servers may need the same one.
fn with_versions(servers: &[Server]) -> BTreeSet<String> {
    servers.iter().flat_map(|(_, _, needed)| needed).map(Package::with_version).collect()
}

async fn tell_progress(debs: &Path, bytes: u64, report: &dyn Fn(String)) -> Infallible {
    let present = || -> u64 {
        let files = fs::read_dir(debs).into_iter().flatten().flatten();
        files.filter_map(|entry| entry.metadata().ok()).map(|file| file.len()).sum()
    };
    loop {
        sleep(NEWS).await;
        report(format!("  {} of {} MB", megabytes(present()), megabytes(bytes)));
    }
}

fn megabytes(bytes: u64) -> u64 {
    bytes.div_ceil(1_000_000)
}

/// Makes a directory that apt and the servers, which run as others when we are root, may read.
fn make(path: &Path) -> anyhow::Result<()> {
    directory::make_for_all(path, 0o755)
}

#[cfg(test)]
mod tests {
    use super::{Product, too_old};

    #[test]
    fn a_distribution_that_is_too_old_is_refused_with_what_to_install() {
        let servers = |postgres: &str, rabbitmq: &str| {
            [(Product::Postgres, postgres.to_owned(), Vec::new()), (Product::RabbitMq, rabbitmq.to_owned(), Vec::new())]
        };
        let refusal = too_old("Ubuntu 22.04.5 LTS", &servers("14+238", "3.9.27-0ubuntu0.1"));
        assert_eq!(
            refusal.as_deref(),
            Some(
                "Ubuntu 22.04.5 LTS has only PostgreSQL 14, but 15.0 or newer is needed: install `postgresql-15` or newer \
                 (https://apt.postgresql.org); it has only RabbitMQ 3.9.27, but 3.10 or newer is needed: install \
                 `rabbitmq-server` 3.10 or newer (https://www.rabbitmq.com/docs/download). Nothing was downloaded"
            )
        );
        assert_eq!(too_old("Debian 12", &servers("15+248", "3.10.8-1.1+deb12u1")), None);
    }
}
