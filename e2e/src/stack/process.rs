//! One process of a service: started, killed, frozen and started again at the same addresses.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::child::{Child, Launch, Output};
use crate::eventually::{State, eventually};
use crate::holds::Holds;
use crate::servers::MARK;
use crate::stack::client::{Answer, Client};

/// Five of them start at once on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// The services' own limit is 20 s.
const TERMINATED_WITHIN: Duration = Duration::from_secs(30);
/// How much of its log an error shows.
const LAST_LINES: usize = 15;

/// What a process is started with.
#[derive(Clone)]
pub struct Recipe {
    pub name: String,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub environment: BTreeMap<String, String>,
    /// For its log.
    pub directory: PathBuf,
    /// The state directory of the servers it works on.
    pub state: PathBuf,
    pub ops_token: String,
}

/// A running process, or one that was ended and can be started again.
pub struct Process {
    recipe: Recipe,
    holds: Holds,
    running: Mutex<Option<Arc<Running>>>,
}

struct Running {
    child: Child,
    client: Client,
}

impl Process {
    /// Starts it and waits until it is ready.
    ///
    /// # Errors
    /// It does not become ready; the error ends with its log.
    pub async fn start(mut recipe: Recipe) -> anyhow::Result<Self> {
        let holds = Holds::new(recipe.directory.join(format!("{}.holds", recipe.name)))?;
        recipe.environment.insert("SAGA_HOLDS".to_owned(), holds.directory().display().to_string());
        recipe.environment.insert(MARK.to_owned(), recipe.state.display().to_string());
        let process = Process { recipe, holds, running: Mutex::new(None) };
        process.launch().await?;
        Ok(process)
    }

    /// The name of this instance.
    pub fn name(&self) -> &str {
        &self.recipe.name
    }

    /// Its hold points; no other process sees them.
    pub fn holds(&self) -> &Holds {
        &self.holds
    }

    /// # Errors
    /// It does not run.
    pub fn pid(&self) -> anyhow::Result<i32> {
        self.running().map(|running| running.child.pid())
    }

    /// Requests to it.
    ///
    /// # Errors
    /// It does not run.
    pub fn client(&self) -> anyhow::Result<Client> {
        self.running().map(|running| running.client.clone())
    }

    /// # Errors
    /// It does not run, or no answer came.
    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.client()?.get(path).await
    }

    /// Posts with an `Idempotency-Key`.
    ///
    /// # Errors
    /// It does not run, or no answer came: whether it took effect is unknown.
    pub async fn post(&self, path: &str, body: &Value, key: &str) -> anyhow::Result<Answer> {
        self.client()?.post(path, body, key).await
    }

    /// Every line that it has written to its log, over all its lives.
    pub fn logs(&self) -> Vec<String> {
        read_from(&self.log(), 0).lines().map(str::to_owned).collect()
    }

    /// Kills it, as a crash would.
    ///
    /// # Errors
    /// It does not run.
    pub async fn kill(&self) -> anyhow::Result<()> {
        let running = self.take()?;
        running.child.signal(Signal::SIGKILL);
        running.child.ended().await.context("waiting for the end of a killed process")?;
        Ok(())
    }

    /// Asks it to end, and waits.
    ///
    /// # Errors
    /// It does not run, or does not end.
    pub async fn terminate(&self) -> anyhow::Result<ExitStatus> {
        let running = self.take()?;
        running.child.signal(Signal::SIGTERM);
        // One that is frozen hears nothing else.
        running.child.signal(Signal::SIGCONT);
        let ended = running.child.ended_within(TERMINATED_WITHIN).await;
        ended.with_context(|| self.with_log(&format!("did not end within {} s", TERMINATED_WITHIN.as_secs())))
    }

    /// Whether it runs, as far as it was not ended on purpose and has not died.
    pub fn is_running(&self) -> bool {
        self.running().is_ok_and(|running| running.child.exit().is_none())
    }

    /// How it died, if it was not ended on purpose and has died.
    pub fn exit(&self) -> Option<ExitStatus> {
        self.running().ok().and_then(|running| running.child.exit())
    }

    /// Waits until it ends by itself, for example at a hold point.
    ///
    /// # Errors
    /// It does not run.
    pub async fn ended(&self) -> anyhow::Result<ExitStatus> {
        let running = self.running()?;
        let status = running.child.ended().await.context("waiting for the end of a process")?;
        *self.slot() = None;
        Ok(status)
    }

    /// Starts it again, at the same addresses; one that still runs is killed first.
    ///
    /// # Errors
    /// It does not become ready.
    pub async fn restart(&self) -> anyhow::Result<()> {
        if self.running().is_ok() {
            self.kill().await?;
        }
        self.launch().await
    }

    /// Freezes it.
    ///
    /// # Errors
    /// It does not run.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.running().map(|running| running.child.signal(Signal::SIGSTOP))
    }

    /// # Errors
    /// It does not run.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.running().map(|running| running.child.signal(Signal::SIGCONT))
    }

    async fn launch(&self) -> anyhow::Result<()> {
        let Recipe { name, program, arguments, environment, directory, ops_token, .. } = &self.recipe;
        if !program.exists() {
            bail!("{} is not built: run `cargo saga test`", program.display());
        }
        let launch = Launch {
            program: program.clone(),
            arguments: arguments.clone(),
            environment: environment.clone(),
            directory: directory.clone(),
            user: None,
            output: Output::Files { output: self.log(), errors: directory.join(format!("{name}.stderr")) },
            farewell: Signal::SIGKILL,
        };
        let begin = fs::metadata(self.log()).map_or(0, |log| log.len());
        let child = launch.spawn()?;
        let listens = format!("{name} listens");
        let addresses = eventually(READY_WITHIN, &listens, async || self.addresses(&child, begin)).await;
        let (http, ops) = addresses.with_context(|| self.with_log("does not listen"))?;
        let client = Client::new(http, ops, ops_token)?;
        let is_ready = format!("{name} is ready");
        let ready = eventually(READY_WITHIN, &is_ready, async || {
            if let Some(status) = child.exit() {
                return Ok(State::Lost(format!("it ended with {status}")));
            }
            let answer = client.ops_get("/health/ready").await?;
            Ok(if answer.status == 200 { State::Reached(()) } else { State::pending(answer) })
        });
        ready.await.with_context(|| self.with_log("does not become ready"))?;
        *self.slot() = Some(Arc::new(Running { child, client }));
        Ok(())
    }

    /// Where it listens, as it says itself.
    fn addresses(&self, child: &Child, begin: u64) -> anyhow::Result<State<(SocketAddr, SocketAddr)>> {
        let text = read_from(&self.log(), begin);
        // In either form of the log.
        let field = |line: &str, name: &str| {
            Some(line.split_once(name)?.1.split('"').find(|part| part.contains('.'))?.to_owned())
        };
        let listening = text.lines().filter(|line| line.contains("listening")).find_map(|line| {
            // A process that only publishes has no listener for customers.
            let ops = field(line, "opsAddress")?;
            Some((field(line, "httpAddress").unwrap_or(ops.clone()), ops))
        });
        match (listening, child.exit()) {
            (Some((http, ops)), _) => Ok(State::Reached((http.parse()?, ops.parse()?))),
            (None, None) => Ok(State::pending(text.lines().last())),
            (None, Some(status)) => Ok(State::Lost(format!("it ended with {status}"))),
        }
    }

    fn log(&self) -> PathBuf {
        self.recipe.directory.join(format!("{}.log", self.recipe.name))
    }

    fn with_log(&self, what: &str) -> String {
        let Recipe { name, directory, .. } = &self.recipe;
        let mut lines = self.logs();
        let errors = fs::read_to_string(directory.join(format!("{name}.stderr"))).unwrap_or_default();
        lines.extend(errors.lines().map(str::to_owned));
        let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
        format!("{name} {what}; all it wrote is in {}, the end of it:\n{last}\n", directory.display())
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Arc<Running>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> anyhow::Result<Arc<Running>> {
        self.slot().clone().with_context(|| format!("{} does not run", self.recipe.name))
    }

    fn take(&self) -> anyhow::Result<Arc<Running>> {
        self.slot().take().with_context(|| format!("{} does not run", self.recipe.name))
    }
}

/// The lines that stand in a file from an offset on; nothing, if there is no such file yet.
fn read_from(path: &Path, offset: u64) -> String {
    let read = || {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // The last line may be on its way.
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        std::io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}

/// Two free addresses, for requests and for operators: the same over all lives of a process, so that whoever was told
/// them finds it again.
pub(crate) fn addresses() -> anyhow::Result<(SocketAddr, SocketAddr)> {
    let ports = crate::servers::ports::pick(2)?;
    let [http, ops] = [ports[0], ports[1]].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    Ok((http, ops))
}

/// Where the programs are: beside the running one, or beside the directory of a running test.
///
/// # Errors
/// The running program has no place.
pub fn programs() -> anyhow::Result<PathBuf> {
    let current = std::env::current_exe()?;
    let directory = current.parent().context("a program stands in a directory")?;
    let is_test = directory.file_name().is_some_and(|name| name == "deps");
    let directory = if is_test { directory.parent().unwrap_or(directory) } else { directory };
    Ok(Path::to_owned(directory))
}
