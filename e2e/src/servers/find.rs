//! Where PostgreSQL and RabbitMQ are, and whether they are new enough: on this machine, else among the packages that we
//! unpacked. Debian keeps both off the PATH, and its `/usr/sbin/rabbitmq-server` is a wrapper that serves only root and
//! the user `rabbitmq`.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::path::on_path;
use crate::servers::packages;
use crate::servers::product::Product;
use crate::servers::root::{Root, subdirectories};

/// What the servers need to start.
#[derive(Clone, Debug)]
pub struct Programs {
    pub(crate) postgres: PostgresPrograms,
    pub(crate) rabbitmq: RabbitMqPrograms,
}

#[derive(Clone, Debug)]
pub(crate) struct PostgresPrograms {
    pub(crate) root: Root,
    /// The directory of `initdb` and `postgres`.
    pub(crate) directory: PathBuf,
}

#[derive(Clone, Debug)]
pub(crate) struct RabbitMqPrograms {
    pub(crate) root: Root,
    pub(crate) server: PathBuf,
    pub(crate) epmd: PathBuf,
    /// The PATH for its scripts: they call `erl`.
    pub(crate) path: String,
}

/// Servers that are not there.
#[derive(Debug)]
pub struct Missing {
    pub products: Vec<Product>,
}

impl Missing {
    /// The packages of Debian and Ubuntu that have them.
    pub fn packages(&self) -> String {
        self.products.iter().map(|product| product.package()).collect::<Vec<_>>().join(" ")
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = |product: &Product| format!("{} ({})", product.name(), product.programs());
        let products = self.products.iter().map(each).collect::<Vec<_>>().join(" and ");
        write!(formatter, "not found on this machine: {products}")
    }
}

impl std::error::Error for Missing {}

impl Programs {
    /// Looks for both servers.
    ///
    /// # Errors
    /// [`Missing`], or a version that is too old.
    pub fn find() -> anyhow::Result<Self> {
        let machine = Root::machine();
        let (mut postgres, mut rabbitmq) = (find_postgres(&machine), find_rabbitmq(&machine));
        if postgres.is_none() {
            postgres = find_postgres(&packages::root_of(Product::Postgres)?);
        }
        if rabbitmq.is_none() {
            rabbitmq = find_rabbitmq(&packages::root_of(Product::RabbitMq)?);
        }
        let (Some(postgres), Some(rabbitmq)) = (&postgres, &rabbitmq) else {
            let absent = [(Product::Postgres, postgres.is_none()), (Product::RabbitMq, rabbitmq.is_none())];
            bail!(Missing {
                products: absent.into_iter().filter_map(|(product, absent)| absent.then_some(product)).collect()
            });
        };
        let programs = Programs { postgres: postgres.clone(), rabbitmq: rabbitmq.clone() };
        programs.check_versions()?;
        Ok(programs)
    }

    fn check_versions(&self) -> anyhow::Result<()> {
        let mut postgres = Command::new(self.postgres.directory.join("postgres"));
        postgres.arg("--version").envs(self.postgres.root.environment());
        Product::Postgres.check(&first_line(&mut postgres, &self.postgres.root)?)?;
        let version = match version_in_path(&self.rabbitmq.server) {
            Some(version) => version,
            None => {
                // Answers without a running node.
                let mut control = Command::new(self.rabbitmq.server.with_file_name("rabbitmqctl"));
                control.arg("version").env("PATH", &self.rabbitmq.path).envs(self.rabbitmq.root.environment());
                first_line(&mut control, &self.rabbitmq.root)?
            }
        };
        Product::RabbitMq.check(&version)
    }
}

/// RabbitMQ stands in a directory named for its version: asking it would start an Erlang machine for half a second.
fn version_in_path(script: &Path) -> Option<String> {
    let real = script.canonicalize().ok()?;
    real.iter().find_map(|part| part.to_str()?.strip_prefix("rabbitmq_server-").map(str::to_owned))
}

fn first_line(command: &mut Command, root: &Root) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("running {}", command.get_program().display()))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let (program, errors, advice) = (command.get_program().display(), errors.trim(), root.advice(&errors));
        bail!("{program} does not run ({}): {errors}{advice}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}

fn find_postgres(root: &Root) -> Option<PostgresPrograms> {
    let mut debian: Vec<(u32, PathBuf)> = subdirectories(&root.join("usr/lib/postgresql"))
        .filter_map(|path| Some((path.file_name()?.to_str()?.parse().ok()?, path.join("bin"))))
        .collect();
    debian.sort();
    let mut candidates: Vec<PathBuf> = debian.into_iter().rev().map(|(_, path)| path).collect();
    if root.is_machine() {
        candidates.extend(first_line(Command::new("pg_config").arg("--bindir"), root).ok().map(PathBuf::from));
        candidates.extend(on_path("postgres").and_then(|found| found.parent().map(Path::to_owned)));
    }
    let has_both = |bin: &PathBuf| bin.join("initdb").exists() && bin.join("postgres").exists();
    let directory = candidates.into_iter().find(has_both)?;
    Some(PostgresPrograms { root: root.clone(), directory })
}

fn find_rabbitmq(root: &Root) -> Option<RabbitMqPrograms> {
    let mut directories = vec![root.join("usr/lib/rabbitmq/bin")];
    directories.extend(subdirectories(&root.join("usr/lib/rabbitmq/lib")).map(|path| path.join("sbin")));
    let erlang = root.join("usr/lib/erlang");
    let bundled = subdirectories(&erlang).map(|path| path.join("bin/epmd"));
    let (mut servers, mut epmds, mut erls) = (Vec::new(), Vec::new(), Vec::new());
    if root.is_machine() {
        directories.extend(["/opt/homebrew/opt/rabbitmq/sbin", "/usr/local/opt/rabbitmq/sbin"].map(PathBuf::from));
        servers.extend(on_path("rabbitmq-server"));
        epmds.extend(on_path("epmd"));
        erls.extend(on_path("erl"));
    }
    let known = directories.into_iter().map(|directory| directory.join("rabbitmq-server"));
    let server = known.chain(servers).find(|script| script.exists() && !is_wrapper(script))?;
    let epmd = epmds.into_iter().chain(bundled).find(|path| path.exists())?;
    let erl = erls.into_iter().chain([erlang.join("bin/erl")]).find(|path| path.exists())?;
    let mut path: Vec<PathBuf> =
        [&erl, &epmd].into_iter().filter_map(|path| path.parent().map(Path::to_owned)).collect();
    path.extend(["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from));
    let path = env::join_paths(path).ok()?.into_string().ok()?;
    Some(RabbitMqPrograms { root: root.clone(), server, epmd, path })
}

fn is_wrapper(script: &Path) -> bool {
    fs::read_to_string(script).is_ok_and(|text| text.contains("Only root or rabbitmq"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_its_programs_and_packages() {
        let missing = Missing { products: vec![Product::Postgres, Product::RabbitMq] };
        assert_eq!(
            missing.to_string(),
            "not found on this machine: PostgreSQL (initdb, postgres) and RabbitMQ (rabbitmq-server, epmd, erl)"
        );
        assert_eq!(missing.packages(), "postgresql rabbitmq-server");
    }
}
