//! Where PostgreSQL and RabbitMQ are on this machine, and whether they are new enough. Debian keeps both off the
//! PATH, and its `/usr/sbin/rabbitmq-server` is a wrapper that serves only root and the user `rabbitmq`.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

/// What the servers need to start.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The directory of `initdb` and `postgres`.
    pub postgres: PathBuf,
    pub rabbitmq: PathBuf,
    pub epmd: PathBuf,
    /// The PATH for RabbitMQ's scripts: they call `erl`.
    pub path: String,
}

/// A server that is not there, and what brings it.
#[derive(Debug)]
pub struct Missing {
    pub packages: Vec<&'static str>,
}

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packages = self.packages.join(" ");
        write!(formatter, "not found on this machine: {packages}. On Debian or Ubuntu: apt-get install {packages}")
    }
}

impl std::error::Error for Missing {}

const OLDEST_POSTGRES: (u32, u32) = (15, 0);
const OLDEST_RABBITMQ: (u32, u32) = (3, 10);

impl Programs {
    /// Looks for both servers.
    ///
    /// # Errors
    /// [`Missing`], or a version that is too old.
    pub fn find() -> anyhow::Result<Self> {
        let (postgres, rabbitmq, epmd) = (find_postgres(), find_rabbitmq(), find_epmd());
        let mut packages = Vec::new();
        if postgres.is_none() {
            packages.push("postgresql");
        }
        if rabbitmq.is_none() || epmd.is_none() {
            packages.push("rabbitmq-server");
        }
        let (Some(postgres), Some(rabbitmq), Some(epmd)) = (postgres, rabbitmq, epmd) else {
            bail!(Missing { packages });
        };
        let mut path: Vec<PathBuf> = epmd.parent().map(Path::to_owned).into_iter().collect();
        path.extend(on_path("erl").and_then(|erl| erl.parent().map(Path::to_owned)));
        path.extend(["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from));
        let path = env::join_paths(path)?.into_string().map_err(|_| anyhow::anyhow!("PATH is not UTF-8"))?;
        let programs = Programs { postgres, rabbitmq, epmd, path };
        programs.check_versions()?;
        Ok(programs)
    }

    fn check_versions(&self) -> anyhow::Result<()> {
        let postgres = first_line(Command::new(self.postgres.join("postgres")).arg("--version"))?;
        check("PostgreSQL", &postgres, OLDEST_POSTGRES, "`postgresql-15` or newer (https://apt.postgresql.org)")?;
        let rabbitmq = match version_in_path(&self.rabbitmq) {
            Some(version) => version,
            // Answers without a running node.
            None => first_line(
                Command::new(self.rabbitmq.with_file_name("rabbitmqctl")).arg("version").env("PATH", &self.path),
            )?,
        };
        check(
            "RabbitMQ",
            &rabbitmq,
            OLDEST_RABBITMQ,
            "`rabbitmq-server` 3.10 or newer (https://www.rabbitmq.com/docs/download)",
        )
    }
}

/// Refuses a version that is too old. `text` is anything that has the version as its first number.
fn check(name: &str, text: &str, oldest: (u32, u32), install: &str) -> anyhow::Result<()> {
    let found = version(text).with_context(|| format!("{name} tells no version: {text:?}"))?;
    if found < oldest {
        let ((major, minor), (oldest_major, oldest_minor)) = (found, oldest);
        bail!("{name} {major}.{minor} is too old, {oldest_major}.{oldest_minor} or newer is needed: install {install}");
    }
    Ok(())
}

fn version(text: &str) -> Option<(u32, u32)> {
    let digits = text.trim_start_matches(|c: char| !c.is_ascii_digit());
    let mut numbers = digits.split(|c: char| !c.is_ascii_digit());
    let major = numbers.next()?.parse().ok()?;
    Some((major, numbers.next().and_then(|minor| minor.parse().ok()).unwrap_or(0)))
}

/// RabbitMQ stands in a directory named for its version: asking it would start an Erlang machine for half a second.
fn version_in_path(script: &Path) -> Option<String> {
    let real = script.canonicalize().ok()?;
    real.iter().find_map(|part| part.to_str()?.strip_prefix("rabbitmq_server-").map(str::to_owned))
}

fn first_line(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("running {}", command.get_program().display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}

fn find_postgres() -> Option<PathBuf> {
    let mut debian: Vec<(u32, PathBuf)> = subdirectories("/usr/lib/postgresql")
        .filter_map(|path| Some((path.file_name()?.to_str()?.parse().ok()?, path.join("bin"))))
        .collect();
    debian.sort();
    let debian = debian.into_iter().rev().map(|(_, path)| path);
    let configured = first_line(Command::new("pg_config").arg("--bindir")).ok().map(PathBuf::from);
    let path = on_path("postgres").and_then(|found| found.parent().map(Path::to_owned));
    debian.chain(configured).chain(path).find(|bin| bin.join("initdb").exists() && bin.join("postgres").exists())
}

fn find_rabbitmq() -> Option<PathBuf> {
    let homebrew = ["/opt/homebrew/opt/rabbitmq/sbin", "/usr/local/opt/rabbitmq/sbin"].map(PathBuf::from);
    let unpacked = subdirectories("/usr/lib/rabbitmq/lib").map(|path| path.join("sbin"));
    let known = [PathBuf::from("/usr/lib/rabbitmq/bin")].into_iter().chain(unpacked).chain(homebrew);
    let known = known.map(|directory| directory.join("rabbitmq-server"));
    known.chain(on_path("rabbitmq-server")).find(|script| script.exists() && !is_wrapper(script))
}

fn is_wrapper(script: &Path) -> bool {
    fs::read_to_string(script).is_ok_and(|text| text.contains("Only root or rabbitmq"))
}

fn find_epmd() -> Option<PathBuf> {
    let bundled = subdirectories("/usr/lib/erlang").map(|path| path.join("bin/epmd"));
    on_path("epmd").into_iter().chain(bundled).find(|path| path.exists())
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    env::split_paths(&path).map(|directory| directory.join(program)).find(|candidate| candidate.is_file())
}

fn subdirectories(path: &str) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_programs_print() {
        assert_eq!(version("postgres (PostgreSQL) 15.20 (Debian 15.20-0+deb12u1)"), Some((15, 20)));
        assert_eq!(version("postgres (PostgreSQL) 18beta1"), Some((18, 0)));
        assert_eq!(version("3.10.8"), Some((3, 10)));
        assert_eq!(version("none"), None);
    }

    #[test]
    fn an_old_server_is_refused_with_what_to_install() {
        let refusal = check("RabbitMQ", "3.9.13", OLDEST_RABBITMQ, "`rabbitmq-server` 3.10").unwrap_err().to_string();
        assert_eq!(refusal, "RabbitMQ 3.9 is too old, 3.10 or newer is needed: install `rabbitmq-server` 3.10");
        assert!(check("RabbitMQ", "4.0.5", OLDEST_RABBITMQ, "").is_ok());
    }
}
