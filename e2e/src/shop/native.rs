//! The shop of `cargo saga up`: found and steered through a socket in its state directory, which only its user can
//! open.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::future::LocalBoxFuture;
use reqwest::{Client, Method, Response};

use super::{Act, Control, Disturbed, Part, Whereabouts};
use crate::servers;

/// The name of its state directory.
pub const NAME: &str = "up";
const SOCKET: &str = "control.sock";
/// The longest path of a socket, on Linux and macOS alike.
const LONGEST_PATH: usize = 103;
/// A question is answered at once.
const SOON: Duration = Duration::from_secs(5);
/// Starting a killed server again replays its log first.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where the socket is.
///
/// # Errors
/// The path is too long for a socket.
pub fn socket() -> anyhow::Result<PathBuf> {
    let path = servers::state_directory(NAME)?.join(SOCKET);
    if path.as_os_str().len() > LONGEST_PATH {
        bail!("{} is too long for a socket: name a shorter directory with SAGA_STATE", path.display());
    }
    Ok(path)
}

/// Speaks to the program that keeps the shop up.
pub struct Supervisor {
    client: Client,
}

/// The shop, if it runs.
///
/// # Errors
/// Its supervisor answers with nonsense.
pub async fn find() -> anyhow::Result<Option<(Whereabouts, Supervisor)>> {
    let socket = socket()?;
    if !socket.exists() {
        return Ok(None);
    }
    let supervisor = Supervisor::new(&socket)?;
    match supervisor.call(Method::GET, "", SOON).await {
        Ok(answer) => {
            Ok(Some((answer.json().await.context("the running `cargo saga up` is of another version")?, supervisor)))
        }
        // A supervisor that was killed leaves the socket behind, and nobody who listens.
        Err(error) if error.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_connect) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether it still runs, be it only to stop.
///
/// # Errors
/// There is no place for it.
pub fn is_running() -> anyhow::Result<bool> {
    servers::is_in_use(NAME)
}

impl Supervisor {
    fn new(socket: &Path) -> anyhow::Result<Self> {
        let client = Client::builder().unix_socket(socket).no_proxy().build()?;
        Ok(Supervisor { client })
    }

    /// Asks it to stop everything; done when it has begun.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn stop(&self) -> anyhow::Result<()> {
        self.call(Method::POST, "stop", SOON).await.map(drop)
    }

    async fn call(&self, method: Method, path: &str, patience: Duration) -> anyhow::Result<Response> {
        let request = self.client.request(method, format!("http://supervisor/{path}")).timeout(patience);
        let answer = request.send().await;
        let answer = answer.context(
            "the running `cargo saga up` does not answer: if it is stopped, continue it with `fg`; else kill it, and \
             `cargo saga down` ends the rest",
        )?;
        if !answer.status().is_success() {
            bail!("{}", answer.text().await?);
        }
        Ok(answer)
    }
}

impl Control for Supervisor {
    fn act(&self, part: Part, act: Act) -> LocalBoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async move { self.call(Method::POST, &format!("{part}/{act}"), PATIENCE).await.map(drop) })
    }

    fn disturbed(&self) -> LocalBoxFuture<'_, anyhow::Result<Disturbed>> {
        Box::pin(async move { Ok(self.call(Method::GET, "disturbed", SOON).await?.json().await?) })
    }
}
