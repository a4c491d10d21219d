//! What apt says it would do, read and reduced to what the servers need.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// A package that apt would install.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
}

impl Package {
    /// As apt-get takes it.
    pub(super) fn with_version(&self) -> String {
        format!("{}={}", self.name, self.version)
    }
}

/// What only the installation of the packages needs, or tools of theirs that we do not start. What is not listed here is
/// fetched: a name that a later release changes costs some megabytes, nothing else.
const NOT_NEEDED: [&str; 35] = [
    // Users, clusters, certificates and services of the machine, log rotation.
    "adduser",
    "cron",
    "logrotate",
    "lsb-base",
    "netbase",
    "openssl",
    "passwd",
    "postgresql",
    "procps",
    "readline-common",
    "sensible-utils",
    "ssl-cert",
    "ucf",
    "libpopt0",
    "libproc2-0",
    "media-types",
    "postgresql-client-common",
    "postgresql-common",
    "postgresql-common-dev",
    // The scripts of those, and of RabbitMQ's command line for people.
    "libexpat1",
    "libgdbm6",
    "libgdbm6t64",
    "libgdbm-compat4",
    "libgdbm-compat4t64",
    "libncursesw6",
    "libnsl2",
    "libsqlite3-0",
    "perl",
    "socat",
    "libwrap0",
    // Messages in other languages.
    "libc-l10n",
    "locales",
    // The compiler for queries, which is switched off, with what only it needs: half of the download.
    "libedit2",
    "libz3-4",
    "libbsd0",
];
const FAMILIES_NOT_NEEDED: [&str; 8] =
    ["cron-", "libllvm", "libperl", "libpython3", "libtirpc", "perl-modules-", "python3", "libtext-"];

/// The packages of a simulated installation.
pub(super) fn packages(simulation: &str) -> Vec<Package> {
    // Inst NAME [OLD VERSION] (VERSION ORIGIN [ARCHITECTURE])
    let package = |line: &str| {
        let (name, rest) = line.strip_prefix("Inst ")?.split_once(' ')?;
        let (_, rest) = rest.split_once('(')?;
        let version = rest.split([' ', ')']).next()?;
        Some(Package { name: name.to_owned(), version: version.to_owned() })
    };
    simulation.lines().filter_map(package).collect()
}

/// Those that this machine does not have and the servers cannot do without.
pub(super) fn needed(packages: Vec<Package>, installed: &HashSet<String>) -> Vec<Package> {
    packages.into_iter().filter(|package| is_needed(&package.name, installed)).collect()
}

fn is_needed(name: &str, installed: &HashSet<String>) -> bool {
    let is_of_family = |family: &&str| name.starts_with(*family);
    if NOT_NEEDED.contains(&name)
        || FAMILIES_NOT_NEEDED.iter().any(|family| name.starts_with(family))
        || name.ends_with("-perl")
    {
        return false;
    }
    // Erlang looks for its parts in one place only, so all of it must be in ours.
    ["erlang-", "postgresql-", "rabbitmq-"].iter().any(is_of_family) || !installed.contains(name)
}

/// The sizes of the packages that apt would download, from the URIs that it prints.
pub(super) fn sizes(uris: &str) -> anyhow::Result<Vec<u64>> {
    // 'URI' FILE SIZE HASH
    let size = |line: &str| {
        let size = line.split(' ').nth(2).and_then(|size| size.parse().ok());
        size.with_context(|| format!("apt-get names no size: {line}"))
    };
    uris.lines().filter(|line| line.starts_with('\'')).map(size).collect()
}

/// The downloaded files of these packages.
pub(super) fn files(directory: &Path, packages: &[Package]) -> anyhow::Result<Vec<PathBuf>> {
    let present: BTreeSet<String> =
        fs::read_dir(directory)?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let file = |package: &Package| {
        let name = package.name.split(':').next().unwrap_or_default();
        // A colon is no part of a file name.
        let begin = format!("{name}_{}_", package.version.replace(':', "%3a"));
        let found = present.iter().find(|file| file.starts_with(&begin) && file.ends_with(".deb"));
        match found {
            Some(file) => Ok(directory.join(file)),
            None => bail!("apt-get did not download {begin}"),
        }
    };
    packages.iter().map(file).collect()
}

#[cfg(test)]
mod tests;
