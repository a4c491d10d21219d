//! What is seen, as short texts.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::stack::client::Answer;

/// Between what was expected and how much it was exactly.
pub(super) const EXACTLY: &str = ": ";

/// The same texts together, with their number.
pub(super) fn tally(texts: impl Iterator<Item = String>) -> String {
    let mut counted: BTreeMap<String, usize> = BTreeMap::new();
    for text in texts {
        *counted.entry(text).or_default() += 1;
    }
    let all: usize = counted.values().sum();
    let mut counted: Vec<(String, usize)> = counted.into_iter().collect();
    counted.sort_by_key(|(_, number)| *number);
    let one = |(text, number): (String, usize)| if all == 1 { text } else { format!("{number} {text}") };
    let texts: Vec<String> = counted.into_iter().map(one).collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join("; ") }
}

pub(super) fn answer(answer: &Answer) -> String {
    let mut text = answer.status.to_string();
    if let Some(code) = answer.body["code"].as_str() {
        let _ = write!(text, " {code}");
    }
    if answer.headers.contains_key("retry-after") {
        text.push_str(" with Retry-After");
    }
    text
}

pub(super) fn order(order: &Value) -> String {
    let status = text(order, "status");
    match order["reason"]["code"].as_str() {
        Some(code) => format!("{status} ({code})"),
        None => status,
    }
}

/// `done`, `failed (payment.no_answer) after 4 attempts, undone`, and so on.
pub(super) fn step(order: &Value, name: &str) -> String {
    let rows = order["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |direction: &str| rows.iter().find(|row| row["step"] == name && row["direction"] == direction);
    let Some(first) = row("do") else { return "not asked".to_owned() };
    let mut told = text(first, "status");
    if let Some(code) = first["error"].as_str() {
        let _ = write!(told, " ({code})");
    }
    if let Some(attempts) = first["handlerAttempts"].as_i64().filter(|attempts| *attempts > 1) {
        let _ = write!(told, " after {attempts} attempts");
    }
    if let Some(undo) = row("undo") {
        told.push_str(match undo["status"].as_str() {
            Some("done") => ", undone",
            Some("asked") => ", undo asked",
            Some("settled") => ", undo settled",
            Some("overdue") => ", undo overdue",
            _ => ", undo failed",
        });
        if let Some(code) = undo["error"].as_str() {
            let _ = write!(told, " ({code})");
        }
        if let Some(asked) = undo["attempts"].as_i64().filter(|asked| *asked > 1) {
            let _ = write!(told, " (asked {asked} times)");
        }
    }
    told
}

/// From the first question to the last answer.
pub(super) fn took(order: &Value) -> String {
    let rows = order["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let time = |field: &str| rows.iter().filter_map(|row| at(row, field)).collect::<Vec<_>>();
    let (asked, answered) = (time("askedAt").into_iter().min(), time("answeredAt").into_iter().max());
    let Some(took) = answered.zip(asked).map(|(answered, asked)| answered - asked) else {
        return "not ended".to_owned();
    };
    let class = match took.whole_seconds() {
        ..1 => "less than 1 s",
        1 => "1 s or longer",
        2.. => "2 s or longer",
    };
    format!("{class}{EXACTLY}{:.1} s", took.as_seconds_f64())
}

fn at(row: &Value, field: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(row[field].as_str()?, &Rfc3339).ok()
}

/// The steps whose undo was answered, in that order.
pub(super) fn undone(order: &Value) -> String {
    let rows = order["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let undone = rows.iter().filter(|row| row["direction"] == "undo" && row["status"] == "done");
    let mut undone: Vec<(OffsetDateTime, String)> =
        undone.filter_map(|row| at(row, "answeredAt").map(|at| (at, text(row, "step")))).collect();
    undone.sort();
    let steps: Vec<String> = undone.into_iter().map(|(_, step)| step).collect();
    if steps.is_empty() { "nothing".to_owned() } else { steps.join(", ") }
}

pub(super) fn ignored(order: &Value) -> String {
    let rows = order["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let told: Vec<String> = rows
        .iter()
        .filter(|row| row["ignored"].is_object())
        .map(|row| {
            let ignored = &row["ignored"];
            let (answer, kind) = (text(ignored, "answer"), text(ignored, "kind"));
            match ignored["count"].as_i64() {
                Some(1) | None => format!("{answer} ({kind})"),
                Some(count) => format!("{answer} ({kind}, {count} times)"),
            }
        })
        .collect();
    if told.is_empty() { "none".to_owned() } else { told.join(", ") }
}

fn entries(ledgers: &[Value]) -> impl Iterator<Item = &Value> {
    ledgers.iter().filter_map(|ledger| ledger["entries"].as_array()).flatten()
}

pub(super) fn money(ledgers: &[Value]) -> String {
    // Seen from the shop: what is taken is a plus.
    let sum = |effect: &str| -> i64 {
        let lines = entries(ledgers).filter(|line| line["account"] == "shop" && line["effect"] == effect);
        lines.filter_map(|line| line["amount"].as_i64()).sum()
    };
    let (taken, given_back) = (sum("capture"), -sum("refund"));
    let mut told = match (taken, given_back) {
        (0, 0) => "nothing taken".to_owned(),
        (taken, 0) => format!("{} taken", amount(taken)),
        (taken, back) => format!("{} taken, {} given back", amount(taken), amount(back)),
    };
    told.push_str(&to_come(ledgers, "provider"));
    told
}

pub(super) fn parcels(ledgers: &[Value]) -> String {
    let count = |effect: &str| entries(ledgers).filter(|line| line["effect"] == effect).count();
    let mut told = match (count("ship"), count("recall")) {
        (0, 0) => "none".to_owned(),
        (sent, 0) => format!("{sent} sent"),
        (sent, back) => format!("{sent} sent, {back} called back"),
    };
    told.push_str(&to_come(ledgers, "carrier"));
    told
}

/// Requests that timed out and may still take effect.
fn to_come(ledgers: &[Value], party: &str) -> String {
    match ledgers.iter().filter_map(|ledger| ledger["pending"][party].as_i64()).sum() {
        0 => String::new(),
        pending => format!(", {pending} still pending"),
    }
}

fn amount(minor: i64) -> String {
    format!("{}.{:02}", minor / 100, minor % 100)
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{money, order, step, tally, undone};

    #[test]
    fn equal_texts_are_counted_and_a_single_one_is_not() {
        let texts = |list: &[&str]| tally(list.iter().map(|text| (*text).to_owned()));
        assert_eq!(texts(&["completed"]), "completed");
        assert_eq!(texts(&["b", "a", "b"]), "1 a; 2 b");
        assert_eq!(texts(&[]), "none");
    }

    #[test]
    fn a_step_tells_attempts_reason_and_undo() {
        let seen = json!({"status": "cancelled", "reason": {"code": "step_failed"}, "steps": [
            {"step": "payment", "direction": "do", "status": "failed", "error": "payment.no_answer", "handlerAttempts": 4},
            {"step": "payment", "direction": "undo", "status": "done", "attempts": 2},
        ]});
        assert_eq!(order(&seen), "cancelled (step_failed)");
        assert_eq!(step(&seen, "payment"), "failed (payment.no_answer) after 4 attempts, undone (asked 2 times)");
        assert_eq!(step(&seen, "shipping"), "not asked");
    }

    #[test]
    fn what_was_undone_is_told_in_the_order_of_the_answers_however_they_are_written() {
        let row = |step: &str, at: &str| json!({"step": step, "direction": "undo", "status": "done", "answeredAt": at});
        // A fraction may be as long as it likes: text alone does not sort.
        let rows = [row("payment", "2026-01-01T00:00:01.1Z"), row("shipping", "2026-01-01T00:00:01.09Z")];
        assert_eq!(undone(&json!({ "steps": rows })), "shipping, payment");
        assert_eq!(undone(&json!({"steps": []})), "nothing");
    }

    #[test]
    fn money_that_was_taken_twice_is_seen() {
        let line = |effect: &str, amount: i64| json!({"account": "shop", "effect": effect, "amount": amount});
        let ledger = json!({"entries": [line("capture", 7900), line("capture", 7900), line("refund", -7900)],
                            "pending": {"provider": 1, "carrier": 0}});
        assert_eq!(money(&[ledger]), "158.00 taken, 79.00 given back, 1 still pending");
    }
}
