//! The switches: faults for a share of all requests, while everything runs. For operators only, with their token.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, put};
use chassis::{Json, Path, Problem};
use garde::Validate;
use serde::{Deserialize, Serialize};

use super::Api;
use crate::store::switches;
use crate::switch::{Met, SWITCHES};

/// The longest delay: a minute.
const LONGEST_DELAY_MS: i32 = 60_000;

/// How a switch works.
#[derive(Debug, Deserialize, Validate)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Setting {
    /// The share of requests that it strikes, 0 to 1; all if not said.
    #[garde(range(min = 0.0, max = 1.0))]
    #[serde(default = "always")]
    rate: f64,
    /// The same seed strikes the same requests; 1 if not said.
    #[garde(skip)]
    #[serde(default = "first_seed")]
    seed: i64,
    /// How slow, for the slow ones.
    #[garde(range(min = 0, max = LONGEST_DELAY_MS))]
    #[serde(default)]
    delay_ms: i32,
}

fn always() -> f64 {
    1.0
}

fn first_seed() -> i64 {
    1
}

/// A switch that is on.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SwitchBody {
    name: String,
    rate: f64,
    seed: i64,
    delay_ms: i32,
    /// Requests that have met it.
    met: i64,
}

#[derive(Debug, Serialize)]
struct SwitchesBody {
    switches: Vec<SwitchBody>,
    /// All that can be switched on.
    names: Vec<&'static str>,
}

pub(super) fn verbs() -> Router<Api> {
    Router::new().route("/switches", get(list)).route("/switches/{name}", put(set).delete(remove))
}

/// What is switched on.
async fn list(State(api): State<Api>) -> Result<Json<SwitchesBody>, Problem> {
    let all = switches::list(&mut *api.desk.pool.acquire().await?).await?;
    let switches = all.into_iter().map(SwitchBody::from).collect();
    Ok(Json(SwitchesBody { switches, names: SWITCHES.iter().map(|(name, ..)| *name).collect() }))
}

/// Switch on. What was counted begins anew.
async fn set(
    State(api): State<Api>,
    Path(name): Path<String>,
    Json(setting): Json<Setting>,
) -> Result<Json<SwitchBody>, Problem> {
    let name = known(&name)?;
    let Setting { rate, seed, delay_ms } = setting;
    let switch = switches::set(&mut *api.desk.pool.acquire().await?, name, rate, seed, delay_ms).await?;
    tracing::info!(switch.name = name, switch.rate = rate, "switched on: {name} for {rate} of all requests");
    Ok(Json(switch.into()))
}

/// Switch off.
async fn remove(State(api): State<Api>, Path(name): Path<String>) -> Result<StatusCode, Problem> {
    let name = known(&name)?;
    switches::remove(&mut *api.desk.pool.acquire().await?, name).await?;
    tracing::info!(switch.name = name, "switched off: {name}");
    Ok(StatusCode::NO_CONTENT)
}

fn known(name: &str) -> Result<&'static str, Problem> {
    let found = SWITCHES.iter().find(|(known, ..)| *known == name).map(|(known, ..)| *known);
    found.ok_or_else(|| Problem::not_found("switch.unknown", "there is no such switch"))
}

impl From<Met> for SwitchBody {
    fn from(switch: Met) -> SwitchBody {
        let Met { name, rate, seed, delay_ms, number } = switch;
        SwitchBody { name, rate, seed, delay_ms, met: number }
    }
}
