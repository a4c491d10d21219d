//! The questions of a drill, answers to them, and the right ones, sealed: hashed with a salt, in a file beside the log.
//! With three steps to guess from, that keeps nobody out who wants in; it keeps the eye from reading them by accident.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The steps an order can fail at.
pub const STEPS: [&str; 3] = ["payment", "inventory", "shipping"];
/// How an undo can end.
pub const ENDS: [&str; 2] = ["cancelled", "needs_attention"];
/// What was undone where nothing was.
const NOTHING: &str = "nothing";

/// What is asked. The last two are one question for people: how far did the undo get?
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Question {
    CorrelationId,
    Step,
    Attempt,
    Undone,
    End,
}

/// Answers, as they are typed.
pub type Answers = BTreeMap<Question, String>;

impl Question {
    pub const ALL: [Question; 5] =
        [Question::CorrelationId, Question::Step, Question::Attempt, Question::Undone, Question::End];

    /// Its option on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Question::CorrelationId => "correlation-id",
            Question::Step => "step",
            Question::Attempt => "attempt",
            Question::Undone => "undone",
            Question::End => "end",
        }
    }

    /// As it is asked.
    pub fn text(self) -> &'static str {
        match self {
            Question::CorrelationId => "Which correlation id failed?",
            Question::Step => "At which step: payment, inventory or shipping?",
            Question::Attempt => "At which attempt at this step, the first being 1?",
            Question::Undone => "How far did the undo get: which steps were undone, or nothing?",
            Question::End => "And how did it end: cancelled, or needs_attention, so that it waits for a person?",
        }
    }

    /// Which field to look at, for whom is wrong.
    pub fn hint(self) -> &'static str {
        match self {
            Question::CorrelationId => {
                "status on the lines of the order service: who stumbles and goes on is never compensating or cancelled"
            }
            Question::Step => "stepName on the line whose status is Rejected or Failed",
            Question::Attempt => "attempt on the line whose status is Rejected or Failed, not on the order service's",
            Question::Undone => "stepName on each line whose status is Undone",
            Question::End => "the last status that the order service tells of the order",
        }
    }
}

/// The undone steps as one word, whatever their order: `payment,inventory`, or `nothing`.
///
/// # Errors
/// A step that there is not, or nothing and something.
pub fn undone(text: &str) -> Result<String, String> {
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    if words == [NOTHING] {
        return Ok(NOTHING.to_owned());
    }
    if let Some(other) = words.iter().find(|word| !STEPS.contains(word)) {
        return Err(format!("{other:?} is no step: {}, several with commas, or {NOTHING}", STEPS.join(", ")));
    }
    Ok(STEPS.into_iter().filter(|step| words.contains(step)).collect::<Vec<_>>().join(","))
}

/// The right answers, so that nobody reads them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sealed {
    salt: String,
    answers: Answers,
}

/// What an answer is worth.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Judged {
    pub question: Question,
    /// None, if it was not answered.
    pub answer: Option<String>,
    pub is_right: bool,
    /// Where to look, unless it is right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<&'static str>,
}

impl Sealed {
    pub fn new(right: &Answers) -> Sealed {
        let salt = format!("{:016x}", rand::random::<u64>());
        let answers = right.iter().map(|(question, answer)| (*question, hash(&salt, *question, answer))).collect();
        Sealed { salt, answers }
    }

    /// Keeps it beside the log.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep(&self, log: &Path) -> anyhow::Result<()> {
        let path = beside(log);
        fs::write(&path, serde_json::to_vec(self)?).with_context(|| format!("writing {}", path.display()))
    }

    /// What is kept beside this log; `None`, if it is not the log of a drill.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn find(log: &Path) -> anyhow::Result<Option<Sealed>> {
        let path = beside(log);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).with_context(|| path.display().to_string()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }

    /// Judges answers. What is not answered is not right.
    pub fn judge(&self, answers: &Answers) -> Vec<Judged> {
        let judge = |question: Question| {
            let answer = answers.get(&question).cloned();
            let hashed = answer.as_ref().map(|answer| hash(&self.salt, question, answer));
            let is_right = hashed.is_some() && self.answers.get(&question) == hashed.as_ref();
            Judged { question, answer, is_right, hint: (!is_right).then(|| question.hint()) }
        };
        Question::ALL.into_iter().map(judge).collect()
    }
}

fn beside(log: &Path) -> PathBuf {
    log.with_extension("sealed")
}

fn hash(salt: &str, question: Question, answer: &str) -> String {
    hex::encode(Sha256::digest(format!("{salt} {} {answer}", question.name())))
}
