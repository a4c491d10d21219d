//! The switches: faults for a share of all requests, while everything runs.

use axum::extract::State;
use axum::http::StatusCode;
use chassis::{Json, Path, Problem};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use crate::store::switches;
use crate::switch::{Met, SWITCHES};

/// The longest delay: a minute.
const LONGEST_DELAY_MS: i32 = 60_000;

/// How a switch works.
#[derive(Debug, Deserialize, Validate, ToSchema)]
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
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct SwitchBody {
    name: String,
    rate: f64,
    seed: i64,
    delay_ms: i32,
    /// Requests that have met it.
    met: i64,
}

#[derive(Debug, Serialize, ToSchema)]
struct SwitchesBody {
    switches: Vec<SwitchBody>,
    /// All that can be switched on.
    names: Vec<&'static str>,
}

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(set, remove))
}

/// What is switched on.
#[utoipa::path(get, path = "/switches", responses((status = 200, body = SwitchesBody)))]
async fn list(State(api): State<Api>) -> Result<Json<SwitchesBody>, Problem> {
    let all = switches::list(&mut *api.desk.pool.acquire().await?).await?;
    let switches = all.into_iter().map(SwitchBody::from).collect();
    Ok(Json(SwitchesBody { switches, names: SWITCHES.iter().map(|(name, ..)| *name).collect() }))
}

/// Switch on. What was counted begins anew.
#[utoipa::path(
    put, path = "/switches/{name}", params(("name" = String, Path)), request_body = Setting,
    responses((status = 200, body = SwitchBody), (status = 404))
)]
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
#[utoipa::path(
    delete, path = "/switches/{name}", params(("name" = String, Path)),
    responses((status = 204), (status = 404))
)]
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
