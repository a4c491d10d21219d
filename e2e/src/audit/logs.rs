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
        match line.fields["errorCode"].as_str() {
            Some(code) => *codes.entry(code.to_owned()).or_default() += 1,
            None if line.fields["status"] == "parked" => *codes.entry("parked".to_owned()).or_default() += 1,
            None => violations.push(Violation {
                order: line.fields["orderId"].as_str().map(str::to_owned),
                what: "an error in the log has a code".to_owned(),
                rows: json!({"line": line.fields}),
            }),
        }
    }
    let counted: Vec<String> = codes.iter().map(|(code, count)| format!("{count} x {code}")).collect();
    let counted = if counted.is_empty() { "no error".to_owned() } else { counted.join(", ") };
    Ok(Told { violations, note: Some(format!("{counted} in the last hour")), ..Told::default() })
}
