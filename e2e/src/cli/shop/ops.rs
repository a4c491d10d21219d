//! `saga ops`: what a person can do with an order that waits for one.

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use e2e::Shop;
use e2e::shop::problem;
use e2e::stack::Service;
use serde_json::{Value, json};

use super::show::{TITLE, columns, show, show_json, styled};
use super::{Exit, On, Several, resolve};

/// Acts on an order that waits for a person. Every act needs a reason, is written down with who did it, and shows in the
/// timeline; with `--dry-run` it only says what it would do.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Ask a failed or overdue undo again, after its cause is gone.
    Retry(Act),
    /// Accept the effect of a step as it is; the rest is undone, and the order ends as settled.
    Settle(Act),
}

#[derive(Clone, Copy, ValueEnum)]
enum Step {
    Payment,
    Inventory,
    Shipping,
}

#[derive(Args)]
struct Act {
    /// The id of the order, of its saga, of one of its messages, or its correlation id.
    id: String,
    /// The step whose undo waits; `cargo saga why ID` names it.
    #[arg(long)]
    step: Step,
    /// Why, in 3 to 500 characters; kept with the act.
    #[arg(long, value_parser = reason)]
    reason: String,
    /// Who; your login name if not said.
    #[arg(long)]
    actor: Option<String>,
    /// Say what it would do, and do nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    on: On,
}

/// As the service takes it.
fn reason(text: &str) -> Result<String, String> {
    let is_fine = (3..=500).contains(&text.chars().count());
    is_fine.then(|| text.to_owned()).ok_or_else(|| "3 to 500 characters, for those who ask later".to_owned())
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let (verb, act) = match arguments.verb {
        Verb::Retry(act) => ("retry", act),
        Verb::Settle(act) => ("settle", act),
    };
    let shop = Shop::find(act.on.on).await?;
    let meant = resolve(&shop, &act.id, Several::Waiting).await?;
    let actor = act.actor.or_else(|| std::env::var("USER").ok()).unwrap_or_else(|| "operator".to_owned());
    let step = act.step.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let body = json!({"step": step, "reason": act.reason, "actor": actor, "dryRun": act.dry_run});
    let orders = shop.client(Service::Order)?;
    let answer = orders.ops_post(&format!("/ops/sagas/{}/{verb}", meant.saga_id), &body).await?;
    if answer.status != 200 {
        bail!("the order service refuses to {verb}: {}", problem(&answer));
    }
    if act.on.json {
        show_json(&answer.body)?;
    } else {
        tell(&answer.body, verb, &step);
    }
    Ok(Exit::Good.into())
}

fn tell(acted: &Value, verb: &str, step: &str) {
    let text = |field: &str| acted[field].as_str().map(str::to_owned);
    let (dry, already) = (acted["dryRun"] == true, acted["already"] == true);
    let title = match (already, dry) {
        (true, _) => format!("the undo of {step} was settled before: nothing is done again"),
        (_, true) => format!("to {verb} the undo of {step} would do this:"),
        (_, false) if verb == "retry" => format!("the undo of {step} is asked again"),
        (_, false) => format!("the effect of {step} is accepted as it is"),
    };
    show(styled(TITLE, format!(" {title}")));
    let rows = [
        ("order", text("orderId")),
        ("command", text("command")),
        ("event", text("event")),
        ("status", text("status")),
        ("last attempt", text("lastAttempt").filter(|_| !already)),
        ("its code", text("lastCode")),
    ];
    columns(rows.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value?])));
}
