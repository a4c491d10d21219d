//! The drill, solved as its learner must: from the log file alone.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::rc::Rc;

use anyhow::{Context as _, ensure};
use e2e::drill::{Answers, Drill, FAILURES, Plan, Question, run};
use e2e::{Settings, Stack, workspace};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::Value;

use crate::scenarios::{giving_up, shop_of};
use crate::shop::{books_balance, switch};

/// Drills at once on one shop.
const AT_ONCE: usize = 5;

#[tokio::test]
async fn every_failure_is_found_from_the_log_alone_and_every_wrong_answer_is_judged_wrong() -> anyhow::Result<()> {
    let stack = Rc::new(Stack::start(giving_up()).await?);
    let shop = shop_of(&stack)?;
    // The first seed of each failure; several at once, so that each log must tell its own orders from those of others.
    let seeds = (0..FAILURES.len()).filter_map(|failure| (0..).find(|seed| Plan::of(*seed).failure == failure));
    let drills = stream::iter(seeds).map(|seed| run(&shop, seed, stack.directory()));
    let drills: Vec<Drill> = drills.buffered(AT_ONCE).try_collect().await?;
    assert_eq!(drills.len(), FAILURES.len());
    let has_jq = Command::new("jq").arg("--version").output().is_ok();
    if !has_jq {
        eprintln!("NOT RUN: this machine has no jq, so the lines of docs/logs.md were not tried");
    }
    let mut seen: Vec<Answers> = Vec::new();
    for drill in &drills {
        let found = solve(&drill.log).with_context(|| format!("seed {}", drill.seed))?;
        if has_jq {
            assert_eq!(by_the_docs(&drill.log)?, found, "docs/logs.md finds what the log says, seed {}", drill.seed);
        }
        is_judged(drill, &found)?;
        seen.push(found);
    }
    let all = |question: Question| seen.iter().map(|answers| &*answers[&question]).collect::<BTreeSet<&str>>();
    assert_eq!(all(Question::CorrelationId).len(), drills.len(), "no two drills share an id");
    assert_eq!(all(Question::Step), ["inventory", "payment", "shipping"].into());
    assert!(all(Question::Attempt).is_superset(&["1", "3", "4"].into()), "{seen:?}");
    let reaches =
        ["nothing", "payment", "inventory", "payment,inventory", "inventory,shipping", "payment,inventory,shipping"];
    assert_eq!(all(Question::Undone), reaches.into());
    assert_eq!(all(Question::End), ["cancelled", "needs_attention"].into());
    // Nobody's work is left.
    let waiting = stack.order().get("/orders?status=needs_attention").await?;
    assert_eq!(waiting.body["orders"].as_array().map(Vec::len), Some(0), "{}", waiting.text);
    assert!(shop.switched_on().await?.is_empty());
    books_balance(&stack).await
}

#[tokio::test]
async fn a_drill_needs_a_shop_that_is_whole() -> anyhow::Result<()> {
    let stack = Rc::new(Stack::start(Settings::default()).await?);
    switch(&stack, "carrier_slow", 0.5).await?;
    let refused = run(&shop_of(&stack)?, 1, stack.directory()).await.unwrap_err().to_string();
    assert!(refused.contains("carrier_slow") && refused.contains("cargo saga mend"), "{refused}");
    let orders = stack.order().get("/orders").await?;
    assert_eq!(orders.body["orders"].as_array().map(Vec::len), Some(0), "{}", orders.text);
    Ok(())
}

#[test]
fn words_that_mean_nothing_are_wrong_usage() -> anyhow::Result<()> {
    let log = env::temp_dir().join("no-drill.log").display().to_string();
    for words in [
        &["--step", "billing"] as &[&str],
        &["--attempt", "0"],
        &["--attempt", "last"],
        &["--undone", "payment,billing"],
        &["--undone", "nothing,payment"],
        &["--undone", ""],
        &["--end", "completed"],
        &["--step", "payment", "--seed", "1"],
        &[],
        // Nothing is wrong with the words, but it is the log of no drill.
        &["--step", "payment"],
    ] {
        let output = saga(&[&["drill", "--check", &log], words].concat())?;
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(saga(&["drill", "--step", "payment"])?.status.code(), Some(2), "answers about no file");
    Ok(())
}

/// Reads the log as the docs say it is to be read. Nobody else is asked.
fn solve(log: &Path) -> anyhow::Result<Answers> {
    let text = fs::read_to_string(log)?;
    let lines = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let is = |line: &Value, field: &str, words: &[&str]| line[field].as_str().is_some_and(|text| words.contains(&text));
    let only = |found: BTreeSet<String>| {
        ensure!(found.len() == 1, "one answer, not {found:?}");
        found.into_iter().next().context("an answer")
    };
    let undone_or_failed = ["compensating", "cancelled", "needs_attention"];
    let failed = lines.iter().filter(|line| is(line, "service", &["order"]) && is(line, "status", &undone_or_failed));
    let id = only(failed.filter_map(|line| line["correlationId"].as_str()).map(str::to_owned).collect())?;
    let of_id: Vec<&Value> = lines.iter().filter(|line| is(line, "correlationId", &[&id])).collect();
    let refusals: Vec<&&Value> = of_id.iter().filter(|line| is(line, "status", &["Rejected", "Failed"])).collect();
    let step = only(refusals.iter().filter_map(|line| line["stepName"].as_str()).map(str::to_owned).collect())?;
    let attempt = only(refusals.iter().filter_map(|line| line["attempt"].as_u64()).map(|n| n.to_string()).collect())?;
    let undone = of_id.iter().filter(|line| is(line, "status", &["Undone"]));
    let undone: BTreeSet<&str> = undone.filter_map(|line| line["stepName"].as_str()).collect();
    let undone = if undone.is_empty() { "nothing".to_owned() } else { Vec::from_iter(undone).join(",") };
    let ends =
        of_id.iter().filter(|line| is(line, "service", &["order"]) && is(line, "status", &undone_or_failed[1..]));
    let end = ends.filter_map(|line| line["status"].as_str()).next_back().context("an end")?;
    Ok(Answers::from([
        (Question::CorrelationId, id),
        (Question::Step, step),
        (Question::Attempt, attempt),
        (Question::Undone, e2e::drill::undone(&undone).map_err(anyhow::Error::msg)?),
        (Question::End, end.to_owned()),
    ]))
}

/// What the lines of docs/logs.md find, as they are written there.
fn by_the_docs(log: &Path) -> anyhow::Result<Answers> {
    let docs = fs::read_to_string(workspace().join("docs/logs.md"))?;
    let section = docs.split("## The drill").nth(1).context("a section about the drill")?;
    let lines = section.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).context("its lines")?;
    let (named, lines) = lines.split_once('\n').context("several lines")?;
    ensure!(named.starts_with("LOG="), "the first line names the file: {named}");
    let output = Command::new("sh").args(["-euc", lines]).env("LOG", log).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let words = String::from_utf8(output.stdout)?;
    let words: Vec<&str> = words.lines().collect();
    ensure!(words.len() == Question::ALL.len(), "a word for each question: {words:?}");
    let answer = |(question, word): (Question, &str)| match question {
        Question::Undone => Ok((question, e2e::drill::undone(word).map_err(anyhow::Error::msg)?)),
        _ => Ok((question, word.to_owned())),
    };
    Question::ALL.into_iter().zip(words).map(answer).collect()
}

/// The answers are right together; one that is changed is wrong, and only that one; one that is left out is open.
fn is_judged(drill: &Drill, found: &Answers) -> anyhow::Result<()> {
    let right = check(drill, found)?;
    ensure!(right.status.code() == Some(0), "seed {}: {found:?}: {}", drill.seed, String::from_utf8(right.stdout)?);
    for question in Question::ALL {
        let truth = &found[&question];
        let lies = match question {
            Question::CorrelationId => vec!["00000000"],
            Question::Step => vec!["payment", "inventory", "shipping"],
            Question::Attempt => vec!["1", "2", "3", "4"],
            Question::Undone => vec!["nothing", "payment", "inventory,shipping", "payment,inventory,shipping"],
            Question::End => vec!["cancelled", "needs_attention"],
        };
        let mut changed: Vec<Answers> = Vec::new();
        for lie in lies.into_iter().filter(|lie| lie != truth) {
            changed.push(
                found.iter().map(|(q, a)| (*q, if *q == question { lie.to_owned() } else { a.clone() })).collect(),
            );
        }
        changed.push(found.iter().filter(|(q, _)| **q != question).map(|(q, a)| (*q, a.clone())).collect());
        for answers in changed {
            let judged = check(drill, &answers)?;
            let text = String::from_utf8(judged.stdout)?;
            ensure!(judged.status.code() == Some(4), "seed {}: {answers:?}: {text}", drill.seed);
            let report: Value = serde_json::from_str(&text)?;
            for said in report["answers"].as_array().context("judged answers")? {
                let is_it = said["question"] == serde_json::to_value(question)?;
                ensure!(said["isRight"] == !is_it && said["hint"].is_string() == is_it, "{question:?}: {said}");
            }
            ensure!(question != Question::CorrelationId || !text.contains(truth), "it gives the answer away: {text}");
        }
    }
    Ok(())
}

fn check(drill: &Drill, answers: &Answers) -> anyhow::Result<Output> {
    let mut words =
        vec!["drill".to_owned(), "--json".to_owned(), "--check".to_owned(), drill.log.display().to_string()];
    words.extend(answers.iter().flat_map(|(question, answer)| [format!("--{}", question.name()), answer.clone()]));
    saga(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn saga(arguments: &[&str]) -> anyhow::Result<Output> {
    Ok(Command::new(env!("CARGO_BIN_EXE_saga")).args(arguments).output()?)
}
