//! `saga ops inbox`, `outbox` and `show`.

use anyhow::bail;
use clap::Args;
use e2e::Shop;
use futures::future::join_all;
use serde_json::{Map, Value, json};

use super::super::show::{QUIET, TITLE, columns, show as say, show_json, styled};
use super::super::{Several, resolve};
use super::{Exit, On, Owner, age, clock, fetch, text};

/// What both lists take.
#[derive(Args)]
struct Which {
    /// Only those of this service.
    #[arg(long)]
    service: Option<Owner>,
    /// Only those of this type: `CapturePayment`, `StockReserved`, ...
    #[arg(long = "type", value_name = "TYPE")]
    message_type: Option<String>,
    /// Only those with this correlation id.
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Only those that are older than this: 90s, 5m, 2h.
    #[arg(long, value_name = "AGE", value_parser = age)]
    older_than: Option<std::time::Duration>,
    /// So many of each service.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    limit: u16,
    /// Go on after this number; of one service.
    #[arg(long, value_name = "NUMBER", requires = "service")]
    after: Option<i64>,
    #[command(flatten)]
    on: On,
}

#[derive(Args)]
pub(super) struct Inbox {
    /// Only those that stand so; all but done and discarded if not said.
    #[arg(long, value_parser = ["waiting", "retrying", "parked", "skipped", "discarded", "done"])]
    status: Option<String>,
    /// Only those whose last failure has this code.
    #[arg(long)]
    code: Option<String>,
    #[command(flatten)]
    which: Which,
}

#[derive(Args)]
pub(super) struct Outbox {
    /// Only what the broker has refused, and what waits behind it.
    #[arg(long)]
    put_off: bool,
    #[command(flatten)]
    which: Which,
}

#[derive(Args)]
pub(super) struct Show {
    /// The message's id: `cargo saga timeline`, `ops inbox` and `ops outbox` show it.
    id: String,
    #[command(flatten)]
    on: On,
}

pub(super) async fn inbox(list: Inbox) -> anyhow::Result<Exit> {
    let mut query = list.which.query();
    query.extend(list.status.map(|status| ("status", status)));
    query.extend(list.code.map(|code| ("errorCode", code)));
    let found = pages(&list.which, "/ops/inbox", &query).await?;
    tell(
        &list.which,
        &found,
        ["kept by", "since", "message", "type", "status", "attempts", "next", "why", "correlation id"],
        |_, row| {
            let status = if row["isRunning"] == true { "running".to_owned() } else { text(&row["status"]) };
            let held = row["heldBy"].as_str().map(|id| format!("behind {id}"));
            [
                text(&row["consumer"]),
                clock(&row["receivedAt"]),
                text(&row["messageId"]),
                text(&row["type"]),
                status,
                text(&row["attempts"]),
                clock(&row["nextAttemptAt"]),
                held.unwrap_or_else(|| text(&row["errorCode"])),
                text(&row["correlationId"]),
            ]
        },
        "seq",
    )
}

pub(super) async fn outbox(list: Outbox) -> anyhow::Result<Exit> {
    let mut query = list.which.query();
    query.extend(list.put_off.then(|| ("putOff", "true".to_owned())));
    let found = pages(&list.which, "/ops/outbox", &query).await?;
    tell(
        &list.which,
        &found,
        ["outbox of", "since", "message", "type", "to", "refused", "next", "why", "correlation id"],
        |owner, row| {
            [
                owner.service().name().to_owned(),
                clock(&row["createdAt"]),
                text(&row["messageId"]),
                text(&row["type"]),
                text(&row["routingKey"]),
                text(&row["attempts"]),
                clock(&row["nextAttemptAt"]),
                text(&row["lastError"]),
                text(&row["correlationId"]),
            ]
        },
        "id",
    )
}

impl Which {
    fn query(&self) -> Vec<(&'static str, String)> {
        let mut query = vec![("limit", self.limit.to_string())];
        query.extend(self.message_type.clone().map(|name| ("type", name)));
        query.extend(self.correlation_id.clone().map(|id| ("correlationId", id)));
        query.extend(self.older_than.map(|age| ("olderThan", age.as_secs().to_string())));
        query.extend(self.after.map(|after| ("after", after.to_string())));
        query
    }
}

/// The page of each service, or why there is none.
type Pages = Vec<(Owner, anyhow::Result<Value>)>;

async fn pages(which: &Which, path: &str, query: &[(&str, String)]) -> anyhow::Result<Pages> {
    let shop = Shop::find(which.on.on).await?;
    let asking = Owner::or_all(which.service).into_iter().map(async |owner| {
        let found = fetch(&shop, owner.service(), path, query).await;
        (owner, found)
    });
    Ok(join_all(asking).await)
}

fn tell<const N: usize>(
    which: &Which,
    pages: &Pages,
    title: [&str; N],
    line: impl Fn(Owner, &Value) -> [String; N],
    number: &str,
) -> anyhow::Result<Exit> {
    let failed = pages.iter().filter_map(|(owner, page)| Some((*owner, page.as_ref().err()?)));
    let missing: Vec<String> = failed.map(|(_, error)| error.to_string()).collect();
    let found = pages.iter().filter_map(|(owner, page)| Some((*owner, page.as_ref().ok()?)));
    if which.on.json {
        let services: Map<String, Value> =
            found.map(|(owner, page)| (owner.service().name().to_owned(), page.clone())).collect();
        show_json(&json!({"services": services, "missing": missing}))?;
    } else {
        let mut lines = Vec::new();
        let mut more = Vec::new();
        for (owner, page) in found {
            let rows = page["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
            lines.extend(rows.iter().map(|row| line(owner, row)));
            if page["next"].is_number()
                && let Some(last) = rows.last()
            {
                more.push(format!(
                    " there may be more: add `--service {} --after {}`",
                    owner.service().name(),
                    last[number]
                ));
            }
        }
        if lines.is_empty() {
            say(" none");
        } else {
            columns([title.map(|name| styled(QUIET, name))].into_iter().chain(lines));
        }
        for line in more {
            say(styled(QUIET, line));
        }
    }
    if missing.is_empty() {
        return Ok(Exit::Good);
    }
    bail!("not all services have answered: {}", missing.join("; "))
}

pub(super) async fn show(arguments: Show) -> anyhow::Result<Exit> {
    let shop = Shop::find(arguments.on.on).await?;
    let found = places(&shop, &arguments.id).await?;
    if arguments.on.json {
        show_json(&found)?;
        return Ok(Exit::Good);
    }
    for place in &found {
        say(styled(TITLE, format!(" {} of {}", text(&place["table"]), text(&place["service"]))));
        let fields = place["row"].as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        columns(fields.map(|(name, value)| {
            let value =
                if value.is_object() { serde_json::to_string_pretty(value).unwrap_or_default() } else { text(value) };
            [name.clone(), value]
        }));
    }
    Ok(Exit::Good)
}

/// Every row that some service has of a message.
pub(super) async fn places(shop: &Shop, id: &str) -> anyhow::Result<Vec<Value>> {
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte));
    let asking = Owner::ALL.map(async |owner| {
        let answer = shop.client(owner.service())?.ops_get(&format!("/ops/messages/{id}")).await?;
        let rows = answer.body.as_array().cloned().unwrap_or_default();
        let named = rows.into_iter().map(|mut row| {
            row["service"] = owner.service().name().into();
            row
        });
        anyhow::Ok(named.collect::<Vec<_>>())
    });
    let asked = if is_id { join_all(asking).await } else { Vec::new() };
    let silent = asked.iter().any(Result::is_err);
    let found: Vec<Value> = asked.into_iter().flatten().flatten().collect();
    if found.is_empty() {
        if is_id && let Ok(meant) = resolve(shop, id, Several::Newest).await {
            bail!("{id} is no message but an order: `cargo saga timeline {}` shows its messages", meant.order_id);
        }
        let hint = if silent { "; not all services have answered" } else { "" };
        bail!("no service has a message {id}: it is purged, or still in a queue, or never was{hint}");
    }
    Ok(found)
}
