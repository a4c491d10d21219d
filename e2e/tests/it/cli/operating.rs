//! `saga ops` on messages.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::{Place, ended, json};

/// The scenario has parked a message and given it up: it is found, shown, taken up again, parked again, given up again.
pub(super) fn messages_are_found_and_acted_on(place: &Place) -> anyhow::Result<()> {
    let ops = |arguments: &[&str]| place.saga(&[&["ops"], arguments, &["--on", "native"]].concat());
    ended(&place.saga(&["scenario", "poison-message", "--on", "native"])?, 0)?;
    ensure!(ops(&["inbox"])?.text.contains("none"));
    let discarded = json(&ops(&["inbox", "--status", "discarded", "--json"])?)?;
    let id = discarded["services"]["payment"]["rows"][0]["messageId"].as_str().context("a message")?.to_owned();
    let shown = ops(&["show", &id])?;
    ended(&shown, 0)?;
    ensure!(shown.text.contains("message.unreadable") && shown.text.contains("inbox of payment"), "{}", shown.text);
    let because = ["--reason", "trying once more"];
    let act = |verb: &str, more: &[&str]| ops(&[&["message", verb, id.as_str()][..], &because, more].concat());
    let would = act("retry", &["--dry-run"])?;
    ended(&would, 0)?;
    ensure!(would.text.contains("would concern one message"), "{}", would.text);
    ended(&act("retry", &[])?, 0)?;
    let deadline = Instant::now() + Duration::from_secs(30);
    while ops(&["inbox", "--status", "parked"])?.text.contains("none") {
        ensure!(Instant::now() < deadline, "it is not parked again");
    }
    let code = ["--service", "payment", "--status", "parked", "--code", "message.unreadable"];
    ended(&ops(&[&["message", "discard"][..], &code, &because].concat())?, 0)?;
    let twice = act("discard", &[])?;
    ended(&twice, 0)?;
    ensure!(twice.text.contains("nothing to do") && twice.text.contains("is discarded"), "{}", twice.text);
    ended(&ops(&["message", "discard", "--reason", "everything"])?, 2)?;
    ended(&ops(&["show", "nobody"])?, 1)?;
    let order = ops(&["message", "retry", "mine", "--reason", "an order's id"])?;
    ended(&order, 1)?;
    ensure!(order.errors.contains("is no message but an order"), "{}", order.errors);
    let replayed = ops(&["replay", "--order", "mine", "--reason", "hear it again", "--json"])?;
    ended(&replayed, 0)?;
    ensure!(json(&replayed)?["changed"].as_array().is_some_and(|all| all.len() >= 9), "{}", replayed.text);
    let sagas = ops(&["sagas", "--state", "settled"])?;
    ended(&sagas, 0)?;
    ensure!(sagas.text.contains("stuck"), "{}", sagas.text);
    ended(&ops(&["cancel", "mine", "--reason", "too late"])?, 1)
}
