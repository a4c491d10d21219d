//! A running shop, seen from outside: five services over HTTP, the broker as its administrator, and a hand on every
//! part that can be killed or frozen. Commands and scenarios work on it, whoever started it: `cargo saga up`,
//! `docker compose up`, or a test.

mod compose;
pub mod control;
mod hands;
mod logs;
pub mod native;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use control::{Act, Control, Disturbed, Part};
pub use hands::Hands;
pub use logs::Line;

use crate::eventually::{State, eventually};
use crate::stack::Service;
use crate::stack::client::{Answer, Client, send};

/// How long an order is posted again that is refused for now.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);

/// Who started the shop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// `cargo saga up`.
    Native,
    /// `docker compose up`.
    Compose,
    /// A test.
    #[value(skip)]
    Test,
}

/// Where a service listens.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Listeners {
    /// For everybody.
    pub http: SocketAddr,
    /// For operators.
    pub ops: SocketAddr,
}

/// Where everything of a shop is, with what it takes to get in.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Whereabouts {
    pub origin: Origin,
    pub services: BTreeMap<Service, Listeners>,
    pub ops_token: String,
    /// AMQP, as an administrator.
    pub broker: String,
    /// RabbitMQ's page, with the administrator's name and password in it.
    pub broker_page: String,
    /// PostgreSQL, as its administrator.
    pub postgres: String,
    /// The same, as the role that may only read.
    pub auditor: String,
    /// Jaeger's page, if there is one.
    pub jaeger: Option<String>,
    /// Where the services' logs are: a directory, or the command that shows them.
    pub logs: String,
    /// Where the data is, if it is ours to say.
    pub data: Option<PathBuf>,
}

/// The shop.
pub struct Shop {
    pub at: Whereabouts,
    clients: BTreeMap<Service, Client>,
    control: Box<dyn Control>,
}

/// No shop runs, or not the one that was asked for.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotRunning(String);

impl NotRunning {
    pub fn new(text: impl Into<String>) -> Self {
        NotRunning(text.into())
    }
}

impl Shop {
    /// # Errors
    /// The HTTP client cannot be made.
    pub fn new(at: Whereabouts, control: Box<dyn Control>) -> anyhow::Result<Self> {
        let client = |(service, at_service): (&Service, &Listeners)| {
            Client::new(at_service.http, at_service.ops, &at.ops_token).map(|client| (*service, client))
        };
        let clients = at.services.iter().map(client).collect::<anyhow::Result<_>>()?;
        Ok(Shop { at, clients, control })
    }

    /// The shop that runs on this machine: the native one if there is one, else that of Docker Compose; or exactly
    /// the one that is asked for.
    ///
    /// # Errors
    /// [`NotRunning`], with how to start one.
    pub async fn find(wanted: Option<Origin>) -> anyhow::Result<Self> {
        if wanted != Some(Origin::Compose)
            && let Some((at, control)) = native::find().await?
        {
            return Shop::new(at, Box::new(control));
        }
        // Whoever has a shop of his own means no other one, also while it starts or stops.
        if wanted != Some(Origin::Compose) && native::is_running()? {
            bail!(NotRunning("`cargo saga up` is just starting or stopping: try again in a moment".to_owned()))
        }
        if wanted != Some(Origin::Native)
            && let Some((at, control)) = compose::find().await?
        {
            return Shop::new(at, Box::new(control));
        }
        let start = match wanted {
            Some(Origin::Native) => "start one with `cargo saga up`",
            Some(Origin::Compose) => "start one with `docker compose up --build`",
            Some(Origin::Test) | None => "start one with `cargo saga up`, or with `docker compose up --build`",
        };
        bail!(NotRunning(format!("no shop is running: {start}")))
    }

    /// Requests to a service.
    ///
    /// # Errors
    /// The shop has no such service.
    pub fn client(&self, service: Service) -> anyhow::Result<&Client> {
        self.clients.get(&service).with_context(|| format!("there is no {}", service.name()))
    }

    /// Asks a service for something and takes nothing but a success for an answer.
    ///
    /// # Errors
    /// No answer came, or one that says what is wrong.
    pub async fn get(&self, service: Service, path: &str) -> anyhow::Result<Answer> {
        let answer = self.client(service)?.get(path).await;
        let answer = answer.with_context(|| format!("{} does not answer", service.name()))?;
        if answer.status >= 300 {
            bail!("{} answers {path} with {}", service.name(), problem(&answer));
        }
        Ok(answer)
    }

    /// Posts an order as a client does, for whom *not now* is no answer: the key makes repeating harmless.
    ///
    /// # Errors
    /// No answer but *not now* came for half a minute.
    pub async fn order(&self, body: &Value, key: &str, correlation_id: Option<&str>) -> anyhow::Result<Answer> {
        let orders = self.client(Service::Order)?;
        eventually(TAKEN_WITHIN, "the order is accepted", async || {
            let mut request = orders.request(Method::POST, "/orders").header("Idempotency-Key", key);
            if let Some(correlation_id) = correlation_id {
                request = request.header("X-Correlation-Id", correlation_id);
            }
            let answer = send(request.json(body)).await?;
            Ok(if answer.status == 503 { State::pending(problem(&answer)) } else { State::Reached(answer) })
        })
        .await
    }

    /// Switches a fault of the third parties on, for a share of all requests.
    ///
    /// # Errors
    /// There is no such switch.
    pub async fn switch_on(&self, name: &str, rate: f64, delay_ms: u32, seed: i64) -> anyhow::Result<()> {
        let setting = json!({"rate": rate, "delayMs": delay_ms, "seed": seed});
        self.switch(Method::PUT, name, Some(setting)).await
    }

    /// Switches it off.
    ///
    /// # Errors
    /// There is no such switch.
    pub async fn switch_off(&self, name: &str) -> anyhow::Result<()> {
        self.switch(Method::DELETE, name, None).await
    }

    async fn switch(&self, method: Method, name: &str, setting: Option<Value>) -> anyhow::Result<()> {
        let mut request = self.client(Service::Sandbox)?.ops_request(method, &format!("/ops/switches/{name}"));
        if let Some(setting) = setting {
            request = request.json(&setting);
        }
        let answer = send(request).await?;
        if answer.status >= 300 {
            bail!("the sandbox refuses the switch {name}: {}", problem(&answer));
        }
        Ok(())
    }

    /// Does something to a part, and waits until it is done.
    ///
    /// # Errors
    /// It could not be done.
    pub async fn act(&self, part: Part, act: Act) -> anyhow::Result<()> {
        self.control.act(part, act).await.with_context(|| format!("{act} {part}"))
    }

    /// What was killed or frozen on request, and is so still.
    ///
    /// # Errors
    /// Nobody could be asked.
    pub async fn disturbed(&self) -> anyhow::Result<Disturbed> {
        self.control.disturbed().await
    }

    /// Starts and thaws what was killed or frozen on request, and returns it.
    ///
    /// # Errors
    /// A part could not be made whole.
    pub async fn mend(&self) -> anyhow::Result<Disturbed> {
        let disturbed = self.disturbed().await?;
        for (part, act) in &disturbed {
            self.act(*part, act.opposite()).await?;
        }
        Ok(disturbed)
    }

    /// All switches, and how those are set that are on, as the sandbox tells its operators.
    ///
    /// # Errors
    /// The sandbox does not answer.
    pub async fn switches(&self) -> anyhow::Result<Value> {
        let answer =
            self.client(Service::Sandbox)?.ops_get("/ops/switches").await.context("sandbox does not answer")?;
        if answer.status >= 300 {
            bail!("sandbox does not tell its switches: {}", problem(&answer));
        }
        Ok(answer.body)
    }

    /// The switches that are on.
    ///
    /// # Errors
    /// The sandbox does not answer.
    pub async fn switched_on(&self) -> anyhow::Result<Vec<String>> {
        let all = self.switches().await?;
        let on = all["switches"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(on.iter().filter_map(|switch| switch["name"].as_str().map(str::to_owned)).collect())
    }
}

/// What a refusal says.
pub fn problem(answer: &Answer) -> String {
    let text = |field: &str| answer.body[field].as_str().map(str::to_owned);
    let said: Vec<String> = [text("code"), text("detail")].into_iter().flatten().collect();
    let errors = answer.body["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    let errors = errors.iter().map(|error| {
        let part = |field: &str| error[field].as_str().unwrap_or_default().to_owned();
        format!("; {}: {}", part("path"), part("message"))
    });
    match said.is_empty() {
        true => format!("{} {}", answer.status, answer.text),
        false => format!("{} {}{}", answer.status, said.join(": "), errors.collect::<String>()),
    }
}
