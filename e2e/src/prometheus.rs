//! A real Prometheus, where the machine has one: named by `PROMETHEUS`, beside the promtool of `PROMTOOL`, or on the
//! PATH. On loopback only, its data in a directory of the caller.

use std::collections::BTreeMap;
use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use serde::Deserialize;

use crate::child::{Child, Launch, Output};
use crate::eventually::{State, eventually};
use crate::path::on_path;
use crate::servers::{MARK, ports, tail};

const READY_WITHIN: Duration = Duration::from_secs(20);

/// The running program. Dropping it ends it.
pub struct Prometheus {
    address: SocketAddr,
    client: reqwest::Client,
    child: Child,
}

/// One alert, as its API tells it.
#[derive(Clone, Debug, Deserialize)]
pub struct Alert {
    /// `pending` or `firing`.
    pub state: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

impl Prometheus {
    /// Starts one on a free port with this configuration, with its files in `directory`.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn start(program: &Path, configuration: &Path, directory: &Path) -> anyhow::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::pick(1)?[0]));
        let log = directory.join("prometheus.log");
        let launch = Launch {
            program: program.to_owned(),
            arguments: vec![
                format!("--config.file={}", configuration.display()),
                format!("--storage.tsdb.path={}", directory.join("prometheus").display()),
                format!("--web.listen-address={address}"),
            ],
            environment: BTreeMap::from([(MARK.to_owned(), directory.display().to_string())]),
            directory: directory.to_owned(),
            user: None,
            output: Output::File(log.clone()),
            farewell: Signal::SIGKILL,
        };
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build()?;
        let prometheus = Prometheus { address, client, child: launch.spawn()? };
        prometheus.ready(&log).await?;
        Ok(prometheus)
    }

    /// The alerts that are pending or firing now.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn alerts(&self) -> anyhow::Result<Vec<Alert>> {
        #[derive(Deserialize)]
        struct Answer {
            data: Data,
        }
        #[derive(Deserialize)]
        struct Data {
            alerts: Vec<Alert>,
        }
        let url = format!("http://{}/api/v1/alerts", self.address);
        let answer: Answer = self.client.get(url).send().await?.error_for_status()?.json().await?;
        Ok(answer.data.alerts)
    }

    async fn ready(&self, log: &Path) -> anyhow::Result<()> {
        let url = format!("http://{}/-/ready", self.address);
        eventually(READY_WITHIN, "Prometheus is ready", async || {
            if let Some(status) = self.child.exit() {
                return Ok(State::Lost(format!("it ended with {status} ({}):\n{}", log.display(), tail(log))));
            }
            let answer = self.client.get(&url).send().await.context("asking Prometheus")?;
            Ok(if answer.status().is_success() { State::Reached(()) } else { State::pending(answer.status()) })
        })
        .await
    }
}

/// The program, if the machine has one; the test that wanted it says so where there is none.
///
/// # Errors
/// It is missing although `CI` is set, where a test that did not run must not look green.
pub fn find() -> anyhow::Result<Option<PathBuf>> {
    let named = env::var_os("PROMETHEUS").filter(|path| !path.is_empty()).map(PathBuf::from);
    let beside = || Some(Path::new(&env::var_os("PROMTOOL")?).with_file_name("prometheus"));
    let found = named.or_else(|| beside().filter(|path| path.is_file())).or_else(|| on_path("prometheus"));
    let is_ci = env::var("CI").as_deref() == Ok("true");
    ensure!(found.is_some() || !is_ci, "CI needs a Prometheus: none in PROMETHEUS, beside PROMTOOL or on PATH");
    Ok(found)
}
