//! The correlation id: the caller's own name for what it asks, on every message, span and log line of it. It is input
//! of strangers that travels far, so its characters and its length are bounded.

use std::fmt;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tracing::Span;

use crate::problem::Problem;

/// The header.
pub const HEADER: HeaderName = HeaderName::from_static("x-correlation-id");
const LONGEST: usize = 128;

/// The correlation id of a request: the caller's, or one that the handler gives.
#[derive(Clone, Debug)]
pub struct Correlation {
    caller: Option<String>,
    span: Span,
}

impl Correlation {
    /// Reads the caller's id and writes it on the request's span.
    ///
    /// # Errors
    /// 400 `request.correlation_id`, if it is empty, longer than 128, or has other characters than `A-Za-z0-9._:-`.
    pub(crate) fn of_request(headers: &HeaderMap, span: &Span) -> Result<Correlation, Problem> {
        let mut values = headers.get_all(HEADER).iter();
        let caller = match (values.next(), values.next()) {
            (None, _) => None,
            (Some(value), None) => Some(read(value).ok_or_else(refused)?),
            (Some(_), Some(_)) => return Err(refused()),
        };
        if let Some(id) = &caller {
            span.record("correlation.id", id);
        }
        Ok(Correlation { caller, span: span.clone() })
    }

    /// What the caller sent.
    pub fn caller(&self) -> Option<&str> {
        self.caller.as_deref()
    }

    /// What the caller sent, else `default`, which is then written on the request's span.
    pub fn or(self, default: impl fmt::Display) -> String {
        self.caller.unwrap_or_else(|| {
            let id = default.to_string();
            self.span.record("correlation.id", &id);
            id
        })
    }
}

/// Never fails behind [`Front`](crate::http::Front), which has read it already.
impl<S: Send + Sync> FromRequestParts<S> for Correlation {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Correlation, Problem> {
        match parts.extensions.get::<Correlation>() {
            Some(correlation) => Ok(correlation.clone()),
            None => Correlation::of_request(&parts.headers, &Span::current()),
        }
    }
}

fn read(value: &HeaderValue) -> Option<String> {
    let text = value.to_str().ok()?;
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    ((1..=LONGEST).contains(&text.len()) && text.bytes().all(is_known)).then(|| text.to_owned())
}

fn refused() -> Problem {
    let detail = "X-Correlation-Id must be 1 to 128 characters of A-Z a-z 0-9 . _ : -";
    Problem::new(StatusCode::BAD_REQUEST, "request.correlation_id", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_plain_ids_are_taken() {
        let longest = "x".repeat(128);
        for good in ["a", "Order:4711_x.y-z", longest.as_str()] {
            assert_eq!(read(&HeaderValue::from_str(good).unwrap()).as_deref(), Some(good));
        }
        let too_long = "x".repeat(129);
        for bad in ["", "a b", "a\tb", "a;b", "ä", too_long.as_str()] {
            assert_eq!(read(&HeaderValue::from_bytes(bad.as_bytes()).unwrap()), None, "{bad}");
        }
    }
}
