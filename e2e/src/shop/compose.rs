//! The shop of `docker compose up`, as Docker Compose itself describes it: ports, secrets and all.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::future::LocalBoxFuture;
use serde_json::Value;
use tokio::process::Command;

use super::{Act, Control, Disturbed, Listeners, Origin, Part, Whereabouts};
use crate::eventually::{State, eventually};
use crate::stack::Service;
use crate::workspace;

const READY_WITHIN: Duration = Duration::from_secs(90);
/// The users of the broker, as the container gets them.
const BROKER_USERS: &str = include_str!("../../../services/broker/definitions.json");

/// Speaks to Docker Compose.
pub(super) struct Compose {
    file: PathBuf,
}

/// The shop, if Docker Compose runs one.
///
/// # Errors
/// It describes itself in a way that is not understood.
pub(super) async fn find() -> anyhow::Result<Option<(Whereabouts, Compose)>> {
    let compose = Compose::new();
    let Ok(running) = compose.call(&["ps", "--format", "json"]).await else { return Ok(None) };
    if !containers(&running).iter().any(|container| container["Service"] == "order") {
        return Ok(None);
    }
    let described = compose.call(&["config", "--format", "json"]).await?;
    let described = serde_json::from_str(&described).context("docker compose config")?;
    Ok(Some((whereabouts(&described, &compose.file)?, compose)))
}

/// What the services have written since a moment.
///
/// # Errors
/// Docker Compose does not tell.
pub(super) async fn logs(since: &str) -> anyhow::Result<String> {
    let mut arguments = vec!["logs", "--no-log-prefix", "--no-color", "--since", since];
    arguments.extend(Service::ALL.map(Service::name));
    Compose::new().call(&arguments).await
}

/// A container that somebody ended stays so; one that ended by itself is started again by Docker.
fn disturbed(text: &str) -> Disturbed {
    let act = |container: &Value| {
        let part = container["Service"].as_str()?.parse().ok()?;
        match container["State"].as_str()? {
            "paused" => Some((part, Act::Freeze)),
            "exited" => Some((part, Act::Kill)),
            _ => None,
        }
    };
    containers(text).iter().filter_map(act).collect()
}

/// One object a line, or a list of them: versions differ.
fn containers(text: &str) -> Vec<Value> {
    match serde_json::from_str(text) {
        Ok(Value::Array(list)) => list,
        _ => text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(),
    }
}

fn whereabouts(config: &Value, file: &Path) -> anyhow::Result<Whereabouts> {
    let port = |service: &str, target: u16| published(config, service, target);
    let address =
        |service: &str, target: u16| anyhow::Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port(service, target)?)));
    let mut services = BTreeMap::new();
    for (service, number) in AT_THE_GATE {
        services
            .insert(service, Listeners { http: address("gate", 8000 + number)?, ops: address("gate", 9000 + number)? });
    }
    let variable = |service: &str, name: &str| {
        let value = config["services"][service]["environment"][name].as_str();
        value.map(str::to_owned).with_context(|| format!("docker compose gives {service} no {name}"))
    };
    let (user, password) = administrator()?;
    let broker = address("rabbitmq", 5672)?;
    let (management, postgres) = (address("rabbitmq", 15672)?, address("postgres", 5432)?);
    Ok(Whereabouts {
        origin: Origin::Compose,
        services,
        ops_token: variable("order", "OPS_TOKEN")?,
        broker: format!("amqp://{user}:{password}@{broker}/%2f"),
        broker_page: format!("http://{user}:{password}@{management}"),
        postgres: format!("postgres://postgres:{}@{postgres}/saga", variable("postgres", "POSTGRES_PASSWORD")?),
        auditor: format!(
            "postgres://auditor:{}@{postgres}/saga?sslmode=disable",
            variable("migrations", "AUDITOR_DATABASE_PASSWORD")?
        ),
        jaeger: port("jaeger", 16686).ok().map(|port| format!("http://localhost:{port}")),
        logs: format!("docker compose -f {} logs", file.display()),
        data: None,
    })
}

/// The services behind the gate, by the last digit of their ports.
const AT_THE_GATE: [(Service, u16); 5] = [
    (Service::Order, 1),
    (Service::Payment, 2),
    (Service::Inventory, 3),
    (Service::Shipping, 4),
    (Service::Sandbox, 5),
];

/// The port on this machine that leads to a container's.
fn published(config: &Value, service: &str, target: u16) -> anyhow::Result<u16> {
    let ports = config["services"][service]["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = ports.iter().find(|port| port["target"] == target).map(|port| &port["published"]);
    let number = match found {
        Some(Value::String(text)) => text.parse().ok(),
        Some(Value::Number(number)) => number.as_u64().and_then(|number| u16::try_from(number).ok()),
        _ => None,
    };
    number.with_context(|| format!("docker compose publishes no port {target} of {service}"))
}

fn administrator() -> anyhow::Result<(String, String)> {
    let definitions: Value = serde_json::from_str(BROKER_USERS)?;
    let users = definitions["users"].as_array().map(Vec::as_slice).unwrap_or_default();
    let administrator = users.iter().find(|user| user["tags"] == "administrator").context("an administrator")?;
    let text = |field: &str| administrator[field].as_str().map(str::to_owned).context("name and password");
    Ok((text("name")?, text("password")?))
}

impl Compose {
    fn new() -> Self {
        Compose { file: workspace().join("docker-compose.yml") }
    }

    async fn call(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new("docker");
        command.arg("compose").arg("--file").arg(&self.file).args(arguments).kill_on_drop(true);
        let output = command.output().await.context("running docker")?;
        if !output.status.success() {
            bail!("docker compose {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    async fn ready(&self, part: Part) -> anyhow::Result<()> {
        eventually(READY_WITHIN, &format!("{part} is healthy"), async || {
            let list = containers(&self.call(&["ps", "--format", "json", part.name()]).await?);
            let health: Vec<&Value> = list.iter().map(|container| &container["Health"]).collect();
            let is_well = health.iter().all(|health| **health == "healthy" || **health == "");
            Ok(if is_well && !health.is_empty() { State::Reached(()) } else { State::pending(health) })
        })
        .await
    }
}

impl Control for Compose {
    fn act(&self, part: Part, act: Act) -> LocalBoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async move {
            let verb = match act {
                Act::Kill => "kill",
                Act::Start => "start",
                Act::Freeze => "pause",
                Act::Thaw => "unpause",
            };
            self.call(&[verb, part.name()]).await?;
            if act == Act::Start { self.ready(part).await } else { Ok(()) }
        })
    }

    fn disturbed(&self) -> LocalBoxFuture<'_, anyhow::Result<Disturbed>> {
        Box::pin(async move { Ok(disturbed(&self.call(&["ps", "--all", "--format", "json"]).await?)) })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Act, Part, administrator, containers, disturbed, published};
    use crate::stack::Service;

    #[test]
    fn containers_are_read_from_a_list_and_from_lines() {
        let names = |text: &str| containers(text).iter().map(|one| one["Service"].to_string()).collect::<Vec<_>>();
        assert_eq!(
            names(r#"[{"Service":"order"},{"Service":"payment"}]"#),
            names("{\"Service\":\"order\"}\n{\"Service\":\"payment\"}\n")
        );
        assert_eq!(names("").len(), 0);
    }

    #[test]
    fn what_somebody_paused_or_ended_is_disturbed_and_nothing_else() {
        let text = r#"{"Service":"order","State":"running"}
            {"Service":"payment","State":"paused"}
            {"Service":"rabbitmq","State":"exited"}
            {"Service":"migrations","State":"exited"}"#;
        let expected = [(Part::Rabbitmq, Act::Kill), (Part::Service(Service::Payment), Act::Freeze)];
        assert_eq!(disturbed(text), expected.into());
    }

    #[test]
    fn a_published_port_is_found_whether_it_is_text_or_number() {
        let config = json!({"services": {"order": {"ports": [
            {"target": 8000, "published": "18001"}, {"target": 9000, "published": 19001}]}}});
        assert_eq!(published(&config, "order", 8000).unwrap(), 18001);
        assert_eq!(published(&config, "order", 9000).unwrap(), 19001);
        assert!(published(&config, "order", 5432).is_err());
    }

    #[test]
    fn the_broker_has_an_administrator() {
        assert_eq!(administrator().unwrap().0, "admin");
    }
}
