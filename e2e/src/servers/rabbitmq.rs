//! A RabbitMQ of our own: one data directory, one node name and one set of ports for its life, through every stop and
//! kill. The node name has no hostname in it, so the data is found again when the machine is renamed.

mod disturb;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::sys::signal::Signal;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::child::{Child, Launch, Output, wait_gone};
use crate::servers::coordinates::{Endpoint, LOOPBACK};
use crate::servers::directory::{Fate, StateDirectory};
use crate::servers::find::RabbitMqPrograms;
use crate::servers::orphan::MARK;
use crate::servers::{ports, registry};
use disturb::MEMORY;

/// No hostname in it that could change.
const NODE: &str = "saga@localhost";
const ADMINISTRATOR: &str = "administrator";
/// 2 to 7 s on a quiet machine, all of it loading code; several may start at once.
const READY_WITHIN: Duration = Duration::from_secs(90);
/// RabbitMQ 3.10 takes 6 s with its management plugin, long after its stores are closed.
const STOPPED_WITHIN: Duration = Duration::from_secs(20);
const TRIES: usize = 3;
const PAUSE: Duration = Duration::from_millis(20);

/// The running broker, and the same again after a stop.
pub struct RabbitMq {
    directory: Arc<StateDirectory>,
    programs: RabbitMqPrograms,
    home: PathBuf,
    ports: Ports,
    password: String,
    /// Its name server. Ours, because the node would start one that outlives it.
    epmd: Mutex<Option<Child>>,
    node: Mutex<Option<Child>>,
}

#[derive(Clone, Copy, Default)]
struct Ports {
    amqp: u16,
    distribution: u16,
    management: u16,
    epmd: u16,
}

impl RabbitMq {
    pub(crate) async fn start_new(
        directory: Arc<StateDirectory>,
        programs: RabbitMqPrograms,
        password: String,
    ) -> anyhow::Result<Self> {
        let home = directory.make("rabbitmq")?;
        let (epmd, node) = (Mutex::new(None), Mutex::new(None));
        let mut broker = RabbitMq { directory, programs, home, ports: Ports::default(), password, epmd, node };
        broker.write_cookie()?;
        let mut more = 1..TRIES;
        loop {
            let remembered = broker.directory.path().join("rabbitmq.ports");
            let [amqp, distribution, management, epmd] = ports::pick_again(&remembered, 4)?[..] else {
                bail!("four ports were asked for")
            };
            broker.ports = Ports { amqp, distribution, management, epmd };
            match broker.start().await {
                Err(error) if is_taken(&error.to_string()) && more.next().is_some() => *broker.epmd.get_mut() = None,
                started => return started.map(|()| broker),
            }
        }
    }

    /// How to reach it by AMQP, as its administrator.
    pub fn endpoint(&self) -> Endpoint {
        let (user, password) = (ADMINISTRATOR.to_owned(), self.password.clone());
        Endpoint { host: LOOPBACK, port: self.ports.amqp, user, password }
    }

    /// The pid of the node, while it runs.
    pub async fn pid(&self) -> Option<i32> {
        self.node.lock().await.as_ref().map(Child::pid)
    }

    pub fn management_port(&self) -> u16 {
        self.ports.management
    }

    /// Starts it again, on the same data and ports. One that runs is left alone: a second node would open its data.
    ///
    /// # Errors
    /// It does not come up; the error ends with its log.
    pub async fn start(&self) -> anyhow::Result<()> {
        let mut node = self.node.lock().await;
        if node.as_ref().is_some_and(|running| running.exit().is_none()) {
            return Ok(());
        }
        let mut epmd = self.epmd.lock().await;
        if epmd.as_ref().is_none_or(|running| running.exit().is_some()) {
            let port = self.ports.epmd.to_string();
            let arguments = ["-port", &port, "-address", "127.0.0.1"].map(str::to_owned).to_vec();
            *epmd = Some(self.launch(self.programs.epmd.clone(), arguments, Signal::SIGKILL)?);
        }
        drop(epmd);
        self.write_configuration()?;
        let _ = fs::remove_file(self.log());
        let farewell = if self.directory.fate() == Fate::Kept { Signal::SIGTERM } else { Signal::SIGKILL };
        let started = self.launch(self.programs.server.clone(), Vec::new(), farewell)?;
        if let Err(error) = self.ready(&started).await {
            // The next try opens the same data: this one must be gone before.
            started.signal(Signal::SIGKILL);
            started.ended_within(STOPPED_WITHIN).await;
            return Err(error);
        }
        *node = Some(started);
        Ok(())
    }

    /// Whether it ended although nobody stopped it.
    pub async fn has_ended(&self) -> bool {
        self.node.lock().await.as_ref().is_some_and(|node| node.exit().is_some())
    }

    /// Stops it cleanly.
    ///
    /// # Errors
    /// It does not end.
    pub async fn stop(&self) -> anyhow::Result<()> {
        self.end(Signal::SIGTERM).await
    }

    /// Kills it: what it had confirmed must be there again after a start. Queues that were declared in the last
    /// second are waited for, see `registry`.
    ///
    /// # Errors
    /// It does not end.
    pub async fn kill(&self) -> anyhow::Result<()> {
        let Endpoint { host, user, password, .. } = self.endpoint();
        let management = format!("http://{host}:{}/api", self.ports.management);
        let data = self.home.join(format!("data/{NODE}/quorum/{NODE}"));
        registry::written(&data, &management, &user, &password).await;
        self.end(Signal::SIGKILL).await
    }

    async fn end(&self, signal: Signal) -> anyhow::Result<()> {
        let Some(node) = self.node.lock().await.take() else { return Ok(()) };
        node.signal(signal);
        node.signal(Signal::SIGCONT);
        match node.ended_within(STOPPED_WITHIN).await {
            Some(_) => Ok(()),
            None => bail!("RabbitMQ did not end within {} s of {signal}", STOPPED_WITHIN.as_secs()),
        }
    }

    /// What the node and its tools prove themselves with; a file that others can read stops the boot.
    fn write_cookie(&self) -> anyhow::Result<()> {
        let cookie = self.home.join(".erlang.cookie");
        if cookie.exists() {
            return Ok(());
        }
        self.directory.write(&cookie, &format!("{:032x}", rand::random::<u128>()), 0o400)
    }

    fn write_configuration(&self) -> anyhow::Result<()> {
        let Ports { amqp, management, .. } = self.ports;
        let configuration = format!(
            "listeners.tcp.1 = {LOOPBACK}:{amqp}\n\
             management.tcp.ip = {LOOPBACK}\n\
             management.tcp.port = {management}\n\
             default_user = {ADMINISTRATOR}\n\
             default_pass = {}\n\
             log.console = true\n\
             log.file = false\n\
             vm_memory_high_watermark.absolute = {MEMORY}\n\
             disk_free_limit.absolute = 100MB\n\
             max_message_size = 1048576\n\
             raft.wal_max_size_bytes = 67108864\n",
            self.password
        );
        self.directory.write(&self.home.join("rabbitmq.conf"), &configuration, 0o400)?;
        self.directory.write(&self.home.join("enabled_plugins"), "[rabbitmq_management].\n", 0o600)
    }

    fn launch(&self, program: PathBuf, arguments: Vec<String>, farewell: Signal) -> anyhow::Result<Child> {
        let launch = Launch {
            program,
            arguments,
            environment: self.environment(),
            // A crash dump lands in the working directory.
            directory: self.home.clone(),
            user: self.directory.user(),
            output: Output::File(self.log()),
            farewell,
        };
        launch.spawn()
    }

    fn environment(&self) -> BTreeMap<String, String> {
        let home = self.home.display();
        let Ports { amqp, distribution, epmd, .. } = self.ports;
        [
            (MARK, self.directory.path().display().to_string()),
            ("PATH", self.programs.path.clone()),
            ("HOME", home.to_string()),
            ("LANG", "C.UTF-8".to_owned()),
            ("ERL_EPMD_PORT", epmd.to_string()),
            ("ERL_EPMD_ADDRESS", LOOPBACK.to_string()),
            ("RABBITMQ_NODENAME", NODE.to_owned()),
            ("RABBITMQ_NODE_IP_ADDRESS", LOOPBACK.to_string()),
            ("RABBITMQ_NODE_PORT", amqp.to_string()),
            ("RABBITMQ_DIST_PORT", distribution.to_string()),
            ("RABBITMQ_MNESIA_BASE", format!("{home}/data")),
            ("RABBITMQ_LOG_BASE", format!("{home}/log")),
            ("RABBITMQ_LOGS", "-".to_owned()),
            ("RABBITMQ_PID_FILE", format!("{home}/rabbitmq.pid")),
            ("RABBITMQ_CONFIG_FILE", format!("{home}/rabbitmq.conf")),
            // These two need not exist; unset, the machine's own would be read.
            ("RABBITMQ_CONFIG_FILES", format!("{home}/conf.d")),
            ("RABBITMQ_ADVANCED_CONFIG_FILE", format!("{home}/advanced.config")),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", format!("{home}/enabled_plugins")),
            ("RABBITMQ_CONF_ENV_FILE", "/dev/null".to_owned()),
            (
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "-kernel inet_dist_use_interface {127,0,0,1} -start_epmd false +B i".to_owned(),
            ),
            // The script then becomes the node: our child's pid is the node's.
            ("RUNNING_UNDER_SYSTEMD", "true".to_owned()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .chain(self.programs.root.environment())
        .collect()
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("rabbitmq.log")
    }

    /// Waits until it opens a connection and its management answers. The AMQP listener opens last.
    async fn ready(&self, node: &Child) -> anyhow::Result<()> {
        let begin = Instant::now();
        let Endpoint { host, port, user, password } = self.endpoint();
        let uri = format!("amqp://{user}:{password}@{host}:{port}/%2f");
        let overview = format!("http://{host}:{}/api/overview", self.ports.management);
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(5)).build()?;
        loop {
            if let Some(status) = node.exit() {
                bail!("RabbitMQ ended with {status}: {}", self.programs.root.explain(&self.log()));
            }
            if TcpStream::connect((host, port)).await.is_ok() {
                let connection = lapin::Connection::connect(&uri, lapin::ConnectionProperties::default()).await;
                let connection = connection.context("opening a connection to the RabbitMQ that has just started")?;
                connection.close(200, "ready".into()).await?;
                let answer = client.get(&overview).basic_auth(&user, Some(&password)).send().await;
                if answer.is_ok_and(|answer| answer.status().is_success()) {
                    return Ok(());
                }
            }
            if begin.elapsed() > READY_WITHIN {
                bail!(
                    "RabbitMQ is not ready after {} s: {}",
                    READY_WITHIN.as_secs(),
                    self.programs.root.explain(&self.log())
                );
            }
            sleep(PAUSE).await;
        }
    }
}

impl Drop for RabbitMq {
    fn drop(&mut self) {
        // While it ends it still writes: its data can be removed only afterwards.
        for child in [self.node.get_mut().take(), self.epmd.get_mut().take()].into_iter().flatten() {
            let pid = child.pid();
            drop(child);
            wait_gone(pid);
        }
    }
}

/// Whether a boot failed because another program has one of the ports.
fn is_taken(log: &str) -> bool {
    ["eaddrinuse", "could not bind", "already in use"].iter().any(|words| log.contains(words))
}
