//! `saga drill`: a failure to find in the logs, and a judge of what was found.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use e2e::Shop;
use e2e::drill::{Answers, Drill, ENDS, Judged, Question, STEPS, Sealed, run as fail, undone};
use e2e::servers::state_directory;
use serde_json::json;

use super::scenario::turn;
use super::show::{BAD, GOOD, QUIET, TITLE, columns, show, show_json, styled};
use super::{Exit, On};
use crate::cli::say::{patiently, say};
use crate::cli::{Usage, until_interrupted};

/// Lets something fail and hands over nothing but the logs, for you to find what it was.
///
/// Places a handful of orders on the running shop. Exactly one of them fails; others may stumble and are shipped all
/// the same. What the services write meanwhile goes into one file, and four questions are asked about it. Faults are
/// those of single orders: nothing is switched on, nobody else's orders are struck, and an order that waits for a
/// person in the end is settled when the log is written. docs/logs.md, "The drill", shows the jq lines that find the
/// answers.
///
/// `--check` judges answers, all or some, and needs no shop. Ends with 0 if all are right, with 4 if not.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cargo saga drill                          another failure each time
  cargo saga drill --seed 4711              the same failure again, under other ids
  cargo saga drill --check FILE --correlation-id 3fa9c01b --step shipping --attempt 4 \\
                   --undone shipping,inventory,payment --end cancelled
  cargo saga drill --check FILE --undone nothing --end needs_attention")]
pub(crate) struct Arguments {
    /// Which failure, among which orders; without it, a random one.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Judge answers about the log of a drill.
    #[arg(long, value_name = "FILE", requires = "Given", conflicts_with_all = ["seed", "on"])]
    check: Option<PathBuf>,
    #[command(flatten)]
    given: Given,
    #[command(flatten)]
    on: On,
}

/// Answers that are given.
#[derive(Args)]
struct Given {
    /// Which correlation id failed.
    #[arg(long, value_name = "ID", requires = "check")]
    correlation_id: Option<String>,
    /// At which step.
    #[arg(long, requires = "check", value_parser = STEPS)]
    step: Option<String>,
    /// At which attempt at this step, the first being 1.
    #[arg(long, value_name = "N", requires = "check", value_parser = clap::value_parser!(u32).range(1..))]
    attempt: Option<u32>,
    /// Which steps were undone, several with commas, or `nothing`.
    #[arg(long, value_name = "STEPS", requires = "check", value_parser = undone)]
    undone: Option<String>,
    /// How the undo ended: done, or waiting for a person.
    #[arg(long, requires = "check", value_parser = ENDS)]
    end: Option<String>,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    if let Some(log) = arguments.check {
        return check(&log, arguments.given, arguments.on.json).map(ExitCode::from);
    }
    let shop = Shop::find(arguments.on.on).await?;
    let directory = state_directory("drills")?;
    let seed = arguments.seed.unwrap_or_else(|| rand::random::<u32>().into());
    let drilling = until_interrupted(async {
        let _turn = turn().await?;
        say("places some orders and waits for their end, half a minute at most");
        // How long it took would tell something.
        let drill = patiently("all orders have ended", fail(&shop, seed, &directory)).await?;
        if arguments.on.json {
            tell_json(&drill)?
        } else {
            tell(&drill)
        }
        Ok(Exit::Good.into())
    });
    let code = drilling.await?;
    if code != Exit::Good.into() {
        say("what was ordered goes on by itself; one order may wait for a person in the end: `cargo saga status`");
    }
    Ok(code)
}

/// The command that judges, for the answers to be filled in.
fn command(log: &Path) -> [String; 2] {
    let log = log.display().to_string();
    let log = if log.contains(char::is_whitespace) { format!("'{log}'") } else { log };
    let answers = "--correlation-id ID --step STEP --attempt N --undone STEPS --end END";
    [format!("cargo saga drill --check {log}"), answers.to_owned()]
}

fn tell(drill: &Drill) {
    let title = format!("One of {} orders has failed. All that is known is what the services wrote:", drill.orders);
    show(styled(TITLE, title));
    show(format!("\n  {}\n", drill.log.display()));
    columns(Question::ALL.iter().enumerate().map(|(index, question)| {
        // The last two are one.
        let number = if *question == Question::End { String::new() } else { (index + 1).to_string() };
        [number, question.text().to_owned()]
    }));
    let [check, answers] = command(&drill.log);
    show(format!("\n {} (several steps with commas, or nothing)\n", styled(TITLE, "Have your answers judged")));
    show(format!("  {check} \\\n    {answers}\n"));
    columns([
        ["how to find them".to_owned(), "docs/logs.md, \"The drill\"".to_owned()],
        ["the same again, under other ids".to_owned(), format!("cargo saga drill --seed {}", drill.seed)],
    ]);
}

fn tell_json(drill: &Drill) -> anyhow::Result<()> {
    let questions = Question::ALL.map(|question| json!({"question": question, "text": question.text()}));
    let Drill { seed, orders, log } = drill;
    show_json(&json!({
        "seed": seed, "orders": orders, "log": log, "questions": questions, "check": command(log).join(" "),
    }))
}

fn check(log: &Path, given: Given, json: bool) -> anyhow::Result<Exit> {
    let Given { correlation_id, step, attempt, undone, end } = given;
    let answers = [
        (Question::CorrelationId, correlation_id.map(|id| id.trim().to_owned())),
        (Question::Step, step),
        (Question::Attempt, attempt.map(|attempt| attempt.to_string())),
        (Question::Undone, undone),
        (Question::End, end),
    ];
    let answers: Answers = answers.into_iter().filter_map(|(question, answer)| Some((question, answer?))).collect();
    let Some(sealed) = Sealed::find(log)? else {
        let told =
            "is not the log of a drill: `cargo saga drill` names the file, and what belongs to it lies beside it";
        bail!(Usage(format!("{} {told}", log.display())));
    };
    let judged = sealed.judge(&answers);
    let right = judged.iter().filter(|judged| judged.is_right).count();
    if json {
        show_json(&json!({"log": log, "right": right, "of": judged.len(), "answers": judged}))?;
    } else {
        tell_judged(&judged);
        show(format!(" {right} of {} are right", judged.len()));
    }
    Ok(if right == judged.len() { Exit::Good } else { Exit::Otherwise })
}

fn tell_judged(judged: &[Judged]) {
    columns(judged.iter().map(|Judged { question, answer, is_right, hint }| {
        let mark = match answer {
            _ if *is_right => styled(GOOD, "right"),
            Some(_) => styled(BAD, "WRONG"),
            None => styled(QUIET, "open"),
        };
        let hint = hint.map(|hint| format!("look at {hint}")).unwrap_or_default();
        [mark, question.name().to_owned(), answer.clone().unwrap_or_default(), styled(QUIET, hint)]
    }));
}
