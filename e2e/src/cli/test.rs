//! `saga test`: every test of the workspace, on servers that live as long as the run.

use std::fs;
use std::process::ExitCode;

use clap::Args;
use e2e::servers::VARIABLE;
use e2e::{Servers, workspace};

use crate::cli::cargo::{cargo, run as run_cargo, run_well};
use crate::cli::ensure_servers;
use crate::cli::say::{say, timed};

/// Runs all tests on a fresh PostgreSQL and RabbitMQ.
///
/// Starts both servers, builds the services with their hold points, runs `cargo test`, and stops the servers whatever
/// happens. The exit code is that of `cargo test`. What the services wrote stays in `target/saga-test`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Fetch missing servers without asking, into a private folder; nothing is installed. `CI=true` does the same.
    #[arg(long)]
    yes: bool,
    /// Goes to `cargo test`, for example `-p e2e declined` or `-- --nocapture`.
    #[arg(last = true, value_name = "ARGUMENTS")]
    passed: Vec<String>,
}

/// Hold points in every program that has some.
const FEATURES: [&str; 2] = [
    "--features",
    "messaging/hold-points,order/hold-points,payment/hold-points,inventory/hold-points,shipping/hold-points,\
     sandbox/hold-points",
];

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    ensure_servers(arguments.yes).await?;
    let logs = workspace().join("target/saga-test");
    if logs.exists() {
        fs::remove_dir_all(&logs)?;
    }
    let build = cargo(&[&["build", "--workspace", "--bins"], &FEATURES[..]].concat());
    let (servers, ()) = tokio::try_join!(
        timed("PostgreSQL and RabbitMQ are ready", Servers::start()),
        timed("the services are built", run_well(build)),
    )?;
    let mut test = cargo(&["test"]);
    test.args(selection(&arguments.passed)).args(&arguments.passed).env(VARIABLE, servers.export()?);
    let status = timed("the tests have ended", run_cargo(test)).await?;
    timed("both servers are stopped", servers.stop()).await?;
    if !status.success() {
        say(format!("some tests failed; the services' logs are in {}", logs.display()));
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(ExitCode::from(code))
}

/// Everything, unless the caller names packages; then the features only where they exist.
fn selection(passed: &[String]) -> Vec<&'static str> {
    let own = passed.split(|argument| argument == "--").next().unwrap_or_default();
    let named = own.iter().any(|argument| argument.starts_with("-p") || argument.starts_with("--package"));
    match (named, own.iter().any(|argument| argument.ends_with("messaging"))) {
        (false, _) => [&["--workspace"], &FEATURES[..]].concat(),
        (true, true) => vec!["--features", "messaging/hold-points"],
        (true, false) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{FEATURES, selection};

    fn chosen(passed: &[&str]) -> Vec<&'static str> {
        selection(&passed.iter().map(|&argument| argument.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_named_package_takes_the_place_of_the_workspace() {
        let everything = ["--workspace", FEATURES[0], FEATURES[1]];
        assert_eq!(chosen(&["declined"]), everything);
        assert_eq!(chosen(&["--", "-p"]), everything);
        assert_eq!(chosen(&["-p", "messaging"]), ["--features", "messaging/hold-points"]);
        assert!(chosen(&["--package=order"]).is_empty());
    }
}
