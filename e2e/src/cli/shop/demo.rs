//! `saga demo`: the shop, and a tour of what it does when things go wrong.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Args;
use e2e::Shop;
use e2e::scenario::{Report, Runner, find};
use e2e::shop::{NotRunning, Origin};

use super::Exit;
use super::places::places;
use super::scenario::{play, turn};
use super::show::{BAD, GOOD, TITLE, columns, show, styled};
use super::up::{How, keep};
use crate::cli::say::say;
use crate::cli::until_interrupted;

/// Starts the shop and shows it at work: an order that is shipped, one that is out of stock, one whose carrier never
/// answers, and a message that comes twice.
///
/// On a terminal the shop stays up afterwards, for you to go on; Ctrl-C stops it. A shop that runs already, natively
/// or by Docker Compose, is used as it is. Ends with 0 if everything was as expected, with 4 if not.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    how: How,
    /// Stop when the tour has ended, on a terminal too.
    #[arg(long)]
    once: bool,
}

/// In this order.
const TOUR: [&str; 4] = ["happy", "out-of-stock", "shipping-timeout", "duplicate-message"];

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match Shop::find(None).await {
        Ok(shop) => until_interrupted(async { tour(&shop, true).await.map(ExitCode::from) }).await,
        Err(error) if error.is::<NotRunning>() => {
            let stays = std::io::stdin().is_terminal() && !arguments.once;
            keep(&arguments.how, async |native| {
                places(&native.at);
                show("");
                let shop = Shop::find(Some(Origin::Native)).await?;
                let exit = tour(&shop, stays).await?;
                if stays {
                    say("the shop stays up: go on in another terminal; Ctrl-C stops it");
                    std::future::pending::<()>().await;
                }
                Ok(exit.into())
            })
            .await
        }
        Err(error) => Err(error),
    }
}

async fn tour(shop: &Shop, stays: bool) -> anyhow::Result<Exit> {
    let _turn = turn().await?;
    let runner = Runner::new(shop);
    let mut reports = Vec::new();
    for name in TOUR {
        for scenario in find(name)? {
            reports.push(play(&runner, &scenario, false).await?);
        }
    }
    let good = reports.iter().filter(|report| report.is_as_expected()).count();
    let style = if good == reports.len() { GOOD } else { BAD };
    show(styled(style, format!("{good} of {} went as expected", reports.len())));
    show("");
    if stays {
        tell_next(shop, &reports);
    } else {
        show(
            "The shop ends with the tour, and its orders stay: `cargo saga up` starts it again, for the commands above.",
        );
    }
    Ok(if reports.iter().all(Report::is_as_expected) { Exit::Good } else { Exit::Otherwise })
}

fn tell_next(shop: &Shop, reports: &[Report]) {
    let order = reports.iter().rev().find_map(|report| report.orders.last());
    let id = order.map_or("ID", |order| &*order.order_id);
    show(styled(TITLE, "Go on with"));
    let logs = match shop.at.origin {
        Origin::Compose => format!("{} | grep {id}", shop.at.logs),
        Origin::Native | Origin::Test => format!("grep -h {id} {}/*.log", shop.at.logs),
    };
    let row = |command: String, what: &str| [command, what.to_owned()];
    columns([
        row(format!("cargo saga timeline {id}"), "what happened to the last order"),
        row(logs, "what the services said about it"),
        row("cargo saga scenario".to_owned(), "what else can be broken"),
        row("cargo saga order MOUSE --quantity 2".to_owned(), "an order of your own"),
        row("cargo saga switch carrier_unavailable 0.3".to_owned(), "a carrier that refuses three requests of ten"),
    ]);
    match order.and_then(|order| order.trace.as_ref()) {
        Some(trace) => show(format!(" {trace}  the last order in Jaeger")),
        None => show(" There is no Jaeger: name one with JAEGER, and every order shows as one trace."),
    }
    show("");
}
