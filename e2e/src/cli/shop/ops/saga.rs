//! `saga ops retry`, `settle`, `cancel` and `sagas`.

use clap::Args;
use e2e::Shop;
use e2e::stack::Service;
use serde_json::Value;
use uuid::Uuid;

use super::super::show::{QUIET, TITLE, columns, show, show_json, styled};
use super::super::{Several, resolve};
use super::{By, Exit, On, Step, age, clock, fetch, post, text};

#[derive(Args)]
pub(super) struct StepAct {
    /// The id of the order, of its saga, of one of its messages, or its correlation id.
    id: String,
    /// The step whose undo waits; `cargo saga why ID` names it.
    #[arg(long)]
    step: Step,
    #[command(flatten)]
    by: By,
    #[command(flatten)]
    on: On,
}

#[derive(Args)]
pub(super) struct CancelAct {
    /// The id of the order, of its saga, of one of its messages, or its correlation id.
    id: String,
    #[command(flatten)]
    by: By,
    #[command(flatten)]
    on: On,
}

#[derive(Args)]
pub(super) struct List {
    /// Only those in this state.
    #[arg(long, value_parser = ["running", "compensating", "needs_attention", "completed", "cancelled", "settled"])]
    state: Option<String>,
    /// Only those that are at this step.
    #[arg(long)]
    step: Option<Step>,
    /// Only those that were placed longer ago than this: 90s, 5m, 2h.
    #[arg(long, value_name = "AGE", value_parser = age)]
    older_than: Option<std::time::Duration>,
    /// Only those with this correlation id.
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Only those that come after this order.
    #[arg(long, value_name = "ORDER")]
    after: Option<Uuid>,
    /// So many.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=100))]
    limit: u8,
    #[command(flatten)]
    on: On,
}

pub(super) async fn on_step(act: StepAct, verb: &str) -> anyhow::Result<Exit> {
    let shop = Shop::find(act.on.on).await?;
    let meant = resolve(&shop, &act.id, Several::Waiting).await?;
    let mut body = act.by.body();
    let step = act.step.name();
    body["step"] = step.into();
    let acted = post(&shop, Service::Order, &format!("/ops/sagas/{}/{verb}", meant.saga_id), &body).await?;
    let done = if verb == "retry" { "is asked again" } else { "is left: its effect is accepted as it is" };
    tell(&acted, &act.on, &format!("the undo of {step}"), verb, done)
}

pub(super) async fn cancel(act: CancelAct) -> anyhow::Result<Exit> {
    let shop = Shop::find(act.on.on).await?;
    let meant = resolve(&shop, &act.id, Several::Refused).await?;
    let path = format!("/ops/sagas/{}/cancel", meant.saga_id);
    let acted = post(&shop, Service::Order, &path, &act.by.body()).await?;
    tell(&acted, &act.on, "the order", "cancel", "is being undone")
}

fn tell(acted: &Value, on: &On, what: &str, verb: &str, done: &str) -> anyhow::Result<Exit> {
    if on.json {
        show_json(acted)?;
        return Ok(Exit::Good);
    }
    let (dry, already) = (acted["dryRun"] == true, acted["already"] == true);
    let title = match (already, dry, verb) {
        (true, _, "settle") => format!("{what} was settled before: nothing is done again"),
        (true, ..) => format!("{what} {done} already: nothing is done again"),
        (_, true, _) => format!("to {verb} {what} would do this:"),
        (_, false, _) => format!("{what} {done}"),
    };
    show(styled(TITLE, format!(" {title}")));
    let rows = [
        ("order", &acted["orderId"]),
        ("command", &acted["command"]),
        ("event", &acted["event"]),
        (if dry { "status then" } else { "status" }, &acted["status"]),
        ("attempt before", if already { &Value::Null } else { &acted["lastAttempt"] }),
        ("its code", if already { &Value::Null } else { &acted["lastCode"] }),
    ];
    columns(rows.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| [name.to_owned(), text(value)]));
    Ok(Exit::Good)
}

pub(super) async fn list(list: List) -> anyhow::Result<Exit> {
    let shop = Shop::find(list.on.on).await?;
    let mut query = vec![("limit", list.limit.to_string())];
    query.extend(list.state.map(|state| ("state", state)));
    query.extend(list.step.map(|step| ("step", step.name().to_owned())));
    query.extend(list.older_than.map(|age| ("olderThan", age.as_secs().to_string())));
    query.extend(list.correlation_id.map(|id| ("correlationId", id)));
    query.extend(list.after.map(|id| ("after", id.to_string())));
    let found = fetch(&shop, Service::Order, "/ops/sagas", &query).await?;
    if list.on.json {
        show_json(&found)?;
        return Ok(Exit::Good);
    }
    let rows = found.as_array().map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() {
        show(" none");
        return Ok(Exit::Good);
    }
    let title = ["placed", "order", "state", "step", "correlation id"].map(|name| styled(QUIET, name));
    columns([title].into_iter().chain(rows.iter().map(|row| {
        [
            clock(&row["createdAt"]),
            text(&row["orderId"]),
            text(&row["state"]),
            text(&row["step"]),
            text(&row["correlationId"]),
        ]
    })));
    if let Some(last) = rows.last().filter(|_| rows.len() == usize::from(list.limit)) {
        show(styled(QUIET, format!(" there may be more: add `--after {}`", text(&last["orderId"]))));
    }
    Ok(Exit::Good)
}
