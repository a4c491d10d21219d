//! A real Jaeger, where the machine has one: named by `JAEGER` or on the PATH as `jaeger`. Version 2, in memory, on
//! loopback only.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::child::{Child, Launch, Output};
use crate::eventually::{State, eventually};
use crate::path::on_path;
use crate::servers::{MARK, ports, tail};

const READY_WITHIN: Duration = Duration::from_secs(20);

/// The running program. Dropping it ends it.
pub struct Jaeger {
    query: SocketAddr,
    otlp: SocketAddr,
    client: reqwest::Client,
    log: PathBuf,
    child: Child,
}

impl Jaeger {
    /// Starts one on free ports, with its files in `directory`. `None` where the machine has no Jaeger: the test that
    /// wanted it says so.
    ///
    /// # Errors
    /// It does not come up; or it is missing although `CI` is set, where a test that did not run must not look green.
    pub async fn start(directory: &Path) -> anyhow::Result<Option<Self>> {
        match find() {
            Some(program) => {
                let ports = ports::pick(2)?;
                Self::start_on(&program, directory, ports[0], ports[1]).await.map(Some)
            }
            None if env::var("CI").is_ok_and(|ci| ci == "true") => {
                bail!("CI needs a Jaeger: none in JAEGER or on PATH")
            }
            None => Ok(None),
        }
    }

    /// Starts it on these ports: its page and API, and OTLP over HTTP.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn start_on(program: &Path, directory: &Path, query: u16, otlp: u16) -> anyhow::Result<Self> {
        let [query, otlp] = [query, otlp].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let internal = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::pick(1)?[0]));
        let file = directory.join("jaeger.json");
        fs::write(&file, configuration(query, internal, otlp).to_string())?;
        let log = directory.join("jaeger.log");
        let launch = Launch {
            program: program.to_owned(),
            arguments: vec![format!("--config=file:{}", file.display())],
            environment: BTreeMap::from([(MARK.to_owned(), directory.display().to_string())]),
            directory: directory.to_owned(),
            user: None,
            output: Output::File(log.clone()),
            farewell: Signal::SIGKILL,
        };
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build()?;
        let jaeger = Jaeger { query, otlp, client, log, child: launch.spawn()? };
        jaeger.ready().await?;
        Ok(jaeger)
    }

    /// What `OTEL_EXPORTER_OTLP_ENDPOINT` takes.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.otlp)
    }

    /// Waits for its end.
    pub async fn ended(&self) {
        self.child.ended().await;
    }

    /// Where its page is.
    pub fn page(&self) -> String {
        format!("http://{}", self.query)
    }

    /// The traces in which a span of this service has the tag, as Jaeger's API tells them.
    ///
    /// # Errors
    /// Jaeger does not answer.
    pub async fn traces(&self, service: &str, tag: &str, value: &str) -> anyhow::Result<Vec<Value>> {
        let tags = json!({ tag: value }).to_string();
        let mut url = reqwest::Url::parse(&format!("{}/api/traces", self.page()))?;
        url.query_pairs_mut().extend_pairs([
            ("service", service),
            ("tags", &tags),
            ("limit", "100"),
            ("lookback", "1h"),
        ]);
        let answer: Value = self.client.get(url).send().await?.error_for_status()?.json().await?;
        Ok(answer["data"].as_array().context("Jaeger answers with a list")?.clone())
    }

    async fn ready(&self) -> anyhow::Result<()> {
        eventually(READY_WITHIN, "Jaeger takes spans and answers", async || {
            if let Some(status) = self.child.exit() {
                let log = tail(&self.log);
                return Ok(State::Lost(format!("it ended with {status} ({}):\n{log}", self.log.display())));
            }
            TcpStream::connect(self.otlp).await?;
            let answer = self.client.get(format!("{}/api/services", self.page())).send().await?;
            Ok(if answer.status().is_success() { State::Reached(()) } else { State::pending(answer.status()) })
        })
        .await
    }
}

/// The program, if the machine has one.
pub fn find() -> Option<PathBuf> {
    let named = env::var_os("JAEGER").filter(|path| !path.is_empty()).map(PathBuf::from);
    named.or_else(|| on_path("jaeger"))
}

/// Its configuration takes JSON, which is YAML.
fn configuration(query: SocketAddr, internal: SocketAddr, otlp: SocketAddr) -> Value {
    json!({
        "service": {
            "extensions": ["jaeger_storage", "jaeger_query"],
            "pipelines": {"traces": {"receivers": ["otlp"], "processors": ["batch"], "exporters": ["jaeger_storage_exporter"]}},
            "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}},
        },
        "extensions": {
            "jaeger_storage": {"backends": {"memory": {"memory": {"max_traces": 100_000}}}},
            "jaeger_query": {
                "storage": {"traces": "memory"},
                "http": {"endpoint": query.to_string()},
                "grpc": {"endpoint": internal.to_string()},
            },
        },
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": otlp.to_string()}}}},
        // A test waits for its trace: hold nothing back.
        "processors": {"batch": {"timeout": "100ms"}},
        "exporters": {"jaeger_storage_exporter": {"trace_storage": "memory"}},
    })
}
