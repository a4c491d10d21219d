//! What the services have logged of late: an error or a warning says by its code what it is about.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use time::OffsetDateTime;

use super::{Told, Violation};
use crate::shop::Shop;

/// How far back.
const LATE: Duration = Duration::from_secs(60 * 60);

pub(super) async fn look(shop: &Shop) -> anyhow::Result<Told> {
    let lines = shop.log_lines(OffsetDateTime::now_utc() - LATE).await?;
    let mut codes: BTreeMap<String, u32> = BTreeMap::new();
    let mut violations = Vec::new();
    let is_loud = |level: &serde_json::Value| level == "ERROR" || level == "WARN";
    for line in lines.into_iter().filter(|line| is_loud(&line.fields["level"])) {
        let text = |field: &str| line.fields[field].as_str().map(str::to_owned);
        match (text("errorCode"), text("errorType")) {
            (Some(code), _) => *codes.entry(code).or_default() += 1,
            // Our own lines have a type. A library's says what it met, and we log what became of it by a code; a person's
            // act is told as it is.
            (None, None) => *codes.entry(text("message").unwrap_or_default()).or_default() += 1,
            (None, Some(_)) => violations.push(Violation {
                order: text("orderId"),
                what: "an error or a warning in the log has a code".to_owned(),
                rows: json!({"line": line.fields}),
            }),
        }
    }
    let counted: Vec<String> = codes.iter().map(|(code, count)| format!("{count} {code}")).collect();
    let counted = if counted.is_empty() { "nothing loud".to_owned() } else { counted.join(", ") };
    Ok(Told { violations, note: Some(format!("in the last hour: {counted}")), ..Told::default() })
}
