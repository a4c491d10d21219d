//! Installs the servers' packages on Debian and Ubuntu, as root, without the cluster and the services that the
//! packages would bring up.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use tokio::process::Command;

const NO_CLUSTER: &str = "/etc/postgresql-common/createcluster.d/saga.conf";
/// Asked by every package before it starts a service; 101 forbids it.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// # Errors
/// There is no apt-get, or it fails.
pub async fn install(packages: &[&str]) -> anyhow::Result<()> {
    if let Some(directory) = Path::new(NO_CLUSTER).parent() {
        fs::create_dir_all(directory)?;
        fs::write(NO_CLUSTER, "create_main_cluster = false\n")?;
    }
    let is_ours = !Path::new(POLICY).exists();
    if is_ours {
        fs::write(POLICY, "#!/bin/sh\nexit 101\n")?;
        fs::set_permissions(POLICY, fs::Permissions::from_mode(0o755))?;
    }
    let installed = run(packages).await;
    if is_ours {
        fs::remove_file(POLICY)?;
    }
    installed
}

async fn run(packages: &[&str]) -> anyhow::Result<()> {
    apt_get(&["-qq", "update"]).await?;
    apt_get(&[&["-qq", "--yes", "--no-install-recommends", "install"], packages].concat()).await
}

async fn apt_get(arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("apt-get");
    // Its progress belongs with ours; standard output is for results.
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdout(std::io::stderr());
    let status = command.status().await.context("running apt-get")?;
    if !status.success() {
        bail!("apt-get {} ended with {status}", arguments.join(" "));
    }
    Ok(())
}
