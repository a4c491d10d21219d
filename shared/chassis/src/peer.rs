//! Another service of the same shop, asked on its operators' listener: how it is, and what it knows of a saga.

use std::time::Duration;

use messaging::{Failure, TraceContext};
use reqwest::StatusCode;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::base::Base;
use crate::health::Readiness;
use crate::story::Told;

/// Whoever does not answer by then is told as silent: the one who asks is a person.
const DEADLINE: Duration = Duration::from_secs(2);

/// The longest answer that is read, in bytes: a story of a thousand rows.
const LONGEST_ANSWER: usize = 4 * 1024 * 1024;

/// The other service. Peers share the operators' token.
#[derive(Clone, Debug)]
pub struct Peer {
    name: String,
    url: String,
    token: String,
    client: reqwest::Client,
}

impl Peer {
    /// Reads `name=http://host:port`.
    ///
    /// # Errors
    /// Permanent if it is written otherwise.
    pub fn new(base: &Base, setting: &str) -> Result<Peer, Failure> {
        let refused = || Failure::permanent("settings.peer", format!("{setting:?} is not NAME=http://HOST:PORT"));
        let (name, url) = setting.split_once('=').ok_or_else(refused)?;
        match reqwest::Url::parse(url) {
            Ok(url) if url.scheme() == "http" && url.has_host() && !name.is_empty() => {}
            _ => return Err(refused()),
        }
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .pool_max_idle_per_host(0)
            .timeout(DEADLINE)
            .build()
            .map_err(|error| Failure::permanent("process.http", "an HTTP client cannot be made").caused_by(error))?;
        let token = base.settings.ops_token()?.unwrap_or_default();
        Ok(Peer { name: name.to_owned(), url: url.trim_end_matches('/').to_owned(), token, client })
    }

    /// The service's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its part of a saga.
    ///
    /// # Errors
    /// Transient if it does not answer, or not with what was asked for.
    pub async fn story(&self, saga_id: Uuid) -> Result<Told, Failure> {
        let told = self.told(format!("/ops/story?sagaId={saga_id}")).await?;
        if told.saga_id == saga_id { Ok(told) } else { Err(self.failure("tells of another saga")) }
    }

    /// The part of the saga that a message belongs to, if this service wrote the message.
    ///
    /// # Errors
    /// As [`Peer::story`]; also if it knows no such message.
    pub async fn story_of_event(&self, event_id: Uuid) -> Result<Told, Failure> {
        self.told(format!("/ops/story?eventId={event_id}")).await
    }

    /// How it is.
    ///
    /// # Errors
    /// Transient if it does not answer.
    pub async fn readiness(&self) -> Result<Readiness, Failure> {
        let (_, readiness) = self.ask("/health/ready").await?;
        Ok(readiness)
    }

    async fn told(&self, path: String) -> Result<Told, Failure> {
        let (status, told) = self.ask(&path).await?;
        if status.is_success() { Ok(told) } else { Err(self.failure(&format!("answers {status}"))) }
    }

    async fn ask<A: DeserializeOwned>(&self, path: &str) -> Result<(StatusCode, A), Failure> {
        let mut request = self.client.get(format!("{}{path}", self.url)).bearer_auth(&self.token);
        // What one question asks of all services is one trace.
        for (name, value) in TraceContext::current().entries() {
            request = request.header(name, value);
        }
        let unanswered = |error: reqwest::Error| {
            let what = if error.is_timeout() { "does not answer within 2 s" } else { "cannot be reached" };
            self.failure(what).caused_by(error.without_url())
        };
        let mut answer = request.send().await.map_err(unanswered)?;
        let status = answer.status();
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(unanswered)? {
            if body.len() + chunk.len() > LONGEST_ANSWER {
                return Err(self.failure("answers with more than anybody asked for"));
            }
            body.extend_from_slice(&chunk);
        }
        match serde_json::from_slice(&body) {
            Ok(told) => Ok((status, told)),
            // A refusal has another form.
            Err(_) if !status.is_success() => Err(self.failure(&format!("answers {status}"))),
            Err(error) => Err(self.failure("gives an answer that cannot be read").caused_by(error)),
        }
    }

    fn failure(&self, what: &str) -> Failure {
        Failure::transient("peer.no_answer", format!("{} {what}", self.name))
    }
}
