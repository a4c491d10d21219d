//! Reading requests: a body, a query or a path becomes a checked value, or the client learns which field is wrong and
//! how. Whatever strangers send, the answer is a problem of the 4xx kind: nothing of it reaches a handler, a log or
//! the database.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use garde::Validate;
use messaging::Failure;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use crate::problem::{FieldError, Problem};

/// The longest body.
pub const LONGEST_BODY: usize = 64 * 1024;
/// A body that is not here by then is not waited for.
const BODY_DEADLINE: Duration = Duration::from_secs(10);
/// The longest message about a field: parsers repeat what they were given.
const LONGEST_MESSAGE: usize = 200;

/// A JSON body: of the right type, and as its rules (`garde`) say. As a response: JSON.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

/// The query of the URL, checked in the same way.
#[derive(Clone, Copy, Debug)]
pub struct Query<T>(pub T);

/// The variable parts of the path.
#[derive(Clone, Copy, Debug)]
pub struct Path<T>(pub T);

impl<T, S> FromRequest<S> for Json<T>
where
    T: DeserializeOwned + Validate<Context: Default>,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Json<T>, Problem> {
        if !is_json(request.headers()) {
            let detail = "the body must be application/json";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "request.content_type", detail));
        }
        let body = read_body(request).await?;
        let value = parse(&body)?;
        check(&value)?;
        Ok(Json(value))
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
            Err(error) => {
                let failure = Failure::permanent("answer.json", "an answer cannot be written as JSON");
                Problem::from(failure.caused_by(error)).into_response()
            }
        }
    }
}

impl<T, S> FromRequestParts<S> for Query<T>
where
    T: DeserializeOwned + Validate<Context: Default>,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Query<T>, Problem> {
        let axum::extract::Query(value) =
            axum::extract::Query::<T>::from_request_parts(parts, state).await.map_err(|rejection| {
                Problem::new(StatusCode::BAD_REQUEST, "request.query", short(&rejection.body_text()))
            })?;
        check(&value)?;
        Ok(Query(value))
    }
}

impl<T, S> FromRequestParts<S> for Path<T>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Path<T>, Problem> {
        match axum::extract::Path::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Path(value)),
            Err(rejection) if rejection.status().is_server_error() => {
                Err(Failure::permanent("request.path", "a route and its handler disagree").caused_by(rejection).into())
            }
            Err(rejection) => Err(Problem::new(StatusCode::BAD_REQUEST, "request.path", short(&rejection.body_text()))),
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// Reads a whole body, bounded in length and time.
pub(crate) async fn read_body(request: Request) -> Result<Bytes, Problem> {
    match tokio::time::timeout(BODY_DEADLINE, Bytes::from_request(request, &())).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(rejection)) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            let detail = format!("the body is longer than {LONGEST_BODY} bytes");
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "request.too_large", detail))
        }
        Ok(Err(_)) => Err(Problem::new(StatusCode::BAD_REQUEST, "request.malformed", "the body ended early")),
        Err(_) => {
            let detail = "the body did not arrive in time";
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "request.timeout", detail)
                .retry_after(Duration::from_secs(1)))
        }
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        refuse(&path, error.inner())
    })?;
    reader.end().map_err(|error| refuse(".", &error))?;
    // PostgreSQL has no NUL in a text, so no text of a request has one.
    if has_nul(body) {
        return Err(Problem::unprocessable("request.invalid", "a text contains the character NUL"));
    }
    Ok(value)
}

fn refuse(path: &str, error: &serde_json::Error) -> Problem {
    match error.classify() {
        Category::Data => Problem::unprocessable("request.invalid", "the body is not as it must be")
            .with_errors(vec![FieldError { path: short(path), message: short(&error.to_string()) }]),
        Category::Syntax | Category::Eof | Category::Io => {
            let detail = format!("the body is not valid JSON: {}", short(&error.to_string()));
            Problem::new(StatusCode::BAD_REQUEST, "request.malformed", detail)
        }
    }
}

/// In valid JSON a backslash only stands in a text, where it and the next character belong together.
fn has_nul(json: &[u8]) -> bool {
    let mut rest = json;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        let escape = &rest[at + 1..];
        if escape.starts_with(b"u0000") {
            return true;
        }
        rest = escape.get(1..).unwrap_or_default();
    }
    false
}

fn check<T: Validate<Context: Default>>(value: &T) -> Result<(), Problem> {
    let Err(report) = value.validate() else {
        return Ok(());
    };
    let mut errors: Vec<FieldError> = report
        .iter()
        .map(|(path, error)| FieldError { path: short(&path.to_string()), message: short(&error.to_string()) })
        .collect();
    errors.sort();
    Err(Problem::unprocessable("request.invalid", "the request is not as it must be").with_errors(errors))
}

/// A rule for `garde`: a text that says something, without control characters.
///
/// # Errors
/// It is blank, or has one.
pub fn printable(value: &str, (): &()) -> garde::Result {
    if value.chars().any(char::is_control) {
        return Err(garde::Error::new("control characters are not allowed"));
    }
    if value.trim().is_empty() {
        return Err(garde::Error::new("must not be blank"));
    }
    Ok(())
}

fn short(message: &str) -> String {
    message.chars().filter(|letter| !letter.is_control()).take(LONGEST_MESSAGE).collect()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, Validate)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Order {
        #[garde(length(chars, min = 1, max = 10))]
        name: String,
        #[garde(dive, length(max = 3))]
        items: Vec<Item>,
    }

    #[derive(Debug, Deserialize, Validate)]
    #[serde(deny_unknown_fields)]
    struct Item {
        #[garde(range(min = 1, max = 100))]
        quantity: i64,
    }

    fn read(body: &[u8]) -> Result<Order, Problem> {
        let order = parse(body)?;
        check(&order)?;
        Ok(order)
    }

    fn with_quantity(quantity: &str) -> String {
        format!(r#"{{"name":"a","items":[{{"quantity":{quantity}}}]}}"#)
    }

    #[test]
    fn what_is_no_json_is_malformed() {
        let deep = "[".repeat(10_000);
        let deep_field = format!(r#"{{"name":{deep}"#);
        for body in ["", "{", "nonsense", "\u{feff}{}", r#"{"name":"\ud800","items":[]}"#, "{} {}", &deep, &deep_field]
        {
            let problem = read(body.as_bytes()).unwrap_err();
            assert!(problem.status().is_client_error(), "{body:.40}: {problem:?}");
        }
        for number in ["NaN", "1e400", "01", "+1", "Infinity"] {
            let problem = read(with_quantity(number).as_bytes()).unwrap_err();
            assert_eq!(problem.code(), "request.malformed", "{number}");
        }
        assert_eq!(read(b"{\"name\":\"\xff\",\"items\":[]}").unwrap_err().code(), "request.malformed");
        assert_eq!(read(b"{\"name\":\"a\0b\",\"items\":[]}").unwrap_err().code(), "request.malformed");
    }

    #[test]
    fn what_is_json_but_no_order_is_invalid_and_the_field_is_named() {
        for number in ["-0", "0", "-1", "1.5", "9007199254740993", "9223372036854775807", "1e2", "null", "\"1\"", "[]"]
        {
            let problem = read(with_quantity(number).as_bytes()).unwrap_err();
            assert_eq!((problem.status().as_u16(), problem.code()), (422, "request.invalid"), "{number}");
            assert_eq!(problem.errors()[0].path, "items[0].quantity", "{number}");
        }
        for (body, path) in [
            (r#"{"name":"a","items":[],"status":"paid"}"#, "status"),
            (r#"{"name":"a","name":"b","items":[]}"#, "."),
            (r#"{"name":7,"items":[]}"#, "name"),
            (r#"{"name":"","items":[]}"#, "name"),
            (r#"{"name":"12345678901","items":[]}"#, "name"),
            (r#"{"items":[]}"#, "."),
            ("[]", "."),
            ("null", "."),
        ] {
            let problem = read(body.as_bytes()).unwrap_err();
            assert_eq!((problem.status().as_u16(), problem.code()), (422, "request.invalid"), "{body}");
            assert_eq!(problem.errors()[0].path, path, "{body}");
        }
    }

    #[test]
    fn a_text_with_nul_never_reaches_the_database() {
        assert_eq!(read(br#"{"name":"a\u0000b","items":[]}"#).unwrap_err().code(), "request.invalid");
        assert_eq!(read(br#"{"name":"a\\u0000b","items":[]}"#).unwrap().name, "a\\u0000b");
    }

    #[test]
    fn an_answer_never_repeats_a_long_input() {
        let body = format!(r#"{{"name":"a","items":[],"{}":1}}"#, "x".repeat(10_000));
        let problem = read(body.as_bytes()).unwrap_err();
        assert!(
            problem.errors()[0].message.len() <= LONGEST_MESSAGE && problem.errors()[0].path.len() <= LONGEST_MESSAGE
        );
    }
}
