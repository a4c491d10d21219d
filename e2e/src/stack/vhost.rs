//! A vhost of one's own, with the services' users and exactly the rights that the topology names.

use anyhow::{Context as _, bail};
use contracts::topology::{EVENTS, USERS};
use reqwest::{Client, Method};
use serde_json::{Value, json};

use crate::servers::Coordinates;

/// One stack's vhost.
pub struct Vhost {
    name: String,
    coordinates: Coordinates,
    client: Client,
}

impl Vhost {
    /// Makes a fresh one of this name. Users belong to the whole broker; they are made again without harm.
    ///
    /// # Errors
    /// The broker is away or refuses.
    pub async fn create(coordinates: &Coordinates, name: &str) -> anyhow::Result<Self> {
        let client = Client::builder().no_proxy().build()?;
        let vhost = Vhost { name: name.to_owned(), coordinates: coordinates.clone(), client };
        vhost.call(Method::PUT, &format!("vhosts/{name}"), Some(json!({}))).await?;
        for user in USERS {
            let at = user.name;
            vhost.ensure_user(at, &coordinates.password_of(at)).await?;
            let rights = json!({"configure": user.configure, "write": user.write, "read": user.read});
            vhost.call(Method::PUT, &format!("permissions/{name}/{at}"), Some(rights)).await?;
            let rights = json!({"exchange": EVENTS.name, "write": user.events_write, "read": user.events_read});
            vhost.call(Method::PUT, &format!("topic-permissions/{name}/{at}"), Some(rights)).await?;
        }
        Ok(vhost)
    }

    /// Two stacks may make the same user at once, and the broker refuses one of them.
    async fn ensure_user(&self, user: &str, password: &str) -> anyhow::Result<()> {
        let path = format!("users/{user}");
        let body = json!({"password": password, "tags": ""});
        if self.call(Method::GET, &path, None).await.is_ok() {
            return Ok(());
        }
        match self.call(Method::PUT, &path, Some(body)).await {
            Err(_) if self.call(Method::GET, &path, None).await.is_ok() => Ok(()),
            made => made.map(drop),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where a user connects; the administrator has all rights.
    pub fn url(&self, user: &str) -> String {
        let broker = &self.coordinates.broker;
        let password = if user == broker.user { broker.password.clone() } else { self.coordinates.password_of(user) };
        format!("amqp://{user}:{password}@{}/{}", broker.address(), self.name)
    }

    /// Asks the management API, for example `GET queues/<vhost>/order.replies`.
    ///
    /// # Errors
    /// The broker is away or refuses.
    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
        let broker = &self.coordinates.broker;
        let mut request = self.client.request(method, self.coordinates.management(path));
        request = request.basic_auth(&broker.user, Some(&broker.password));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.context("asking RabbitMQ's management")?;
        let status = answer.status();
        let text = answer.text().await?;
        if !status.is_success() {
            bail!("RabbitMQ's management refuses {path} with {status}: {text}");
        }
        Ok(if text.is_empty() { Value::Null } else { serde_json::from_str(&text)? })
    }

    /// Removes it with all that is in it.
    pub(crate) async fn drop_named(coordinates: &Coordinates, name: &str) -> anyhow::Result<()> {
        let vhost = Vhost {
            name: name.to_owned(),
            coordinates: coordinates.clone(),
            client: Client::builder().no_proxy().build()?,
        };
        vhost.call(Method::DELETE, &format!("vhosts/{name}"), None).await.map(drop)
    }
}
