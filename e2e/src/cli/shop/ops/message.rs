//! `saga ops message`: acts on messages, wherever they wait.

use std::collections::BTreeMap;

use anyhow::bail;
use clap::{Args, Subcommand};
use e2e::Shop;
use serde_json::{Value, json};

use super::super::show::{BAD, GOOD, QUIET, TITLE, columns, show, show_json, styled};
use super::list::places;
use super::{By, Exit, On, Owner, age, post, text};

#[derive(Subcommand)]
pub(super) enum Verb {
    /// Run or publish it now; what was parked, skipped or discarded is taken up again.
    Retry(Act),
    /// Set it aside: later ones of its key go on, and it can be taken up again.
    Skip(Act),
    /// Throw it away: what waits behind it goes on.
    Discard(Act),
}

#[derive(Args)]
#[group(id = "meant", required = true, multiple = true, args = ["id", "status"])]
pub(super) struct Act {
    /// The message's id: `cargo saga timeline`, `ops inbox` and `ops outbox` show it.
    #[arg(conflicts_with_all = ["status", "code", "message_type", "older_than"])]
    id: Option<String>,
    /// The service that has it; needed where several are meant.
    #[arg(long)]
    service: Option<Owner>,
    /// In place of an id: all messages of the service's inbox that stand so.
    #[arg(long, requires = "service", value_parser = ["waiting", "retrying", "parked", "skipped", "discarded"])]
    status: Option<String>,
    /// Of these only those whose last failure has this code.
    #[arg(long, requires = "status")]
    code: Option<String>,
    /// Of these only those of this type.
    #[arg(long = "type", value_name = "TYPE", requires = "status")]
    message_type: Option<String>,
    /// Of these only those that came longer ago than this: 90s, 5m, 2h.
    #[arg(long, value_name = "AGE", value_parser = age, requires = "status")]
    older_than: Option<std::time::Duration>,
    #[command(flatten)]
    by: By,
    #[command(flatten)]
    on: On,
}

pub(super) async fn run(verb: Verb) -> anyhow::Result<Exit> {
    let (name, act) = match verb {
        Verb::Retry(act) => ("retry", act),
        Verb::Skip(act) => ("skip", act),
        Verb::Discard(act) => ("discard", act),
    };
    let shop = Shop::find(act.on.on).await?;
    let (owner, table, which) = match &act.id {
        Some(id) => locate(&shop, id, act.service, name).await?,
        None => {
            let which = json!({
                "status": act.status, "errorCode": act.code, "type": act.message_type,
                "olderThan": act.older_than.map(|age| age.as_secs())
            });
            (act.service.unwrap_or(Owner::Order), "inbox", which)
        }
    };
    let body = json!({"which": which, "act": act.by.body()});
    let outcome = post(&shop, owner.service(), &format!("/ops/{table}/{name}"), &body).await?;
    tell(&outcome, act.on.json, name)
}

/// Where the message waits: in an outbox, or in an inbox that is not done with it.
async fn locate(
    shop: &Shop,
    id: &str,
    service: Option<Owner>,
    verb: &str,
) -> anyhow::Result<(Owner, &'static str, Value)> {
    let found = places(shop, id).await?;
    let of = |place: &Value| Owner::ALL.into_iter().find(|owner| place["service"] == owner.service().name());
    let is_meant = |place: &&Value| service.is_none() || of(place) == service;
    let meant: Vec<&Value> = found.iter().filter(is_meant).collect();
    let waits =
        |place: &&&Value| place["table"] == "outbox" || (place["table"] == "inbox" && place["row"]["status"] != "done");
    let waiting: Vec<&Value> = meant.iter().filter(waits).copied().collect();
    // The service says why nothing can be done with one that is done.
    let chosen = match (waiting.as_slice(), meant.iter().find(|place| place["table"] == "inbox")) {
        ([one], _) => one,
        ([], Some(done)) => done,
        ([], None) => {
            bail!("{id} was published and is in nobody's inbox: `cargo saga ops replay {id}` publishes it again")
        }
        (several, _) => {
            let names: Vec<String> = several.iter().map(|place| text(&place["service"])).collect();
            bail!("{id} waits at {}: name one with --service", names.join(" and "));
        }
    };
    let Some(owner) = of(chosen) else { bail!("{} has no outbox", text(&chosen["service"])) };
    if chosen["table"] == "outbox" {
        if verb == "skip" {
            bail!("{id} is not published yet: a row of the outbox is retried or discarded");
        }
        return Ok((owner, "outbox", json!({"messageId": id})));
    }
    Ok((owner, "inbox", json!({"messageId": id, "consumer": chosen["row"]["consumer"]})))
}

/// Messages that are shown one by one.
const SHOWN: usize = 20;

/// Tells what an act did or would do.
pub(super) fn tell(outcome: &Value, is_json: bool, verb: &str) -> anyhow::Result<Exit> {
    if is_json {
        show_json(outcome)?;
        return Ok(Exit::Good);
    }
    let list = |name: &str| outcome[name].as_array().cloned().unwrap_or_default();
    let (changed, unchanged) = (list("changed"), list("unchanged"));
    let title = match (outcome["dryRun"] == true, changed.len()) {
        (_, 0) => "nothing to do".to_owned(),
        (true, 1) => format!("to {verb} would concern one message:"),
        (true, count) => format!("to {verb} would concern {count} messages:"),
        (false, 1) => format!("{verb}: one message"),
        (false, count) => format!("{verb}: {count} messages"),
    };
    show(styled(TITLE, format!(" {title}")));
    if changed.len() > SHOWN {
        let mut kinds: BTreeMap<(String, String), usize> = BTreeMap::new();
        for one in &changed {
            *kinds.entry((text(&one["type"]), text(&one["place"]))).or_default() += 1;
        }
        columns(kinds.into_iter().map(|((kind, place), count)| [count.to_string(), kind, place]));
        show(styled(QUIET, format!(" the first {SHOWN}; all of them with --json:")));
    }
    columns(changed.iter().take(SHOWN).map(|one| {
        [
            text(&one["messageId"]),
            text(&one["type"]),
            text(&one["place"]),
            styled(QUIET, text(&one["was"])),
            styled(GOOD, text(&one["now"])),
        ]
    }));
    columns(unchanged.iter().take(SHOWN).map(|one| {
        let style = if one["already"] == true { QUIET } else { BAD };
        [text(&one["messageId"]), styled(style, text(&one["why"]))]
    }));
    if outcome["more"] == true {
        show(styled(QUIET, " there are more than one act touches: do it again for the rest"));
    }
    Ok(Exit::Good)
}
