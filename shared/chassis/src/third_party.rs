//! Calling others: a deadline for each call, the caller's trace and correlation id on the way, and an answer that is
//! classified before anybody looks at it. A time-out is *unknown*, not *failed*: the effect may have happened.

use std::sync::Arc;
use std::time::Duration;

use messaging::{Failure, TraceContext};
use reqwest::header::{HeaderValue, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

/// The longest answer that is read.
const LONGEST_ANSWER: usize = 64 * 1024;
/// Whatever somebody else asks for, waiting is not for ever.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Shorter than servers keep idle connections, so that none is used at the moment it is closed.
const IDLE: Duration = Duration::from_secs(5);

/// Calls that are on their way together: a burst waits here, before its deadline runs, and does not bury the other one.
const AT_ONCE: usize = 64;

/// Somebody else's HTTP interface.
#[derive(Clone, Debug)]
pub struct ThirdParty {
    name: &'static str,
    base: String,
    deadline: Duration,
    at_once: Arc<Semaphore>,
    client: reqwest::Client,
}

impl ThirdParty {
    /// `name` begins the codes of failures (`provider.timeout`), `base` the URLs, `deadline` bounds each call, from
    /// the connection to the last byte.
    ///
    /// # Errors
    /// Permanent if `base` is no http URL.
    pub fn new(name: &'static str, base: &str, deadline: Duration) -> Result<ThirdParty, Failure> {
        let base = base.trim_end_matches('/').to_owned();
        match reqwest::Url::parse(&base) {
            Ok(url) if url.scheme() == "http" && url.has_host() => {}
            _ => return Err(Failure::permanent("settings.url", format!("the URL of the {name} is no http:// URL"))),
        }
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .pool_idle_timeout(IDLE)
            .timeout(deadline)
            .build()
            .map_err(|error| Failure::permanent("process.http", "an HTTP client cannot be made").caused_by(error))?;
        Ok(ThirdParty { name, base, deadline, at_once: Arc::new(Semaphore::new(AT_ONCE)), client })
    }

    /// Posts JSON and reads the JSON that comes back.
    ///
    /// # Errors
    /// Transient where nothing is known or the other one asks to come again: no connection, no answer in time, 429,
    /// 5xx, an answer that cannot be read. A `Retry-After` is kept, one minute at most. Permanent for any other status
    /// but 2xx.
    pub async fn post<A: DeserializeOwned>(
        &self,
        path: &'static str,
        correlation_id: &str,
        body: &impl Serialize,
    ) -> Result<A, Failure> {
        // The semaphore is never closed; without a permit the call would only be unbounded.
        let _permit = self.at_once.acquire().await.ok();
        let span = tracing::info_span!(
            "call",
            otel.name = format!("POST {path}"),
            otel.kind = "client",
            otel.status_code = Empty,
            peer.service = self.name,
            http.request.method = "POST",
            http.response.status_code = Empty,
            url.full = format!("{}{path}", self.base),
            correlation.id = correlation_id,
            error.type = Empty,
        );
        let called = self.call(path, correlation_id, body).instrument(span.clone()).await;
        if let Err(failure) = &called {
            span.record("otel.status_code", "ERROR");
            span.record("error.type", failure.code());
        }
        called
    }

    async fn call<A: DeserializeOwned>(
        &self,
        path: &str,
        correlation_id: &str,
        body: &impl Serialize,
    ) -> Result<A, Failure> {
        let mut request = self.client.post(format!("{}{path}", self.base)).json(body);
        request = request.header("x-correlation-id", correlation_id);
        for (name, value) in TraceContext::current().entries() {
            request = request.header(name, value);
        }
        let answer = request.send().await.map_err(|error| self.unanswered(error))?;
        Span::current().record("http.response.status_code", i64::from(answer.status().as_u16()));
        if let Some(failure) = self.refusal(&answer) {
            return Err(failure);
        }
        let body = self.read(answer).await?;
        serde_json::from_slice(&body)
            .map_err(|error| self.failure("unreadable", "gave an answer that cannot be read").caused_by(error))
    }

    /// A failure that the same call may overcome.
    fn failure(&self, code: &str, what: &str) -> Failure {
        Failure::transient(format!("{}.{code}", self.name), format!("the {} {what}", self.name))
    }

    fn unanswered(&self, error: reqwest::Error) -> Failure {
        // The URL is in the span; a log line should not hold an address twice.
        let error = error.without_url();
        if error.is_timeout() {
            let what = format!("did not answer within {} ms", self.deadline.as_millis());
            return self.failure("timeout", &what).caused_by(error);
        }
        self.failure("unreachable", "cannot be reached").caused_by(error)
    }

    fn refusal(&self, answer: &Response) -> Option<Failure> {
        let status = answer.status();
        let what = format!("answered {status}");
        let failure = match classify(status) {
            Meaning::Answer => return None,
            Meaning::Later(code) => self.failure(code, &what),
            Meaning::Never => Failure::permanent(format!("{}.refused", self.name), format!("the {} {what}", self.name)),
        };
        Some(match answer.headers().get(RETRY_AFTER).and_then(wait) {
            Some(delay) => failure.retry_after(delay),
            None => failure,
        })
    }

    async fn read(&self, mut answer: Response) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.unanswered(error))? {
            if body.len() + chunk.len() > LONGEST_ANSWER {
                return Err(self.failure("unreadable", "gave an answer that is too long"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

/// What a status means for the same call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meaning {
    Answer,
    Later(&'static str),
    Never,
}

fn classify(status: StatusCode) -> Meaning {
    match status.as_u16() {
        200..=299 => Meaning::Answer,
        408 | 425 => Meaning::Later("timeout"),
        429 => Meaning::Later("rate_limited"),
        500..=599 => Meaning::Later("unavailable"),
        _ => Meaning::Never,
    }
}

/// Seconds only; the form with a date is as good as none.
fn wait(value: &HeaderValue) -> Option<Duration> {
    let seconds: u64 = value.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_says_whether_to_come_again() {
        for (status, meaning) in [
            (200, Meaning::Answer),
            (204, Meaning::Answer),
            (301, Meaning::Never),
            (400, Meaning::Never),
            (401, Meaning::Never),
            (404, Meaning::Never),
            (408, Meaning::Later("timeout")),
            (409, Meaning::Never),
            (422, Meaning::Never),
            (429, Meaning::Later("rate_limited")),
            (500, Meaning::Later("unavailable")),
            (503, Meaning::Later("unavailable")),
            (504, Meaning::Later("unavailable")),
        ] {
            assert_eq!(classify(StatusCode::from_u16(status).unwrap()), meaning, "{status}");
        }
    }

    #[test]
    fn nobody_makes_us_wait_for_ever() {
        let header = |text: &'static str| HeaderValue::from_static(text);
        assert_eq!(wait(&header("1")), Some(Duration::from_secs(1)));
        assert_eq!(wait(&header("99999999")), Some(LONGEST_WAIT));
        assert_eq!(wait(&header("-1")), None);
        assert_eq!(wait(&header("Wed, 21 Oct 2026 07:28:00 GMT")), None);
    }
}
