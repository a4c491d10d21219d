//! Nothing is lost, whatever fails: faults in a random order that a seed repeats, under load, on a shop and servers of
//! its own. Then everything is healed, drained and audited; what customers saw is compared with the books, what was sent
//! with what came out; and a run in which too little happened proves nothing and says so.

mod act;
mod customers;
mod drain;
mod fault;
mod history;
mod judge;
mod plan;
mod report;
mod spy;
mod wish;
mod world;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use futures::future::{join_all, try_join_all};
use reqwest::Method;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

pub use act::Done;
pub use drain::Drained;
pub use fault::Fault;
pub use plan::{Away, Plan, Scheduled};
pub use report::{Answers, Broken, Report, Verdict};

use crate::audit::{self, Sources, Violation, audit};
use crate::servers::Servers;
use crate::stack::{Service, Settings};
use act::Hand;
use customers::Customers;
use history::History;
use report::{answers, by_kind, too_little};
use spy::Spy;
use world::World;

/// After the last fault the load goes on for so long: customers of a shop that is whole.
const CALM: Duration = Duration::from_secs(2);
/// How often somebody looks whether a service has died.
const LOOK: Duration = Duration::from_millis(200);

/// Plays a plan on fresh servers, which it ends, and on services with these settings, and judges what came of it.
///
/// # Errors
/// Something did not start, or could not be healed or looked at: nothing is proven. What was seen is kept, and the
/// error names where.
pub async fn run(servers: Servers, settings: Settings, plan: &Plan, say: &dyn Fn(String)) -> anyhow::Result<Report> {
    let servers = Rc::new(servers);
    let world = World::begin(servers.clone(), settings).await?;
    let directory = world.stack.directory().to_owned();
    let played = play(&world, plan, say).await;
    let is_green = played.as_ref().is_ok_and(|report| report.verdict == Verdict::Green);
    if !is_green {
        keep_logs(servers.directory(), &directory);
    }
    drop(world);
    if let Some(servers) = Rc::into_inner(servers) {
        servers.stop().await?;
    }
    if is_green {
        fs::remove_dir_all(&directory)?;
    }
    let kept = |path: PathBuf| format!("what was seen is in {}", path.display());
    let mut report = played.map_err(|error| error.context(kept(directory.clone())))?;
    report.kept = (!is_green).then_some(directory);
    Ok(report)
}

async fn play(world: &World, plan: &Plan, say: &dyn Fn(String)) -> anyhow::Result<Report> {
    let spy = Spy::hide(world.shop.at.broker.clone()).await?;
    let history = History::begin(world.stack.directory())?;
    history.note("plan", plan);
    let customers = Customers::new(world.shop.client(Service::Order)?.url(), plan, &history)?;
    let (hand, over) = (Hand { world, spy: &spy, history: &history, say }, CancellationToken::new());
    let faults = async {
        let done = try_join_all(plan.lanes.iter().map(|lane| hand.play(lane))).await?;
        let healed = Instant::now();
        sleep(CALM).await;
        over.cancel();
        anyhow::Ok((done.into_iter().flatten().collect::<Vec<Done>>(), healed))
    };
    let work = async {
        let ((done, healed), (came, unanswered)) =
            tokio::try_join!(faults, async { anyhow::Ok(customers.come(&over).await) })?;
        say(format!("healed; {came} customers came"));
        let drained = drain::drain(world, healed, say).await?;
        let messages = judge::messages(&world.stack.database, &spy).await?;
        anyhow::Ok((done, came, unanswered, drained, messages))
    };
    let ((done, came, unanswered, drained, messages), deaths) = tokio::select! {
        work = watched(world, work) => work?,
        () = spy.listen() => unreachable!("the spy listens for ever"),
    };
    // It is no queue of the shop's.
    let queue = format!("queues/{}/{}", world.stack.vhost.name(), Spy::queue());
    world.stack.vhost.call(Method::DELETE, &queue, None).await?;
    let audited = audit(&Sources::of(&world.shop), Some(audit::PATIENCE)).await?;
    history.note("audit", &audited);

    let booked = judge::booked(&world.stack.database).await?;
    let requests = history.requests();
    let mut violations: Vec<Broken> = Vec::new();
    let mut broken =
        |id, all: Vec<Violation>| violations.extend(all.into_iter().map(|violation| Broken { id, violation }));
    for finding in &audited.invariants {
        broken(finding.id, finding.violations.clone());
    }
    broken("I7", messages.violations);
    broken("I10", judge::customers(plan, &requests, &booked));
    let violation = |what: &str, rows| vec![Violation { order: None, what: what.to_owned(), rows }];
    if unanswered > 0 {
        broken("I10", violation("each customer gets an answer in the end", json!({"unanswered": unanswered})));
    }
    if let Some(left) = &drained.left {
        broken("I4", violation("each order ends when everything is whole", left.clone()));
    }
    if !audited.under_way.is_empty() {
        broken("I5", violation("everything comes to rest", json!({"under way": audited.under_way})));
    }
    if !deaths.is_empty() {
        broken("I14", violation("no service ends by itself", json!({"ended": deaths})));
    }
    let mut orders: BTreeMap<String, usize> = BTreeMap::new();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for order in &booked {
        *orders.entry(order.state.clone()).or_default() += 1;
        if order.state != "completed" {
            *reasons.entry(order.reason.clone().unwrap_or_default()).or_default() += 1;
        }
    }
    let void = too_little(plan, &done, &orders);
    let verdict = match () {
        () if !violations.is_empty() => Verdict::Red,
        () if !void.is_empty() => Verdict::Void,
        () => Verdict::Green,
    };
    let report = Report {
        verdict,
        seed: plan.seed,
        seconds: plan.seconds,
        rate: plan.rate,
        processors: thread::available_parallelism()?.get(),
        orders,
        reasons,
        customers: came,
        answers: answers(&requests, &done),
        faults: by_kind(&done),
        messages: messages.sent,
        lost: messages.lost,
        unexpected: messages.unexpected,
        sent_again: messages.sent_again,
        repeated: messages.ours,
        recognised: messages.recognised,
        parked: messages.parked,
        recovery: drained,
        violations,
        void,
        kept: None,
        again: plan.command(),
    };
    history.note("report", &report);
    Ok(report)
}

/// Does the work, and meanwhile starts again whoever ends by himself; tells who did.
async fn watched<T>(world: &World, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<(T, Vec<String>)> {
    let mut deaths = Vec::new();
    let watch = async {
        loop {
            sleep(LOOK).await;
            let dead = Service::ALL.into_iter().filter_map(|service| {
                let status = world.stack.process(service).exit()?;
                Some((service, status))
            });
            let dead: Vec<_> = dead.collect();
            deaths.extend(dead.iter().map(|(service, status)| format!("{}: {status}", service.name())));
            // Whoever does not come up is tried again at the next look.
            join_all(dead.iter().map(|(service, _)| world.stack.process(*service).restart())).await;
        }
    };
    let done = tokio::select! {
        done = work => done?,
        () = watch => unreachable!("the watch has no end"),
    };
    Ok((done, deaths))
}

/// What the servers wrote since they were last started.
fn keep_logs(servers: &Path, directory: &Path) {
    for log in ["rabbitmq.log", "postgres.log"] {
        // Where one is missing, the verdict counts all the same.
        let _ = fs::copy(servers.join(log), directory.join(log));
    }
}
