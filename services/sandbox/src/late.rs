//! Lets late requests take effect when their time has come, as a provider does whose queue was long.

use std::time::Duration;

use messaging::supervise::supervise;
use messaging::{Failure, Pulse, State};
use tokio_util::sync::CancellationToken;

use crate::desk::Desk;

/// Late is a matter of seconds: nobody sees this.
const PAUSE: Duration = Duration::from_millis(200);

/// Works until `stop`.
pub(crate) async fn run(desk: Desk, pulse: Pulse, stop: CancellationToken) {
    supervise(&pulse, &stop, || land(&desk, &pulse, &stop)).await;
}

async fn land(desk: &Desk, pulse: &Pulse, stop: &CancellationToken) -> Result<(), Failure> {
    while !stop.is_cancelled() {
        pulse.beat(State::Working);
        if !desk.land_one().await? {
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }
    Ok(())
}
