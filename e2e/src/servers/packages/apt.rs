//! Calls of apt-get and dpkg that read this machine's sources and settings, and write in a folder of ours only.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use nix::sys::signal::Signal;

use super::make;
use crate::child::{Launch, Output};
use crate::path::on_path;
use crate::servers::orphan::MARK;
use crate::servers::tail;

/// The apt of this machine with a state of its own, in which nothing is installed yet.
pub(super) struct Apt {
    /// What our children carry, so that the next run ends them if we die.
    mark: PathBuf,
    work: PathBuf,
}

impl Apt {
    pub(super) fn new(mark: &Path, work: &Path) -> anyhow::Result<Self> {
        let apt = Apt { mark: mark.to_owned(), work: work.to_owned() };
        for folder in ["state/lists/partial", "cache/archives/partial"] {
            make(&apt.folder().join(folder))?;
        }
        make(&apt.debs())?;
        let folder = apt.folder().display().to_string();
        fs::write(apt.folder().join("status"), "")?;
        // Read after the machine's own settings: its proxies, certificates and pins stay, its hooks, which write
        // elsewhere, do not. An empty status: what apt answers does not depend on what is half installed here.
        let settings = format!(
            "Dir::State \"{folder}/state\";\n\
             Dir::State::status \"{folder}/status\";\n\
             Dir::Cache \"{folder}/cache\";\n\
             Dir::Log \"{folder}\";\n\
             Acquire::Retries \"3\";\n\
             Acquire::Languages \"none\";\n\
             Acquire::IndexTargets::deb-src::Sources::DefaultEnabled \"false\";\n\
             #clear APT::Update::Pre-Invoke;\n\
             #clear APT::Update::Post-Invoke;\n\
             #clear APT::Update::Post-Invoke-Success;\n\
             #clear DPkg::Post-Invoke;\n"
        );
        fs::write(apt.folder().join("apt.conf"), settings)?;
        Ok(apt)
    }

    /// Where packages are downloaded to.
    pub(super) fn debs(&self) -> PathBuf {
        self.work.join("debs")
    }

    /// Reads the lists of all sources. One that fails is no error: the others may have what is needed.
    pub(super) async fn update(&self) {
        let _ = self.apt_get(&["-qq", "update"]).await;
    }

    /// What the installation of a package on an empty machine would bring.
    pub(super) async fn simulate(&self, package: &str) -> anyhow::Result<String> {
        let simulated = self.apt_get(&["-q", "-s", "--no-install-recommends", "install", package]).await;
        simulated.with_context(|| {
            format!(
                "apt-get cannot tell what {package} needs (are its sources reachable, and do they have it? Ubuntu has \
                 RabbitMQ in its component universe)"
            )
        })
    }

    /// The URIs and sizes of packages.
    pub(super) async fn locate(&self, packages: &BTreeSet<String>) -> anyhow::Result<String> {
        self.apt_get(&[&["-qq", "--print-uris", "download"], &names(packages)[..]].concat()).await
    }

    /// Downloads packages, and checks them against the signed lists.
    pub(super) async fn download(&self, packages: &BTreeSet<String>) -> anyhow::Result<()> {
        self.apt_get(&[&["-qq", "download"], &names(packages)[..]].concat()).await.map(drop)
    }

    /// The packages that this machine has for its own architecture.
    pub(super) async fn installed(&self) -> anyhow::Result<HashSet<String>> {
        let native = self.run("dpkg", &["--print-architecture"]).await?;
        let format = "${db:Status-Status} ${Architecture} ${Package}\n";
        let listed = self.run("dpkg-query", &["--show", "--showformat", format]).await?;
        Ok(installed(&listed, native.trim()))
    }

    pub(super) async fn unpack(&self, deb: &Path, root: &Path) -> anyhow::Result<()> {
        let (deb, root) = (deb.display().to_string(), root.display().to_string());
        self.run("dpkg", &["--extract", &deb, &root]).await.map(drop)
    }

    async fn apt_get(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let settings = self.folder().join("apt.conf").display().to_string();
        self.run("apt-get", &[&["-c", &settings], arguments].concat()).await
    }

    /// Runs a program to its end, and returns what it printed.
    async fn run(&self, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let printed = self.folder().join("output");
        let _ = fs::remove_file(&printed);
        let launch = Launch {
            program: on_path(program).with_context(|| format!("{program} is not there"))?,
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            environment: self.environment(),
            directory: self.debs(),
            user: None,
            output: Output::Files { output: printed.clone(), errors: self.log() },
            farewell: Signal::SIGTERM,
        };
        match launch.spawn()?.ended().await {
            Some(status) if status.success() => Ok(fs::read_to_string(&printed)?),
            status => {
                let ended = status.map_or_else(|| "was lost".to_owned(), |status| format!("ended with {status}"));
                let verb = arguments.iter().find(|argument| argument.starts_with(char::is_alphabetic));
                bail!("{program} {} {ended}: {}", verb.unwrap_or(&""), tail(&self.log()))
            }
        }
    }

    /// Ours, for its proxies; but answers in English, and no libraries that cargo named for us.
    fn environment(&self) -> BTreeMap<String, String> {
        let ours =
            env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let mut environment: BTreeMap<String, String> = ours.filter(|(name, _)| name != "LD_LIBRARY_PATH").collect();
        environment.insert("LC_ALL".to_owned(), "C".to_owned());
        environment.insert(MARK.to_owned(), self.mark.display().to_string());
        environment
    }

    fn folder(&self) -> PathBuf {
        self.work.join("apt")
    }

    fn log(&self) -> PathBuf {
        self.folder().join("log")
    }
}

fn names(packages: &BTreeSet<String>) -> Vec<&str> {
    packages.iter().map(String::as_str).collect()
}

fn installed(listed: &str, native: &str) -> HashSet<String> {
    let name = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
        ["installed", architecture, name] if [native, "all"].contains(&architecture) => Some(name.to_owned()),
        _ => None,
    };
    listed.lines().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::installed;

    #[test]
    fn a_package_counts_as_installed_only_whole_and_for_our_architecture() {
        let listed =
            "installed amd64 libpq5\nconfig-files amd64 libicu72\ninstalled i386 libxml2\ninstalled all tzdata\n";
        assert_eq!(installed(listed, "amd64"), ["libpq5", "tzdata"].map(str::to_owned).into());
    }
}
