//! Sees to it that both servers are there, and asks before anything is fetched.

use std::env;
use std::io::{self, IsTerminal as _, Write as _};
use std::thread;

use anyhow::bail;
use e2e::servers::{Missing, Packages, Programs, can_be_fetched, folder};
use tokio::sync::oneshot;

use crate::cli::say::say;

/// Servers that this machine does not have are fetched as packages, into a folder of ours. `yes`: without asking.
pub(crate) async fn ensure_servers(yes: bool) -> anyhow::Result<()> {
    let Some(missing) = missing()? else { return Ok(()) };
    let by_hand = format!("as root: apt-get install {}", missing.packages());
    if !can_be_fetched() {
        bail!(
            "{missing}. Without apt-get they cannot be fetched: install PostgreSQL 15 or newer and RabbitMQ 3.10 or newer \
             (Debian, Ubuntu: the packages {}; Fedora: postgresql-server rabbitmq-server; Homebrew: postgresql@17 rabbitmq)",
            missing.packages()
        );
    }
    let may_fetch = yes || env::var("CI").is_ok_and(|ci| ci == "true");
    let can_ask = io::stdin().is_terminal() && io::stderr().is_terminal();
    if !may_fetch && !can_ask {
        bail!(
            "{missing}. Run it again with --yes to have their packages fetched and unpacked into {}, where nothing is \
             installed, or install them yourself, {by_hand}",
            folder()?.display()
        );
    }
    say(&missing);
    let packages = Packages::take(&say).await?;
    // Whom we have waited for may have brought them.
    let Some(missing) = self::missing()? else { return Ok(()) };
    let plan = packages.plan(&missing.products, &say).await?;
    say(&plan);
    if !may_fetch && !is_confirmed().await {
        bail!("nothing was fetched. To install the servers yourself, {by_hand}");
    }
    plan.fetch(&say).await?;
    Programs::find().map(drop)
}

fn missing() -> anyhow::Result<Option<Missing>> {
    match Programs::find() {
        Ok(_) => Ok(None),
        Err(error) => error.downcast().map(Some),
    }
}

/// Asks in a thread that nobody waits for: whoever answers with Ctrl-C is heard at once.
async fn is_confirmed() -> bool {
    let _ = write!(io::stderr(), "saga: fetch them? Nothing is installed. [y/N] ");
    let (answered, answer) = oneshot::channel();
    thread::spawn(move || {
        let mut line = String::new();
        let _ = io::stdin().read_line(&mut line);
        let _ = answered.send(line);
    });
    let answer = answer.await.unwrap_or_default();
    ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())
}
