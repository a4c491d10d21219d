//! Errors over HTTP, as `application/problem+json` (RFC 9457). `code` is stable and for programs, `detail` is for
//! people, `retryable` says whether the same request may succeed later. What went wrong inside is told to the log,
//! never to the client.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use messaging::{Class, Failure};
use serde::Serialize;
use utoipa::ToSchema;

use crate::telemetry::trace_id;

/// An error that a client gets.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    code: Cow<'static, str>,
    detail: Cow<'static, str>,
    is_retryable: bool,
    retry_after: Option<Duration>,
    errors: Vec<FieldError>,
}

/// One field of a request that is not as it must be.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, ToSchema)]
pub struct FieldError {
    /// Where: `items[0].quantity`.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

/// How it looks on the wire.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Problem)]
pub struct ProblemBody {
    /// Always `about:blank`: `code` tells errors apart, and `title` is the name of the status.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The name of the status.
    title: &'static str,
    /// The status.
    status: u16,
    /// What went wrong, for people.
    #[schema(value_type = String)]
    detail: Cow<'static, str>,
    /// What went wrong, for programs: stable.
    #[schema(value_type = String)]
    code: Cow<'static, str>,
    /// Whether the same request may succeed later.
    retryable: bool,
    /// Under which this request is found in traces and logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    /// Which fields are wrong, where it is about fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<FieldError>,
}

/// The code of the problem that a response carries, for the request's span.
#[derive(Clone, Debug)]
pub(crate) struct ProblemCode(pub(crate) Cow<'static, str>);

impl Problem {
    /// A request that is refused, and would be again.
    pub fn new(
        status: StatusCode,
        code: impl Into<Cow<'static, str>>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Problem {
        Problem {
            status,
            code: code.into(),
            detail: detail.into(),
            is_retryable: false,
            retry_after: None,
            errors: Vec::new(),
        }
    }

    /// There is no such thing: 404.
    pub fn not_found(code: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, code, detail)
    }

    /// The thing is in another state: 409.
    pub fn conflict(code: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::CONFLICT, code, detail)
    }

    /// The rules of the business say no, or the request is not as it must be: 422.
    pub fn unprocessable(code: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail)
    }

    /// Not now: 503, to be tried again after a second.
    pub fn unavailable(code: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, detail).retry_after(Duration::from_secs(1))
    }

    /// The same problem; the request may succeed after this time.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Problem {
        self.is_retryable = true;
        self.retry_after = Some(delay);
        self
    }

    /// The same problem, with the fields that it is about.
    #[must_use]
    pub fn with_errors(mut self, errors: Vec<FieldError>) -> Problem {
        self.errors = errors;
        self
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The stable code.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The fields that it is about.
    pub fn errors(&self) -> &[FieldError] {
        &self.errors
    }
}

/// Logs the failure with its whole chain, here and nowhere else, and tells the client only what it can act on.
impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        let (code, chain) = (failure.code(), failure.chain());
        match failure.class() {
            Class::Permanent => {
                tracing::error!(
                    error.type = "Technical",
                    error.code = code,
                    retryable = false,
                    "a request failed: {chain}"
                );
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "something is wrong on our side")
            }
            Class::Unavailable | Class::Transient | Class::Conflict => {
                tracing::warn!(
                    error.type = "Technical",
                    error.code = code,
                    retryable = true,
                    "a request could not be done now: {chain}"
                );
                Problem::unavailable("unavailable", "not possible at the moment, please try again")
            }
        }
    }
}

/// As a [`Failure`] of the database.
impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Problem {
        Failure::from(error).into()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = ProblemBody {
            kind: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            detail: self.detail,
            code: self.code.clone(),
            retryable: self.is_retryable,
            trace_id: trace_id(),
            errors: self.errors,
        };
        let mut response = Response::new(Body::from(serde_json::to_vec(&body).unwrap_or_default()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(delay) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(delay.as_secs().max(1)));
        }
        response.extensions_mut().insert(ProblemCode(self.code));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_technical_failure_tells_the_client_only_whether_to_try_again() {
        for (class, status, is_retryable) in [
            (Class::Permanent, 500, false),
            (Class::Transient, 503, true),
            (Class::Unavailable, 503, true),
            (Class::Conflict, 503, true),
        ] {
            let problem = Problem::from(Failure::new(class, "database.23505", "insert of alice's order"));
            assert_eq!((problem.status.as_u16(), problem.is_retryable), (status, is_retryable));
            assert!(!problem.code.contains("23505") && !problem.detail.contains("alice"), "{problem:?}");
            let response = problem.into_response();
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), is_retryable);
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
        }
    }
}
