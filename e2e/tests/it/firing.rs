//! Every shipped alert is made to fire by a real fault, in a real Prometheus with the shipped rules, and is silent
//! again when the fault is healed. Only times are shortened, so that nobody waits for minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use e2e::{Action, Prometheus, Proxy, Servers, Service, Settings, Stack, State, eventually, prometheus, workspace};
use futures::future::try_join_all;
use lapin::BasicProperties;
use reqwest::Method;
use sqlx::AssertSqlSafe;

use crate::alerts::values;
use crate::shop::{comes_to, operate, order, patient, place, switch};
use crate::stranger::Stranger;

/// Longer than any alert takes here to begin or to end, on a busy machine.
const SEEN_WITHIN: Duration = Duration::from_secs(90);

/// What the rules say, what they say here, and how often they say it: a minute is two seconds.
const SHORTER: &[(&str, &str, usize)] = &[
    ("[5m]", "[10s]", 6),
    ("for: 5m", "for: 10s", 3),
    ("for: 1m", "for: 2s", 3),
    ("outbox_oldest_seconds > 300\n", "outbox_oldest_seconds > 10\n", 1),
    ("> 30\n", "> 1\n", 1),
    ("saga_oldest_overdue_seconds > 60\n", "saga_oldest_overdue_seconds > 2\n", 1),
    // More than its share: a loop that cannot reach the broker tries, and beats, every five seconds.
    ("last_beat_timestamp_seconds > 60\n", "last_beat_timestamp_seconds > 10\n", 1),
];

/// The same for the configuration; each of the targets is replaced as well.
const CLOSER: &[(&str, &str, usize)] = &[
    ("scrape_interval: 15s", "scrape_interval: 2s", 1),
    ("evaluation_interval: 15s", "evaluation_interval: 500ms", 1),
];

/// More than the 1,000 rows that `OutboxLagHigh` allows: two for each order.
const CROWD: usize = 510;
/// Orders that are placed at once.
const AT_ONCE: usize = 10;

fn changed(text: &str, changes: &[(&str, &str, usize)]) -> anyhow::Result<String> {
    changes.iter().try_fold(text.to_owned(), |text, (old, new, times)| {
        let found = text.matches(old).count();
        ensure!(found == *times, "{old:?} stands there {found} times, not {times}");
        Ok(text.replace(old, new))
    })
}

/// A Prometheus that looks at a stack, and what it has seen.
struct Watch {
    prometheus: Prometheus,
    /// The service at each address.
    services: BTreeMap<String, &'static str>,
    fired: BTreeSet<String>,
}

impl Watch {
    async fn over(stack: &Stack, program: &Path) -> anyhow::Result<Watch> {
        let directory = stack.directory();
        let shipped = workspace().join("services/prometheus");
        let rules = directory.join("alerts.yml");
        fs::write(&rules, changed(&fs::read_to_string(shipped.join("alerts.yml"))?, SHORTER)?)?;
        let configuration = changed(&fs::read_to_string(shipped.join("prometheus.yml"))?, CLOSER)?;
        let rules = rules.display().to_string();
        let mut configuration = changed(&configuration, &[("/etc/prometheus/alerts.yml", &rules, 1)])?;
        let mut services = BTreeMap::new();
        for service in Service::ALL {
            let url = stack.process(service).client()?.ops_url();
            let address = url.strip_prefix("http://").context("a plain URL")?;
            configuration = changed(&configuration, &[(&format!("{}:9000", service.name()), address, 1)])?;
            services.insert(address.to_owned(), service.name());
        }
        let file = directory.join("prometheus.yml");
        fs::write(&file, configuration)?;
        let prometheus = Prometheus::start(program, &file, directory).await?;
        Ok(Watch { prometheus, services, fired: BTreeSet::new() })
    }

    /// Waits until exactly these alerts are firing, each for this service.
    async fn sees(&mut self, expected: &[(&str, &str)]) -> anyhow::Result<()> {
        let expected: BTreeSet<(String, String)> =
            expected.iter().map(|(alert, service)| ((*alert).to_owned(), (*service).to_owned())).collect();
        eventually(SEEN_WITHIN, &format!("firing is exactly {expected:?}"), async || {
            let firing = self.firing().await?;
            Ok(if firing == expected { State::Reached(()) } else { State::pending(firing) })
        })
        .await?;
        self.fired.extend(expected.into_iter().map(|(alert, _)| alert));
        Ok(())
    }

    async fn firing(&self) -> anyhow::Result<BTreeSet<(String, String)>> {
        let mut firing = BTreeSet::new();
        for alert in self.prometheus.alerts().await?.into_iter().filter(|alert| alert.state == "firing") {
            let summary = alert.annotations.get("summary").context("a summary")?;
            ensure!(!summary.contains(['<', '{']), "{summary} is no sentence");
            // Who does not answer tells no label either: then the address says who it is.
            let told = alert.labels.get("service").map(String::as_str);
            let at = || self.services.get(alert.labels.get("instance")?).copied();
            let service = told.or_else(at).with_context(|| format!("{alert:?} is of no service"))?;
            firing.insert((alert.labels["alertname"].clone(), service.to_owned()));
        }
        Ok(firing)
    }
}

#[tokio::test]
async fn every_alert_fires_for_a_real_fault_and_is_silent_when_it_is_healed() -> anyhow::Result<()> {
    let rules = fs::read_to_string(workspace().join("services/prometheus/alerts.yml"))?;
    let Some(program) = prometheus::find()? else {
        writeln!(std::io::stderr(), "DID NOT RUN: no Prometheus on this machine (name one with PROMETHEUS=path)")?;
        return Ok(());
    };
    let (fired, more) = tokio::try_join!(faults_of_publishing(&program), faults_of_work(&program))?;
    let fired: BTreeSet<&str> = fired.iter().chain(&more).map(String::as_str).collect();
    let alerts: BTreeSet<&str> = values(&rules, "alert:").into_iter().collect();
    assert_eq!(fired, alerts, "the alerts that have fired, and those that there are");
    Ok(())
}

/// The order service is cut off from the broker, then its line is interrupted again and again.
async fn faults_of_publishing(program: &Path) -> anyhow::Result<BTreeSet<String>> {
    let proxy = Proxy::start(Servers::of_this_run()?.broker.address()).await?;
    let stack = Stack::start(Settings::default().broker_through(Service::Order, proxy.address())).await?;
    let mut watch = Watch::over(&stack, program).await?;

    // Payment has a command, and nobody who would hear its answer.
    stack.payment().kill().await?;
    place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    eventually(SEEN_WITHIN, "the command has left", async || {
        let left = stack.database.value("select count(*) from orders.outbox").await?;
        Ok(if left == 0 { State::Reached(()) } else { State::pending(left) })
    })
    .await?;
    proxy.cut();
    try_join_all((0..AT_ONCE).map(|_| async {
        for _ in 0..CROWD / AT_ONCE {
            place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
        }
        anyhow::Ok(())
    }))
    .await?;
    stack.vhost.call(Method::DELETE, &format!("queues/{}/order.replies", stack.vhost.name()), None).await?;
    stack.payment().restart().await?;
    watch
        .sees(&[
            ("ConsumerMissing", "order"),
            ("OutboxLagHigh", "order"),
            ("OutboxOldestHigh", "order"),
            ("OutboxOldestHigh", "payment"),
            ("OutboxPublishFailing", "payment"),
        ])
        .await?;
    proxy.heal();
    watch.sees(&[]).await?;

    // A broker that stands still again and again, each time for three minutes as the runbook's.
    let trade = async {
        loop {
            proxy.swallow();
            let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
            tokio::time::sleep(Duration::from_secs(6)).await;
            proxy.heal();
            comes_to(&stack, &placed, "completed").await?;
        }
    };
    tokio::select! {
        seen = watch.sees(&[("OutboxLatencyHigh", "order")]) => seen?,
        broken = trade => return broken,
    }
    proxy.heal();
    watch.sees(&[]).await?;
    Ok(watch.fired)
}

/// One fault after the other, then they are healed one after the other: each adds and takes its own alerts.
async fn faults_of_work(program: &Path) -> anyhow::Result<BTreeSet<String>> {
    let stack = Stack::start(patient()).await?;
    let mut watch = Watch::over(&stack, program).await?;
    let (parked, person) = (("MessagesParked", "payment"), ("SagaNeedsAttention", "order"));
    let (overdue, down) = (("SagaPastDeadline", "order"), ("ServiceDown", "inventory"));
    let hangs = [("LoopSilent", "shipping"), ("OutboxOldestHigh", "shipping")];

    let unreadable = BasicProperties::default().with_message_id("unreadable".into());
    Stranger::at(&stack).await?.send("payment.commands", b"nobody can read this", unreadable).await?;
    watch.sees(&[parked]).await?;

    switch(&stack, "refund_refused", 1.0).await?;
    let refused = place(&stack, &order("UNICORN", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &refused, "needs_attention").await?;
    watch.sees(&[parked, person]).await?;

    // Somebody left a transaction open that holds the saga of an order whose payment takes too long.
    let late = place(&stack, &order("KEYBOARD", 1, "pm_timeout", "standard")).await?;
    let mut forgotten = stack.database.pool().begin().await?;
    let hold = AssertSqlSafe(format!("select id from orders.sagas where id = '{}' for update", late.saga));
    sqlx::query(hold).execute(&mut *forgotten).await?;
    let step = format!("update orders.saga_steps set deadline = now() where saga_id = '{}'", late.saga);
    stack.database.execute(&step).await?;
    watch.sees(&[parked, person, overdue]).await?;

    stack.shipping().holds().arm("relay.read", Action::Hold)?;
    let shipped = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    stack.shipping().holds().wait_reached("relay.read").await?;
    watch.sees(&[parked, person, overdue, hangs[0], hangs[1]]).await?;

    stack.inventory().kill().await?;
    watch.sees(&[parked, person, overdue, hangs[0], hangs[1], down]).await?;

    stack.inventory().restart().await?;
    watch.sees(&[parked, person, overdue, hangs[0], hangs[1]]).await?;

    stack.shipping().holds().release("relay.read")?;
    comes_to(&stack, &shipped, "completed").await?;
    watch.sees(&[parked, person, overdue]).await?;

    forgotten.rollback().await?;
    comes_to(&stack, &late, "cancelled").await?;
    watch.sees(&[parked, person]).await?;

    switch(&stack, "refund_refused", 0.0).await?;
    let (status, body) = operate(&stack, &refused, "retry", "payment", false).await?;
    ensure!(status < 300, "{status} {body}");
    comes_to(&stack, &refused, "cancelled").await?;
    watch.sees(&[parked]).await?;

    let discard = "update payments.inbox set status = 'discarded', finished_at = now() where message_id = 'unreadable'";
    stack.database.execute(discard).await?;
    watch.sees(&[]).await?;
    Ok(watch.fired)
}
