//! The life of a process: command line, telemetry, runtime, service, and the end in order.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use messaging::Failure;

use crate::base::Base;
use crate::health;
use crate::metrics::Metrics;
use crate::service::Service;
use crate::settings::{self, Common, Identity, Verb};
use crate::shutdown::Signals;
use crate::telemetry::Telemetry;

/// Runs a service: `serve` (if nothing is said), `relay` or `health`. `start` builds it from its own settings and the
/// [`Base`]. Returns when the process is to end: with success after SIGTERM or SIGINT, else with a failure.
pub fn run<S: Args>(identity: Identity, start: fn(&S, Base) -> Result<Service, Failure>) -> ExitCode {
    let (verb, common, own) = settings::parse::<S>(identity);
    live(identity, verb, common, Box::new(move |base| start(&own, base)))
}

/// Everything after the command line is the same code for every service, and is compiled once, here.
fn live(identity: Identity, verb: Verb, common: Common, start: Start<'_>) -> ExitCode {
    if verb == Verb::Health {
        return health::ask(common.ops_address);
    }
    match serve(identity, verb, common, start) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tracing::error!(error.type = "Technical", error.code = failure.code(), "{} ends: {}", identity.name, failure.chain());
            ExitCode::FAILURE
        }
    }
}

/// Bytes of a worker's stack; only what is used takes memory. Headers of a message may be nested as deep as a frame is
/// long, and are dropped as deep.
const STACK: usize = 64 * 1024 * 1024;

type Start<'a> = Box<dyn FnOnce(Base) -> Result<Service, Failure> + 'a>;

fn serve(identity: Identity, verb: Verb, common: Common, start: Start<'_>) -> Result<(), Failure> {
    // Before the runtime: the exporter's client has a thread and a small runtime of its own.
    let telemetry = Telemetry::start(identity, &common).inspect_err(last_words)?;
    let metrics = Metrics::install(identity.name)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(common.worker_threads.into())
        .thread_stack_size(STACK)
        .enable_all()
        .build()
        .map_err(|error| Failure::permanent("process.runtime", "the runtime cannot start").caused_by(error))?;
    let ended = runtime.block_on(async {
        let signals = Signals::listen()?;
        let service = start(Base::new(identity, common)?)?;
        service.run(verb, metrics, signals).await
    });
    // What still runs had its time; nothing of it may hold the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    telemetry.stop();
    ended
}

/// There is no log yet: one line where a person sees it.
fn last_words(failure: &Failure) {
    drop(writeln!(std::io::stderr(), "{}", failure.chain()));
}
