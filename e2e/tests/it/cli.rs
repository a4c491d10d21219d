//! The command line as a person uses it: starts a shop of its own, plays on it, loses its supervisor, and leaves nothing
//! behind.

mod operating;
mod watching;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use e2e::{Servers, State, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const STARTED_WITHIN: Duration = Duration::from_secs(60);
const GONE_WITHIN: Duration = Duration::from_secs(1);

/// A place for one shop, removed with everything in it.
struct Place(PathBuf);

/// What a command said, and how it ended.
struct Said {
    code: Option<i32>,
    text: String,
    errors: String,
}

impl Place {
    fn new() -> anyhow::Result<Place> {
        let base = Servers::of_this_run()?.directory.parent().context("a directory of this run")?.to_owned();
        let place = base.join(format!("cli-{:08x}", rand::random::<u32>()));
        fs::create_dir(&place)?;
        Ok(Place(place))
    }

    fn saga(&self, arguments: &[&str]) -> anyhow::Result<Said> {
        let output = self.command(arguments).output()?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Said { code: output.status.code(), text: text(output.stdout), errors: text(output.stderr) })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_saga"));
        command.args(arguments).env("SAGA_STATE", &self.0).env_remove("JAEGER").stdin(Stdio::null());
        command
    }

    /// Every program that works for this shop: its pid and its command.
    fn programs(&self) -> Vec<String> {
        let mark = format!("SAGA_STATE_DIRECTORY={}", self.0.join("saga-state/up").display());
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        pids.filter_map(|process| process.file_name().to_str()?.parse::<i32>().ok())
            .filter(|pid| {
                let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
            })
            .map(|pid| {
                let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                format!("{pid} {}", command.replace('\0', " "))
            })
            .collect()
    }

    /// Whether nothing runs here any more. Who was killed may need a moment to be gone.
    async fn is_left(&self) -> anyhow::Result<()> {
        eventually(GONE_WITHIN, "nothing is left running", async || {
            let programs = self.programs();
            Ok(if programs.is_empty() { State::Reached(()) } else { State::pending(programs) })
        })
        .await
    }

    /// The program that keeps the shop up.
    fn supervisor(&self) -> anyhow::Result<i32> {
        let lock = self.0.join("saga-state/up/lock");
        let owner = fs::metadata(&lock)?;
        let locks = fs::read_to_string("/proc/locks")?;
        let inode = std::os::unix::fs::MetadataExt::ino(&owner);
        let line = locks.lines().find(|line| line.contains("WRITE") && line.contains(&format!(":{inode} ")));
        let pid = line.and_then(|line| line.split_whitespace().nth(4)).context("nobody has the lock")?;
        Ok(pid.parse()?)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.saga(&["down", "--on", "native"]);
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn json(said: &Said) -> anyhow::Result<Value> {
    serde_json::from_str(&said.text).with_context(|| format!("no JSON: {} {}", said.text, said.errors))
}

fn ended(said: &Said, code: i32) -> anyhow::Result<()> {
    ensure!(said.code == Some(code), "{:?} in place of {code}: {} {}", said.code, said.text, said.errors);
    Ok(())
}

#[tokio::test]
async fn the_command_line_plays_on_a_shop_survives_its_supervisor_and_leaves_nothing() -> anyhow::Result<()> {
    let place = Place::new()?;
    let nothing = place.saga(&["order", "--on", "native", "--json"])?;
    assert!(json(&nothing)?["error"].is_string());
    ended(&nothing, 3)?;
    assert!(nothing.errors.contains("cargo saga up"), "{}", nothing.errors);
    ended(&place.saga(&["frobnicate"])?, 2)?;

    // What is there already, under whatever name, is not ours.
    let others = ["run-2024-results/thesis", "up/cv", "turn", "lock"].map(|name| place.0.join(name));
    for file in &others {
        fs::create_dir_all(file.parent().context("a directory")?)?;
        fs::write(file, "mine")?;
    }
    ended(&place.saga(&["up", "--detach", "--no-build", "--fresh"])?, 0)?;
    for file in &others {
        assert_eq!(fs::read_to_string(file)?, "mine", "{}", file.display());
    }
    let log = fs::metadata(place.0.join("saga-state/up.log"))?;
    assert_eq!(log.permissions().mode() & 0o077, 0, "passwords are told in it");
    let status = place.saga(&["status", "--on", "native", "--json"])?;
    ended(&status, 0)?;
    assert_eq!(json(&status)?["health"].as_array().map(Vec::len), Some(5));
    let again = place.saga(&["up", "--no-build"])?;
    ended(&again, 1)?;
    assert!(again.errors.contains("running already"), "{}", again.errors);

    let shipped = place.saga(&["order", "MOUSE", "--correlation-id", "mine", "--on", "native", "--json"])?;
    ended(&shipped, 0)?;
    assert_eq!(json(&shipped)?[0]["status"], "completed");
    ended(&place.saga(&["cancel", "mine", "--on", "native"])?, 4)?;
    let undone = place.saga(&["order", "UNICORN", "--on", "native"])?;
    ended(&undone, 4)?;
    assert!(undone.text.contains("inventory.out_of_stock") && !undone.text.contains('\u{1b}'), "{}", undone.text);
    let timeline = place.saga(&["timeline", "mine", "--on", "native"])?;
    ended(&timeline, 0)?;
    assert!(timeline.text.contains("CapturePayment") && timeline.text.contains("StockReserved"), "{}", timeline.text);
    let orders = place.saga(&["orders", "--on", "native"])?;
    ended(&orders, 0)?;
    let (newest, oldest) = (orders.text.find("out_of_stock"), orders.text.find("mine"));
    assert!(newest.is_some() && newest < oldest, "{}", orders.text);
    let why = place.saga(&["why", "mine", "--on", "native"])?;
    ended(&why, 0)?;
    assert!(why.text.contains("The order is completed"), "{}", why.text);
    ended(&place.saga(&["why", "nobody", "--on", "native"])?, 1)?;
    ended(&place.saga(&["order", "--payment", "pm_oh", "--on", "native"])?, 2)?;
    ended(
        &place.saga(&[
            "order",
            "--payment",
            "pm_refund_fails",
            "--shipping",
            "rejected",
            "--correlation-id",
            "stuck",
            "--on",
            "native",
        ])?,
        4,
    )?;
    let act = ["stuck", "--step", "payment", "--reason", "paid back by hand", "--on", "native"];
    ended(&place.saga(&[&["ops", "retry"][..], &act].concat())?, 0)?;
    let waits = |status: &str| place.saga(&["orders", "--status", status, "--on", "native"]).map(|orders| orders.text);
    eventually(Duration::from_secs(30), "the refund is refused again", async || {
        let orders = waits("needs_attention")?;
        Ok(if orders.contains("stuck") { State::Reached(()) } else { State::pending(orders) })
    })
    .await?;
    ended(&place.saga(&[&["ops", "settle"][..], &act].concat())?, 0)?;
    assert!(waits("settled")?.contains("stuck"));
    ended(&place.saga(&["scenario", "service-down", "--on", "native"])?, 0)?;
    operating::messages_are_found_and_acted_on(&place)?;
    let audit = place.saga(&["audit", "--on", "native"])?;
    ended(&audit, 0)?;
    assert!(audit.text.contains("3 completed, 2 undone"), "{}", audit.text);
    watching::a_watched_shop_tells_what_begins_and_ends_to_be_violated(&place).await?;
    let drill = place.saga(&["drill", "--on", "native"])?;
    ended(&drill, 0)?;
    let log = drill.text.lines().map(str::trim).find(|line| line.ends_with(".log")).context("where the log is")?;
    for line in fs::read_to_string(log)?.lines().map(serde_json::from_str::<Value>) {
        let line = line?;
        let ids = ["correlationId", "orderId", "sagaId"].iter().filter_map(|field| line[*field].as_str());
        assert!(ids.clone().all(|id| !drill.text.contains(id) && !drill.errors.contains(id)), "{}", drill.text);
    }
    ended(&place.saga(&["switch", "carrier_slow", "0.5", "--on", "native"])?, 0)?;
    ended(&place.saga(&["switch", "nonsense", "--on", "native"])?, 2)?;

    ended(&place.saga(&["kill", "nobody", "--on", "native"])?, 2)?;
    ended(&place.saga(&["freeze", "payment", "--on", "native"])?, 0)?;
    ended(&place.saga(&["kill", "shipping", "--on", "native"])?, 0)?;
    ended(&place.saga(&["kill", "inventory", "--on", "native"])?, 0)?;
    ended(&place.saga(&["start", "inventory", "--on", "native"])?, 0)?;
    let broken = place.saga(&["status", "--on", "native", "--json"])?;
    ended(&broken, 1)?;
    assert_eq!(json(&broken)?["disturbed"], serde_json::json!({"payment": "freeze", "shipping": "kill"}));
    assert_eq!(json(&broken)?["switchedOn"], serde_json::json!(["carrier_slow"]));
    ended(&place.saga(&["mend", "--on", "native"])?, 0)?;
    let whole = place.saga(&["status", "--on", "native", "--json"])?;
    ended(&whole, 0)?;
    assert_eq!(json(&whole)?["disturbed"], serde_json::json!({}));
    ended(&place.saga(&["order", "--on", "native"])?, 0)?;

    // Whoever kept the shop up dies; the next one finds the data, and clears away what still runs.
    kill(Pid::from_raw(place.supervisor()?), Signal::SIGKILL)?;
    ended(&place.saga(&["status", "--on", "native"])?, 3)?;
    ended(&place.saga(&["up", "--detach", "--no-build"])?, 0)?;
    let kept = place.saga(&["timeline", "mine", "--on", "native", "--json"])?;
    assert_eq!(json(&kept)?["order"]["status"], "completed");

    for arguments in [
        &["status"] as &[&str],
        &["audit", "--now"],
        &["order", "--no-wait"],
        &["cancel", "mine"],
        &["orders"],
        &["timeline", "mine"],
        &["why", "mine"],
        &["ops", "settle", "stuck", "--step", "payment", "--reason", "paid back by hand"],
        &["freeze", "sandbox"],
        &["thaw", "sandbox"],
        &["scenario"],
        &["scenario", "happy", "out-of-stock"],
        &["drill", "--seed", "1"],
        &["switch"],
        &["switch", "carrier_slow"],
        &["switch", "carrier_slow", "off"],
        &["mend"],
        &["down"],
    ] {
        let said = place.saga(&[arguments, &["--on", "native", "--json"]].concat())?;
        json(&said).with_context(|| format!("{arguments:?} says one document"))?;
    }
    ended(&place.saga(&["status", "--on", "native"])?, 3)?;
    place.is_left().await?;
    // Answers are judged without a shop.
    ended(&place.saga(&["drill", "--check", log, "--correlation-id", "nothing-of-this-drill"])?, 4)?;

    // What nobody keeps any more is ended all the same.
    let mark = format!("SAGA_STATE_DIRECTORY={}", place.0.join("saga-state/up").display());
    let mut stray = Command::new("env").args([&mark, "sleep", "600"]).spawn()?;
    let down = place.saga(&["down", "--on", "native"])?;
    stray.wait()?;
    ended(&down, 0)?;
    assert!(down.errors.contains("1 program"), "{}", down.errors);
    ended(&place.saga(&["down", "--on", "native"])?, 3)
}

#[tokio::test]
async fn an_interruption_stops_everything_and_spoils_nothing() -> anyhow::Result<()> {
    let place = Place::new()?;
    for moment in [While::AClusterIsMade, While::ItRuns] {
        let output = fs::File::create(place.0.join("output"))?;
        let mut up = place.command(&["up", "--no-build"]).stdout(output.try_clone()?).stderr(output).spawn()?;
        eventually(STARTED_WITHIN, "it is the moment", async || {
            let reached = match moment {
                While::AClusterIsMade => place.0.join("saga-state/up/postgres/PG_VERSION").exists(),
                While::ItRuns => place.0.join("saga-state/up/control.sock").exists(),
            };
            Ok(match up.try_wait()? {
                Some(status) => State::Lost(format!("{status}: {}", fs::read_to_string(place.0.join("output"))?)),
                None if reached => State::Reached(()),
                None => State::pending(place.programs()),
            })
        })
        .await?;
        kill(Pid::from_raw(i32::try_from(up.id())?), Signal::SIGINT)?;
        let status = up.wait()?;
        let said = fs::read_to_string(place.0.join("output"))?;
        assert_eq!(status.code(), Some(130), "{said}");
        place.is_left().await.context(said)?;
    }
    Ok(())
}

enum While {
    AClusterIsMade,
    ItRuns,
}
