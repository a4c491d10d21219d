//! The build with optimizations: made, and handed over to.

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use e2e::stack::programs;
use e2e::workspace;
use tokio::process::Command;

use super::{cargo, run, run_well};
use crate::cli::say::timed;

/// Set for the build with optimizations, which does the work.
const BUILT: &str = "SAGA_RELEASE_BUILT";

/// Whether we are it.
pub(crate) fn is_here() -> bool {
    env::var_os(BUILT).is_some()
}

/// Builds everything with optimizations and hands over to the `saga` among it, with our arguments.
pub(crate) async fn hand_over() -> anyhow::Result<ExitCode> {
    timed("the release build is there", run_well(cargo(&["build", "--release", "--workspace", "--bins"]))).await?;
    let built = programs()?;
    let target: PathBuf = built.parent().context("the target directory")?.join("release");
    let mut command = Command::new(target.join("saga"));
    command.args(env::args_os().skip(1)).env(BUILT, "1").current_dir(workspace()).process_group(0);
    let status = run(command).await?;
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) => Ok(ExitCode::from(code)),
        None => bail!("the release build ended with {status}"),
    }
}
