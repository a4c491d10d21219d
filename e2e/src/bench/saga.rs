//! `bench saga`: orders through all five services. First as many as they complete, with a fixed number under way; then
//! on schedule whatever the answers, to see how long each takes: so few that each is alone, and half as many.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use contracts::topology::EVENTS;
use futures::StreamExt as _;
use messaging::Queue;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant as Moment, sleep, sleep_until};

use super::report::{Latency, Machine, Rate, Report};
use super::usage::Watch;
use super::wire::Wire;
use super::{Bench, chain};
use crate::Stack;
use crate::stack::Service;
use crate::stack::client::send;

const LIMIT: &str = "all processors for PostgreSQL alone, at the processor time that it took for one of these sagas";
/// Orders under way while the rate is measured: enough that everybody always has something to do.
const UNDER_WAY: usize = 400;
/// So few orders a second that each is alone.
const ALONE: f64 = 5.0;
/// How long each load runs before it is measured.
const WARMING: Duration = Duration::from_secs(3);
/// When an order is placed again that was refused for now.
const LATER: Duration = Duration::from_millis(500);
/// Where the bench hears that an order is complete.
const COMPLETED: Queue =
    Queue { name: "bench.completed", bindings: &[(EVENTS, "Order.OrderShipped")], single_active_consumer: false };
const SKUS: [&str; 4] = ["KEYBOARD", "MOUSE", "MONITOR", "HEADSET"];

pub(super) async fn run(
    bench: &Bench<'_>,
    stack: &Stack,
    time: Duration,
    arrivals: Option<f64>,
) -> anyhow::Result<Report> {
    let machine = Machine::look(bench.servers.directory())?;
    let wire = Wire::open(&stack.vhost, &bench.administrator(), COMPLETED).await?;
    let shop = Arc::new(Shop::open(stack)?);
    let chain = chain::measure(bench, stack).await?;
    let listening = tokio::spawn(listen(wire.arrivals().await?, shop.clone()));
    let alone = schedule(bench, stack, &shop, ALONE, time / 3).await?.beside(chain);

    bench.say(format!("{UNDER_WAY} orders under way for {} s", time.as_secs()));
    let closed = tokio::spawn(shop.clone().keep_under_way(WARMING + time));
    sleep(WARMING).await;
    let (before, watch, begin) = (shop.completed(), watch(bench, stack).await?, Instant::now());
    sleep(time).await;
    let count = shop.completed() - before;
    let (rate, usage) = (Rate { count, seconds: begin.elapsed().as_secs_f64() }, watch.end()?);
    closed.await??;
    bench.say(format!("  {:.0} sagas/s", rate.per_second()));
    shop.all_completed(bench).await?;

    let arrivals = arrivals.unwrap_or(rate.per_second() / 2.0).max(1.0);
    let half = schedule(bench, stack, &shop, arrivals, time).await?.beside(chain);
    listening.abort();
    let checked = check(stack, &shop).await?;
    let database = usage.cpu.get("PostgreSQL").copied().unwrap_or_default() / count.max(1) as f64;
    let limit = machine.processors as f64 / database;
    let mut report = Report::new("saga", "sagas", rate, (limit, LIMIT), usage, machine);
    report.latencies = vec![alone, half];
    report.checked = checked;
    Ok(report)
}

/// Places orders on schedule and measures how long each takes.
async fn schedule(
    bench: &Bench<'_>,
    stack: &Stack,
    shop: &Arc<Shop>,
    arrivals: f64,
    time: Duration,
) -> anyhow::Result<Latency> {
    bench.say(format!("{arrivals:.0} orders a second, on schedule, for {} s", time.as_secs()));
    let (measured_from, before) = (Instant::now() + WARMING, shop.completed());
    let watch = watch(bench, stack).await?;
    shop.clone().order_on_schedule(arrivals, WARMING + time).await?;
    shop.all_completed(bench).await?;
    let (usage, thousands) = (watch.end()?, (shop.completed() - before).max(1) as f64 / 1_000.0);
    let times = shop.times(measured_from)?;
    let mut latency = Latency::of("from the acceptance of an order to the event of its completion", arrivals, times)?;
    latency.cpu_per_thousand = usage.cpu_per(thousands);
    Ok(latency)
}

async fn watch(bench: &Bench<'_>, stack: &Stack) -> anyhow::Result<Watch> {
    let processes = Service::ALL.map(|service| (service.name(), stack.process(service).pid()));
    let processes: Vec<_> =
        processes.into_iter().map(|(name, pid)| pid.map(|pid| (name, pid))).collect::<Result<_, _>>()?;
    Watch::begin(bench.servers, &processes).await
}

/// A customer's view of the shop: when each order was accepted, and when it was complete.
struct Shop {
    client: reqwest::Client,
    url: String,
    orders: Mutex<HashMap<String, Seen>>,
    /// A slot for each order that may be under way; an order's completion gives it back.
    slots: Semaphore,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    accepted: Option<Instant>,
    completed: Option<Instant>,
    events: u32,
}

impl Shop {
    fn open(stack: &Stack) -> anyhow::Result<Shop> {
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build()?;
        let url = format!("{}/orders", stack.order().client()?.url());
        let slots = Semaphore::new(UNDER_WAY);
        Ok(Shop { client, url, orders: Mutex::default(), slots })
    }

    fn orders(&self) -> std::sync::MutexGuard<'_, HashMap<String, Seen>> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn completed(&self) -> u64 {
        self.orders().values().filter(|seen| seen.completed.is_some()).count() as u64
    }

    /// Places an order, and remembers when it was accepted.
    async fn order(&self, number: usize) -> anyhow::Result<()> {
        let body = json!({
            "customerId": format!("c-{}", number % 1_000),
            "items": [{"sku": SKUS[number % SKUS.len()], "quantity": 1}],
            "paymentMethod": "pm_ok",
            "shipping": {
                "service": "standard", "name": "Ada Lovelace", "street": "St James's Square 12", "city": "Berlin",
                "postalCode": "10115", "country": "DE",
            },
        });
        let key = format!("bench-{number}-{:08x}", rand::random::<u32>());
        let answer = loop {
            let request = self.client.post(&self.url).header("Idempotency-Key", &key).json(&body);
            let answer = send(request).await?;
            match answer.status {
                202 => break answer.body,
                // As the answer asks: later, with the same key.
                503 => sleep(LATER).await,
                status => bail!("an order was answered with {status}: {}", answer.text),
            }
        };
        let id = answer["orderId"].as_str().context("an order has an id")?;
        self.orders().entry(id.to_owned()).or_default().accepted = Some(Instant::now());
        Ok(())
    }

    /// Places an order whenever another one is complete.
    async fn keep_under_way(self: Arc<Shop>, time: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + time;
        let mut placing = JoinSet::new();
        for number in 0.. {
            self.slots.acquire().await?.forget();
            if Instant::now() > end {
                break;
            }
            let shop = self.clone();
            placing.spawn(async move { shop.order(number).await });
            while let Some(placed) = placing.try_join_next() {
                placed??;
            }
        }
        all_placed(placing).await
    }

    /// Places orders at fixed times.
    async fn order_on_schedule(self: Arc<Shop>, per_second: f64, time: Duration) -> anyhow::Result<()> {
        let begin = Moment::now();
        let mut placing = JoinSet::new();
        for number in 0..(per_second * time.as_secs_f64()) as usize {
            sleep_until(begin + Duration::from_secs_f64(number as f64 / per_second)).await;
            let shop = self.clone();
            placing.spawn(async move { shop.order(number).await });
            while let Some(placed) = placing.try_join_next() {
                placed??;
            }
        }
        all_placed(placing).await
    }

    async fn all_completed(&self, bench: &Bench<'_>) -> anyhow::Result<()> {
        let open = async || Ok(self.orders().values().filter(|seen| seen.completed.is_none()).count() as u64);
        bench.wait_for_none("orders are not complete", open).await
    }

    fn times(&self, from: Instant) -> anyhow::Result<Vec<Duration>> {
        let orders = self.orders();
        let after = orders.values().filter_map(|seen| Some((seen.accepted?, seen.completed?)));
        Ok(after.filter(|(accepted, _)| *accepted >= from).map(|(a, c)| c.saturating_duration_since(a)).collect())
    }
}

/// Hears of each completion.
async fn listen(mut arrivals: lapin::Consumer, shop: Arc<Shop>) {
    while let Some(Ok(delivery)) = arrivals.next().await {
        // The correlation id of an order whose customer gave none is its own.
        let id = delivery.properties.correlation_id().as_ref().map(ToString::to_string).unwrap_or_default();
        let mut orders = shop.orders();
        let seen = orders.entry(id).or_default();
        seen.completed.get_or_insert_with(Instant::now);
        seen.events += 1;
        drop(orders);
        shop.slots.add_permits(1);
    }
}

/// Nothing lost, nothing twice, in every table.
async fn check(stack: &Stack, shop: &Shop) -> anyhow::Result<Vec<String>> {
    let accepted = {
        let orders = shop.orders();
        if let Some((id, seen)) = orders.iter().find(|(_, seen)| seen.events != 1 || seen.accepted.is_none()) {
            bail!("order {id}: accepted {}, completed {} times", seen.accepted.is_some(), seen.events);
        }
        orders.len()
    };
    let n = accepted;
    let facts = [
        ("orders", "select count(*) from orders.orders", n),
        ("completed sagas", "select count(*) from orders.sagas where state = 'completed'", n),
        (
            "steps that are done, each after the one before it",
            "select count(*) from (select answered_at, status, asked_at >= lag(answered_at) over w as is_next, step
            = (array['payment', 'inventory', 'shipping'])[row_number() over w] as is_right
            from orders.saga_steps window w as (partition by saga_id order by asked_at, answered_at)) s
          where status = 'done' and is_right and is_next is not false",
            3 * n,
        ),
        ("payments", "select count(*) from payments.payments where status = 'captured'", n),
        ("reservations", "select count(*) from inventory.reservations where status = 'committed'", n),
        ("shipments", "select count(*) from shipping.shipments where status = 'created'", n),
        ("pieces that left the stock", "select sum(shipped) from inventory.stock where reserved = 0", n),
        (
            "captures and parcels of distinct orders at the third parties",
            "select count(*) from (select distinct order_id, effect from sandbox.ledger where effect in ('capture', 'ship')) l",
            2 * n,
        ),
        ("lines of the third parties' ledger", "select count(*) from sandbox.ledger", 3 * n),
        ("messages of the order service", "select count(distinct event_id) from orders.outbox_history", 6 * n),
        (
            "messages of the participants",
            "select count(distinct event_id) from (select event_id from payments.outbox_history union all
          select event_id from inventory.outbox_history union all select event_id from shipping.outbox_history) m",
            3 * n,
        ),
        ("answers that were handled", "select count(*) from orders.inbox where status = 'done'", 3 * n),
        (
            "commands and events that were handled",
            "select (select count(*) from payments.inbox where status = 'done')
           + (select count(*) from inventory.inbox where status = 'done')
           + (select count(*) from shipping.inbox where status = 'done')",
            4 * n,
        ),
    ];
    for (what, question, expected) in facts {
        let found = stack.database.value(question).await?;
        ensure!(
            found.as_f64() == Some(expected as f64),
            "{n} orders were accepted: {expected} {what} are expected, there are {found}"
        );
    }
    Ok(vec![
        format!("{n} orders accepted, completed and announced, each once"),
        "each paid once, reserved once and shipped once, in this order; stock and ledgers agree".to_owned(),
        format!("{} messages written, published and handled, each once", 9 * n),
    ])
}

/// Waits for the answers that are still to come.
async fn all_placed(mut placing: JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    while let Some(placed) = placing.join_next().await {
        placed??;
    }
    Ok(())
}
