//! A process that dies at a point, and is started again.

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use anyhow::ensure;
use e2e::{Action, Service, Stack, State, eventually};
use nix::sys::signal::Signal;

pub(crate) use super::report::Death;

/// Others may die before it on the way.
const REACHED_WITHIN: Duration = Duration::from_secs(90);

/// What the service does at the point from now on.
pub(crate) fn arm(stack: &Stack, service: Service, point: &str, action: Action) -> anyhow::Result<()> {
    Ok(stack.process(service).holds().arm(point, action)?)
}

/// Waits until the service has come to the point and has really died there, by an abort.
pub(crate) async fn dies(stack: &Stack, service: Service, point: &str) -> anyhow::Result<()> {
    let process = stack.process(service);
    let reached = process.holds().directory().join(format!("{point}.reached"));
    eventually(REACHED_WITHIN, &format!("{} comes to {point}", service.name()), async || {
        Ok(if reached.exists() { State::Reached(()) } else { State::pending("not reached") })
    })
    .await?;
    let status = process.ended().await?;
    ensure!(status.signal() == Some(Signal::SIGABRT as i32), "{} ended with {status} at {point}", service.name());
    process.holds().release(point)?;
    Ok(())
}

/// Starts it again. What it had claimed belongs to its run for 15 s, which are over here.
pub(crate) async fn rises(stack: &Stack, service: Service) -> anyhow::Result<()> {
    if service.has_broker() {
        let over = format!(
            "update {}.inbox set next_attempt_at = now() where status = 'retrying' and unfinished > 0",
            service.schema()
        );
        stack.database.execute(&over).await?;
    }
    stack.process(service).restart().await
}

/// Starts it again where the point is armed. False: it has died there before it was ready.
pub(crate) async fn rises_alive(stack: &Stack, service: Service, point: &str) -> anyhow::Result<bool> {
    let Err(error) = rises(stack, service).await else { return Ok(true) };
    let holds = stack.process(service).holds();
    let is_reached = holds.directory().join(format!("{point}.reached")).exists();
    let is_abort = format!("{error:#}").contains(&format!("signal: {}", Signal::SIGABRT as i32));
    ensure!(is_reached && is_abort, error);
    holds.release(point)?;
    Ok(false)
}
