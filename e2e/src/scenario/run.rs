//! One run of a scenario on a shop: does its steps, and looks.

use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::future::try_join_all;
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

use super::damage::{self, Broken, Damage};
use super::observe::{Before, observe};
use super::report::{Checked, Placed};
use super::wire::Wire;
use super::{Expected, Order, Scenario, Step, StockUp, Switch};
use crate::eventually::{State, eventually};
use crate::shop::{Act, Part, Shop, problem};
use crate::stack::Service;
use crate::stack::client::Answer;

/// Longer than all attempts of a step on a busy machine.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// What follows an order's end: its books and its last message.
const SEEN_WITHIN: Duration = Duration::from_secs(30);
/// When it is told what is still waited for.
const LONG_LOOK: Duration = Duration::from_secs(3);
const ENDS: [&str; 3] = ["completed", "cancelled", "settled"];
const ACTOR: &str = "scenario";

/// Hears what is going on.
pub(super) type Tell<'a> = &'a mut dyn FnMut(String);

/// One run of a scenario.
pub(super) struct Run<'a> {
    shop: &'a Shop,
    damage: &'a Damage,
    scenario: &'a Scenario,
    before: Before,
    wire: Option<Wire>,
    last: Option<(Value, String)>,
    answers: Vec<Answer>,
    pub(super) placed: Vec<Placed>,
    pub(super) checks: Vec<Checked>,
}

impl<'a> Run<'a> {
    pub(super) async fn new(shop: &'a Shop, damage: &'a Damage, scenario: &'a Scenario) -> anyhow::Result<Self> {
        let mut skus: Vec<String> = Vec::new();
        for step in &scenario.steps {
            match step {
                Step::Place(order) => skus.push(order.sku.clone()),
                // Its pieces are no change that the orders have made.
                Step::StockUp(StockUp { sku, to }) => stock_up(shop, sku, *to).await?,
                _ => {}
            }
        }
        skus.dedup();
        let before = Before::look(shop, &skus).await?;
        let listens = |step: &Step| matches!(step, Step::Deliver(_) | Step::Withhold(_) | Step::Unreadable(_));
        let wire = match scenario.steps.iter().any(listens) {
            true => Some(Wire::listen(&shop.at.broker).await?),
            false => None,
        };
        let (answers, placed, checks) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Run { shop, damage, scenario, before, wire, last: None, answers, placed, checks })
    }

    /// Takes one step.
    pub(super) async fn take(&mut self, step: &Step, tell: Tell<'_>) -> anyhow::Result<()> {
        let shop = self.shop;
        match step {
            Step::Place(order) => self.place(order).await,
            Step::Repeat => self.repeat().await,
            Step::Await(status) => self.await_status(status).await,
            Step::AwaitAsked(step) => self.await_asked(step).await,
            Step::Cancel => self.cancel().await,
            Step::Kill(part) => self.break_part(*part, Act::Kill).await,
            Step::Freeze(part) => self.break_part(*part, Act::Freeze).await,
            Step::Start(part) => self.mend_part(*part, Act::Start).await,
            Step::Thaw(part) => self.mend_part(*part, Act::Thaw).await,
            Step::Switch(Switch { name, rate, delay_ms }) => {
                self.damage.remember(Broken::Switched(name.clone(), before(shop, name).await?));
                shop.switch_on(name, *rate, *delay_ms, 1).await
            }
            Step::SwitchOff(name) => shop.switch_off(name).await,
            Step::Retry(step) => self.operate("retry", step).await,
            Step::Settle(step) => self.operate("settle", step).await,
            // Done before the stock was looked at.
            Step::StockUp(_) => Ok(()),
            Step::Withhold(message) => {
                let (wire, saga) = self.wire()?;
                wire.withhold(message, &saga, &format!("{}.commands", participant(message)?)).await
            }
            Step::Deliver(deliver) => {
                let (wire, saga) = self.wire()?;
                wire.deliver(&deliver.message, &saga, deliver.id).await
            }
            Step::Unreadable(participant) => self.send_unreadable(participant, tell).await,
            Step::Check(name) => {
                let expected = self.scenario.check.get(name).with_context(|| format!("no check {name}"))?;
                self.look(Some(name), expected, tell).await
            }
        }
    }

    async fn send_unreadable(&self, participant: &str, tell: Tell<'_>) -> anyhow::Result<()> {
        let service = Service::ALL.into_iter().find(|service| service.name() == participant);
        let (service, id) = (service.context("a participant")?, Uuid::now_v7().to_string());
        self.damage.remember(Broken::Parked(service, id.clone()));
        tell(format!("  it is thrown away when the scenario ends: `cargo saga ops show {id}`"));
        self.wire.as_ref().context("a wire")?.send_unreadable(participant, &id).await
    }

    async fn place(&mut self, order: &Order) -> anyhow::Result<()> {
        let body = order_body(order);
        let key = format!("scenario-{:016x}", rand::random::<u64>());
        let orders = self.shop.client(Service::Order)?;
        let keys: Vec<String> = (0..order.count).map(|number| format!("{key}-{number}")).collect();
        let answers = match order.retry {
            true => try_join_all(keys.iter().map(|key| self.shop.order(&body, key, None))).await?,
            false => try_join_all(keys.iter().map(|key| orders.post("/orders", &body, key))).await?,
        };
        self.last = keys.into_iter().next_back().map(|key| (body, key));
        self.take_in(answers)
    }

    async fn repeat(&mut self) -> anyhow::Result<()> {
        let (body, key) = self.last.as_ref().context("nothing was ordered that could be repeated")?;
        let answer = self.shop.order(body, key, None).await?;
        self.take_in(vec![answer])
    }

    /// Orders that were accepted, each once.
    fn take_in(&mut self, answers: Vec<Answer>) -> anyhow::Result<()> {
        for answer in answers {
            if answer.status == 202 {
                let text = |field: &str| answer.body[field].as_str().map(str::to_owned).context("an accepted order");
                let order_id = text("orderId")?;
                if self.placed.iter().all(|placed| placed.order_id != order_id) {
                    let (saga_id, correlation_id) = (text("sagaId")?, text("correlationId")?);
                    let trace = answer.body["links"]["trace"].as_str().map(str::to_owned);
                    self.placed.push(Placed { order_id, saga_id, correlation_id, trace });
                }
            }
            self.answers.push(answer);
        }
        Ok(())
    }

    async fn await_status(&self, status: &str) -> anyhow::Result<()> {
        for placed in &self.placed {
            let path = format!("/orders/{}", placed.order_id);
            eventually(ENDS_WITHIN, &format!("order {} is {status}", placed.order_id), async || {
                let seen = self.shop.get(Service::Order, &path).await?.body;
                let now = seen["status"].as_str().unwrap_or_default();
                // An order that has ended otherwise is not waited for: the checks will tell.
                let reached = now == status || ENDS.contains(&now);
                Ok(if reached { State::Reached(()) } else { State::pending(now) })
            })
            .await?;
        }
        Ok(())
    }

    async fn await_asked(&self, step: &str) -> anyhow::Result<()> {
        let path = format!("/orders/{}", self.only()?.order_id);
        eventually(ENDS_WITHIN, &format!("{step} was asked"), async || {
            let seen = self.shop.get(Service::Order, &path).await?.body;
            let steps = seen["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
            let asked = steps.iter().any(|row| row["step"] == step && row["status"] == "asked");
            Ok(if asked { State::Reached(()) } else { State::pending(steps) })
        })
        .await
    }

    async fn cancel(&self) -> anyhow::Result<()> {
        for placed in &self.placed {
            let path = format!("/orders/{}/cancel", placed.order_id);
            let answer = self.shop.client(Service::Order)?.post(&path, &json!({}), "cancel").await?;
            if answer.status != 202 {
                bail!("it cannot be cancelled: {}", problem(&answer));
            }
        }
        Ok(())
    }

    async fn break_part(&self, part: Part, act: Act) -> anyhow::Result<()> {
        self.damage.remember(broken(part, act));
        self.shop.act(part, act).await
    }

    async fn mend_part(&self, part: Part, act: Act) -> anyhow::Result<()> {
        self.shop.act(part, act).await?;
        self.damage.forget(&broken(part, act.opposite()));
        Ok(())
    }

    async fn operate(&self, verb: &str, step: &str) -> anyhow::Result<()> {
        let path = format!("/ops/sagas/{}/{verb}", self.only()?.saga_id);
        let body = json!({"step": step, "reason": format!("scenario {}", self.scenario.name), "actor": ACTOR});
        let answer = self.shop.client(Service::Order)?.ops_post(&path, &body).await?;
        if answer.status != 200 {
            bail!("the operator is refused: {}", problem(&answer));
        }
        Ok(())
    }

    /// Looks until what is expected is seen, or for so long that it will not be seen any more.
    pub(super) async fn look(&mut self, when: Option<&str>, expected: &Expected, tell: Tell<'_>) -> anyhow::Result<()> {
        let mut seen = Vec::new();
        let (begin, mut is_told) = (Instant::now(), false);
        let looked = eventually(SEEN_WITHIN, "what is expected", async || {
            seen = Vec::new();
            for (what, expected) in expected {
                let observed = observe(self.shop, &self.before, &self.placed, &self.answers, *what).await?;
                let (when, expected) = (when.map(str::to_owned), expected.clone());
                seen.push(Checked { when, what: *what, expected, observed });
            }
            let other: Vec<&str> =
                seen.iter().filter(|check| !check.is_as_expected()).map(|check| check.what.name()).collect();
            if !other.is_empty() && !is_told && begin.elapsed() > LONG_LOOK {
                is_told = true;
                tell(format!("  not yet as expected, {} s at most: {}", SEEN_WITHIN.as_secs(), other.join(", ")));
            }
            Ok(if other.is_empty() { State::Reached(()) } else { State::pending(&seen) })
        });
        let failed = looked.await.err();
        if let Some(error) = failed.filter(|_| seen.len() < expected.len()) {
            return Err(error);
        }
        self.checks.extend(seen);
        Ok(())
    }

    fn only(&self) -> anyhow::Result<&Placed> {
        self.placed.last().context("no order was accepted")
    }

    fn wire(&self) -> anyhow::Result<(&Wire, String)> {
        Ok((self.wire.as_ref().context("a wire")?, self.only()?.saga_id.clone()))
    }
}

/// How a switch is set now, if it is on.
async fn before(shop: &Shop, name: &str) -> anyhow::Result<Option<damage::Before>> {
    let all = shop.switches().await?;
    let on = all["switches"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = on.iter().find(|switch| switch["name"] == name);
    Ok(found.map(|switch| damage::Before {
        rate: switch["rate"].to_string(),
        delay_ms: switch["delayMs"].as_u64().and_then(|delay| u32::try_from(delay).ok()).unwrap_or_default(),
        seed: switch["seed"].as_i64().unwrap_or_default(),
    }))
}

fn broken(part: Part, act: Act) -> Broken {
    if act == Act::Freeze { Broken::Frozen(part) } else { Broken::Killed(part) }
}

/// Who is asked by a command.
fn participant(message: &str) -> anyhow::Result<&'static str> {
    Ok(match message {
        "CapturePayment" | "RefundPayment" => "payment",
        "ReserveStock" | "ReleaseStock" => "inventory",
        "CreateShipment" | "CancelShipment" => "shipping",
        _ => bail!("{message} is no command"),
    })
}

/// The body of an order, with an address that nobody has.
pub fn order_body(order: &Order) -> Value {
    let Order { sku, quantity, payment, shipping, .. } = order;
    json!({
        "customerId": "c-1",
        "items": [{"sku": sku, "quantity": quantity}],
        "paymentMethod": payment,
        "shipping": {"service": shipping, "name": "Ada", "street": "Main Street 1", "city": "Berlin",
                     "postalCode": "10115", "country": "DE"},
    })
}

async fn stock_up(shop: &Shop, sku: &str, to: i64) -> anyhow::Result<()> {
    let available = shop.get(Service::Inventory, &format!("/stock/{sku}")).await?.body["available"].as_i64();
    let missing = to - available.context("how many pieces there are")?;
    if missing < 0 {
        bail!(
            "{} pieces of {sku} can be ordered, and this needs {to}: order the others first, with \
             `cargo saga order {sku} --quantity {}`",
            to - missing,
            -missing
        );
    }
    if missing > 0 {
        let key = format!("scenario-{:016x}", rand::random::<u64>());
        let path = format!("/stock/{sku}/receipts");
        let answer = shop.client(Service::Inventory)?.post(&path, &json!({"quantity": missing}), &key).await?;
        if answer.status >= 300 {
            bail!("no pieces are taken in: {}", problem(&answer));
        }
    }
    Ok(())
}
