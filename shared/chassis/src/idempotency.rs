//! Idempotency keys: a request that comes again gets the first answer and has no second effect. Key and answer are
//! written in the transaction of the effect, and a unique index decides between two that come at once: the later one
//! waits until the first has committed, and then sees its answer. So there is no state *in progress* that could outlive
//! its process, and a request that fails does not burn its key.

use std::fmt;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use messaging::Failure;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use sqlx::PgConnection;

use crate::json::Json;
use crate::problem::Problem;

/// The header.
pub const HEADER: HeaderName = HeaderName::from_static("idempotency-key");
const LONGEST: usize = 255;
/// The status of a key whose answer is not written yet: seen only by the transaction that does it.
const NOT_YET: i16 = 0;

/// What the caller calls this request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key(String);

impl Key {
    /// The key of a request that needs one.
    ///
    /// # Errors
    /// 400 `request.idempotency_key_missing` without one; 400 `request.idempotency_key_invalid` if there are several,
    /// or it is not 1 to 255 visible ASCII characters.
    pub fn from_headers(headers: &HeaderMap) -> Result<Key, Problem> {
        let mut values = headers.get_all(HEADER).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => read(value).map(Key).ok_or_else(|| {
                let detail = "Idempotency-Key must be 1 to 255 visible ASCII characters";
                Problem::new(StatusCode::BAD_REQUEST, "request.idempotency_key_invalid", detail)
            }),
            (None, _) => {
                let detail = "this request needs the header Idempotency-Key";
                Err(Problem::new(StatusCode::BAD_REQUEST, "request.idempotency_key_missing", detail))
            }
            (Some(_), Some(_)) => {
                let detail = "there is more than one Idempotency-Key";
                Err(Problem::new(StatusCode::BAD_REQUEST, "request.idempotency_key_invalid", detail))
            }
        }
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn read(value: &HeaderValue) -> Option<String> {
    let text = value.to_str().ok()?;
    ((1..=LONGEST).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())).then(|| text.to_owned())
}

/// What makes two requests the same. `body` is the request as it was understood, written as JSON again, so that
/// spaces and the order of fields do not count.
pub fn fingerprint(method: &str, path: &str, body: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [method.as_bytes(), path.as_bytes(), body] {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// An answer that is kept. Both the first client and those who repeat get it from here, to the byte.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredAnswer {
    /// The status.
    pub status: StatusCode,
    /// Where the new thing is.
    pub location: Option<String>,
    /// The body.
    pub body: serde_json::Value,
}

impl StoredAnswer {
    /// # Errors
    /// Permanent, if the body cannot be written as JSON.
    pub fn new(status: StatusCode, location: Option<String>, body: &impl Serialize) -> Result<StoredAnswer, Failure> {
        let body = serde_json::to_value(body).map_err(|error| {
            Failure::permanent("answer.json", "an answer cannot be written as JSON").caused_by(error)
        })?;
        Ok(StoredAnswer { status, location, body })
    }
}

impl IntoResponse for StoredAnswer {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body)).into_response();
        if let Some(location) = self.location.and_then(|location| HeaderValue::try_from(location).ok()) {
            response.headers_mut().insert(header::LOCATION, location);
        }
        response
    }
}

/// What is known about a key.
#[derive(Clone, PartialEq, Debug)]
pub enum Claim {
    /// It is new: do the work, [`complete`] and commit, all in this transaction.
    First,
    /// The same request was done before; this is its answer. Nothing is to be done.
    Repeated(StoredAnswer),
    /// The key belongs to another request: answer with [`reused`].
    Mismatch,
}

/// A request whose answer is known before anything is written, or not at all if the rules refuse it.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Whose key it is.
    pub scope: &'a str,
    /// The key.
    pub key: &'a Key,
    /// See [`fingerprint`].
    pub fingerprint: &'a [u8; 32],
    /// What is answered if the key is new; without one nothing is claimed.
    pub answer: Option<&'a StoredAnswer>,
}

/// Claims the keys of several requests together with their answers, as [`begin`] and [`complete`] do for one. Returns
/// what is known about each, in their order: nothing, if it has no answer and its key is new.
///
/// # Errors
/// As [`begin`].
pub async fn claim(connection: &mut PgConnection, requests: &[Request<'_>]) -> Result<Vec<Option<Claim>>, Failure> {
    let mut answered: Vec<_> = requests.iter().filter_map(|it| Some((it, it.answer?))).collect();
    // Everybody waits for keys in this order.
    answered.sort_by_key(|(it, _)| (it.scope, it.key.as_str()));
    let mut claimed = Vec::new();
    if !answered.is_empty() {
        claimed = sqlx::query!(
            "insert into idempotency_keys (scope, key, fingerprint, status, location, body)
             select * from unnest($1::text[], $2::text[], $3::bytea[], $4::smallint[], $5::text[], $6::jsonb[])
             on conflict do nothing returning scope, key",
            &answered.iter().map(|(it, _)| it.scope.to_owned()).collect::<Vec<_>>(),
            &answered.iter().map(|(it, _)| it.key.as_str().to_owned()).collect::<Vec<_>>(),
            &answered.iter().map(|(it, _)| it.fingerprint.to_vec()).collect::<Vec<_>>(),
            &answered.iter().map(|(_, answer)| status_number(answer.status)).collect::<Vec<_>>(),
            &answered.iter().map(|(_, answer)| answer.location.clone()).collect::<Vec<_>>() as &[Option<String>],
            &answered.iter().map(|(_, answer)| answer.body.clone()).collect::<Vec<_>>()
        )
        .fetch_all(&mut *connection)
        .await?;
    }
    // Each only once: of two equal requests that came together, one is first.
    let mut is_first = |it: &Request<'_>| {
        let place = claimed.iter().position(|row| row.scope == it.scope && row.key == it.key.as_str());
        it.answer.is_some() && place.map(|place| claimed.swap_remove(place)).is_some()
    };
    let mut claims = Vec::with_capacity(requests.len());
    for request in requests {
        claims.push(if is_first(request) { Some(Claim::First) } else { find(connection, request).await? });
    }
    Ok(claims)
}

/// What is kept under the key of a request that did not claim it.
async fn find(connection: &mut PgConnection, request: &Request<'_>) -> Result<Option<Claim>, Failure> {
    match kept(connection, request.scope, request.key, request.fingerprint).await? {
        None if request.answer.is_some() => Err(purged()),
        kept => Ok(kept),
    }
}

fn purged() -> Failure {
    Failure::transient("idempotency.purged", "the key was purged at this moment")
}

fn status_number(status: StatusCode) -> i16 {
    i16::try_from(status.as_u16()).unwrap_or(i16::MAX)
}

/// Claims a key in the caller's transaction, which must be at the level *read committed*. Waits while another
/// transaction holds the same one. If the caller rolls back, nothing was claimed.
///
/// # Errors
/// Of the database; transient if the other transaction does not end in time.
pub async fn begin(
    connection: &mut PgConnection,
    scope: &str,
    key: &Key,
    fingerprint: &[u8; 32],
) -> Result<Claim, Failure> {
    let inserted = sqlx::query!(
        "insert into idempotency_keys (scope, key, fingerprint, status, body) values ($1, $2, $3, $4, 'null')
         on conflict do nothing",
        scope,
        key.as_str(),
        fingerprint.as_slice(),
        NOT_YET
    )
    .execute(&mut *connection)
    .await?;
    if inserted.rows_affected() == 1 {
        return Ok(Claim::First);
    }
    kept(connection, scope, key, fingerprint).await?.ok_or_else(purged)
}

async fn kept(
    connection: &mut PgConnection,
    scope: &str,
    key: &Key,
    fingerprint: &[u8; 32],
) -> Result<Option<Claim>, Failure> {
    let kept = sqlx::query!(
        "select fingerprint, status, location, body from idempotency_keys where scope = $1 and key = $2",
        scope,
        key.as_str()
    )
    .fetch_optional(connection)
    .await?;
    let Some(kept) = kept else { return Ok(None) };
    if kept.fingerprint != fingerprint {
        return Ok(Some(Claim::Mismatch));
    }
    let status = u16::try_from(kept.status).ok().and_then(|status| StatusCode::from_u16(status).ok());
    let status =
        status.ok_or_else(|| Failure::permanent("idempotency.incomplete", "a key was claimed and never completed"))?;
    Ok(Some(Claim::Repeated(StoredAnswer { status, location: kept.location, body: kept.body })))
}

/// Writes the answer of a key that is [`Claim::First`], in the same transaction.
///
/// # Errors
/// Of the database; permanent if this transaction has not claimed the key.
pub async fn complete(
    connection: &mut PgConnection,
    scope: &str,
    key: &Key,
    answer: &StoredAnswer,
) -> Result<(), Failure> {
    let status = status_number(answer.status);
    let written = sqlx::query!(
        "update idempotency_keys set status = $3, location = $4, body = $5
         where scope = $1 and key = $2 and status = $6",
        scope,
        key.as_str(),
        status,
        answer.location,
        answer.body,
        NOT_YET
    )
    .execute(connection)
    .await?;
    match written.rows_affected() {
        1 => Ok(()),
        _ => Err(Failure::permanent("idempotency.unclaimed", "an answer for a key that was not claimed")),
    }
}

/// The answer to a key that belongs to another request: 422 `request.idempotency_key_reused`.
pub fn reused() -> Problem {
    let detail = "this Idempotency-Key was used for another request";
    Problem::unprocessable("request.idempotency_key_reused", detail)
}

/// Forgets at most `limit` keys that are older than `age`, and tells how many. Rows that somebody holds are left.
///
/// # Errors
/// Of the database.
pub async fn purge(connection: &mut PgConnection, age: Duration, limit: i64) -> Result<u64, Failure> {
    let deleted = sqlx::query!(
        "delete from idempotency_keys where (scope, key) in (
             select scope, key from idempotency_keys where created_at < now() - make_interval(secs => $1)
             limit $2 for update skip locked)",
        age.as_secs_f64(),
        limit
    )
    .execute(connection)
    .await?;
    Ok(deleted.rows_affected())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(keys: &[&[u8]]) -> HeaderMap {
        keys.iter().map(|key| (HEADER, HeaderValue::from_bytes(key).unwrap())).collect()
    }

    #[test]
    fn only_one_short_visible_key_is_taken() {
        let longest = [b'k'; 255];
        for good in [b"4711".as_slice(), b"a-b_c/d+e=", &longest] {
            assert!(Key::from_headers(&headers(&[good])).is_ok());
        }
        let too_long = [b'k'; 256];
        for bad in [b"".as_slice(), b"a b", b"a\tb", "ä".as_bytes(), &too_long] {
            let problem = Key::from_headers(&headers(&[bad])).unwrap_err();
            assert_eq!(problem.code(), "request.idempotency_key_invalid", "{bad:?}");
        }
        assert_eq!(Key::from_headers(&headers(&[])).unwrap_err().code(), "request.idempotency_key_missing");
        assert_eq!(Key::from_headers(&headers(&[b"a", b"b"])).unwrap_err().code(), "request.idempotency_key_invalid");
    }

    #[test]
    fn parts_of_a_request_never_run_into_each_other() {
        assert_ne!(fingerprint("POST", "/a", b"b"), fingerprint("POST", "/ab", b""));
        assert_eq!(fingerprint("POST", "/a", b"b"), fingerprint("POST", "/a", b"b"));
    }
}
