//! `saga switch`: faults of the third parties, for a share of all requests, while everything runs.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use e2e::Shop;
use serde_json::Value;

use super::show::{QUIET, TITLE, columns, show, show_json, styled};
use super::{Exit, On, nearest};
use crate::cli::Usage;

/// Switches a fault of the third parties on or off; without a name, shows them all.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cargo saga switch                              all switches
  cargo saga switch carrier_unavailable 0.3      the carrier refuses three requests of ten with 503
  cargo saga switch provider_slow --delay-ms 800 every answer of the provider comes 0.8 s later
  cargo saga switch carrier_unavailable off
  cargo saga switch all off")]
pub(crate) struct Arguments {
    /// Which one, or `all`.
    name: Option<String>,
    /// The share of requests that it strikes, 0 to 1, or `off`.
    #[arg(default_value = "1", value_parser = rate)]
    rate: Rate,
    /// The same seed strikes the same requests.
    #[arg(long, default_value_t = 1)]
    seed: i64,
    /// How slow, for the slow ones, in milliseconds.
    #[arg(long, default_value_t = 500)]
    delay_ms: u32,
    #[command(flatten)]
    on: On,
}

#[derive(Clone, Copy)]
enum Rate {
    Off,
    Share(f64),
}

fn rate(text: &str) -> Result<Rate, String> {
    match text.parse() {
        _ if text == "off" => Ok(Rate::Off),
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(Rate::Share(share)),
        _ => Err("a share from 0 to 1, or `off`".to_owned()),
    }
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let shop = Shop::find(arguments.on.on).await?;
    match (arguments.name.as_deref(), arguments.rate) {
        (None, _) => {}
        (Some("all"), Rate::Off) => {
            for name in names(&list(&shop).await?) {
                shop.switch_off(&name).await?;
            }
        }
        (Some("all"), Rate::Share(_)) => bail!(Usage("all of them at once can only be switched off".to_owned())),
        (Some(name), Rate::Off) => shop.switch_off(known(&shop, name).await?).await?,
        (Some(name), Rate::Share(rate)) => {
            shop.switch_on(known(&shop, name).await?, rate, arguments.delay_ms, arguments.seed).await?;
        }
    }
    let all = list(&shop).await?;
    if arguments.on.json {
        show_json(&all)?;
    } else {
        tell(&all);
    }
    Ok(Exit::Good.into())
}

async fn list(shop: &Shop) -> anyhow::Result<Value> {
    shop.switches().await
}

fn names(all: &Value) -> Vec<String> {
    let names = all["names"].as_array().map(Vec::as_slice).unwrap_or_default();
    names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

async fn known<'a>(shop: &Shop, name: &'a str) -> anyhow::Result<&'a str> {
    let names = names(&list(shop).await?);
    if !names.iter().any(|known| known == name) {
        let nearest = nearest(name, names.iter().map(String::as_str));
        bail!(Usage(format!("there is no switch {name}{nearest}: there are {}", names.join(", "))));
    }
    Ok(name)
}

fn tell(all: &Value) {
    let on = all["switches"].as_array().map(Vec::as_slice).unwrap_or_default();
    columns(names(all).into_iter().map(|name| {
        let found = on.iter().find(|switch| switch["name"] == name);
        let state = found.map_or_else(
            || styled(QUIET, "off"),
            |switch| {
                styled(
                    TITLE,
                    format!("on for {:.0} % of requests", switch["rate"].as_f64().unwrap_or_default() * 100.0),
                )
            },
        );
        let number = |switch: &Value, field: &str| switch[field].as_i64().unwrap_or_default();
        let detail = found.map(|switch| {
            let delay = match number(switch, "delayMs") {
                delay if delay > 0 && name.ends_with("_slow") => format!(", {delay} ms slower"),
                _ => String::new(),
            };
            format!("{} requests have met it, seed {}{delay}", number(switch, "met"), number(switch, "seed"))
        });
        [name, state, detail.unwrap_or_default()]
    }));
    if on.is_empty() {
        show(styled(QUIET, " nothing is switched on"));
    }
}
