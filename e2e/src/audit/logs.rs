//! What the services have logged of late: an error says by its code what it is about.

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
    for line in lines.into_iter().filter(|line| line.fields["level"] == "ERROR") {
        let text = |field: &str| line.fields[field].as_str().map(str::to_owned);
        match (text("errorCode"), text("errorType")) {
            (Some(code), _) => *codes.entry(code).or_default() += 1,
            // Our own lines have a type. A library's says what it met, and we log what became of it by a code.
            (None, None) => *codes.entry(text("message").unwrap_or_default()).or_default() += 1,
            (None, Some(_)) => violations.push(Violation {
                order: text("orderId"),
                what: "an error in the log has a code".to_owned(),
                rows: json!({"line": line.fields}),
            }),
        }
    }
    let counted: Vec<String> = codes.iter().map(|(code, count)| format!("{count} {code}")).collect();
    let counted = if counted.is_empty() { "no error".to_owned() } else { counted.join(", ") };
    Ok(Told { violations, note: Some(format!("in the last hour: {counted}")), ..Told::default() })
}
