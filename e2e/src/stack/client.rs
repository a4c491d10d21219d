//! Requests to one process: as its customers make them, and as its operators do.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder};
use serde_json::Value;

/// Longer than any deadline of the services.
const PATIENCE: Duration = Duration::from_secs(30);

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    /// Null where the body is not JSON.
    pub body: Value,
    pub text: String,
}

/// Speaks to both listeners of a process.
#[derive(Clone)]
pub struct Client {
    http: SocketAddr,
    ops: SocketAddr,
    ops_token: String,
    client: reqwest::Client,
}

impl Client {
    pub(crate) fn new(http: SocketAddr, ops: SocketAddr, ops_token: &str) -> anyhow::Result<Self> {
        // A process that was killed is asked again at the same address: kept connections would fail first.
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).timeout(PATIENCE).build()?;
        Ok(Client { http, ops, ops_token: ops_token.to_owned(), client })
    }

    /// Base URL of the customers' listener.
    pub fn url(&self) -> String {
        format!("http://{}", self.http)
    }

    /// Base URL of the operators' listener.
    pub fn ops_url(&self) -> String {
        format!("http://{}", self.ops)
    }

    /// What it shows to the operators' listener.
    pub fn ops_token(&self) -> &str {
        &self.ops_token
    }

    /// A request that the caller completes.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url()))
    }

    /// The same to the operators' listener, with the token.
    pub fn ops_request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.ops_url())).bearer_auth(&self.ops_token)
    }

    /// # Errors
    /// No answer came.
    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        send(self.request(Method::GET, path)).await
    }

    /// Posts with an `Idempotency-Key`.
    ///
    /// # Errors
    /// No answer came: whether it took effect is unknown.
    pub async fn post(&self, path: &str, body: &Value, key: &str) -> anyhow::Result<Answer> {
        send(self.request(Method::POST, path).header("Idempotency-Key", key).json(body)).await
    }

    /// # Errors
    /// No answer came.
    pub async fn ops_get(&self, path: &str) -> anyhow::Result<Answer> {
        send(self.ops_request(Method::GET, path)).await
    }

    /// # Errors
    /// No answer came.
    pub async fn ops_post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        send(self.ops_request(Method::POST, path).json(body)).await
    }
}

/// Sends a request and reads the whole answer.
///
/// # Errors
/// No answer came.
pub async fn send(request: RequestBuilder) -> anyhow::Result<Answer> {
    let answer = request.send().await.context("no answer")?;
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    let text = answer.text().await.context("the answer broke off")?;
    Ok(Answer { status, headers, body: serde_json::from_str(&text).unwrap_or_default(), text })
}
