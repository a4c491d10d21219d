//! What the services have written, wherever it is kept.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::FormatItem;
use time::macros::format_description;

use super::{Origin, Shop, compose};
use crate::stack::Service;

/// As the services write it, so that texts compare as the times do.
const TIMESTAMP: &[FormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
/// What every line begins with; its timestamp follows.
const BEGIN: &str = r#"{"timestamp":""#;

/// A line of a log.
#[derive(Clone, Debug)]
pub struct Line {
    /// As it was written.
    pub text: String,
    pub fields: Value,
}

impl Shop {
    /// What all services have written since a moment, the oldest first. What is no JSON is left out.
    ///
    /// # Errors
    /// The logs cannot be read.
    pub async fn log_lines(&self, since: OffsetDateTime) -> anyhow::Result<Vec<Line>> {
        let from = since.to_offset(time::UtcOffset::UTC).format(TIMESTAMP)?;
        let mut lines = Vec::new();
        match self.at.origin {
            Origin::Compose => {
                lines.extend(compose::logs(&from).await?.lines().filter_map(|line| read(bare(line), &from)));
            }
            Origin::Native | Origin::Test => {
                for path in logs_of_all(Path::new(&self.at.logs))? {
                    let file = File::open(&path).with_context(|| format!("reading {}", path.display()))?;
                    // They may have grown for days: the old lines are passed over one by one.
                    for line in BufReader::new(file).split(b'\n') {
                        lines.extend(read(&String::from_utf8_lossy(&line?), &from));
                    }
                }
            }
        }
        lines.sort_by(|a, b| timestamp(&a.text).cmp(&timestamp(&b.text)));
        Ok(lines)
    }
}

/// Every instance of a service writes its own: `payment.log`, `payment-2.log`.
fn logs_of_all(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let is_of = |name: &str, service: Service| {
        let number = name.strip_prefix(service.name()).and_then(|rest| rest.strip_suffix(".log"));
        number.is_some_and(|number| number.is_empty() || number.starts_with('-'))
    };
    let entries = fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    let named = entries.flatten().map(|entry| entry.path());
    Ok(named
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            Service::ALL.into_iter().any(|service| is_of(name, service))
        })
        .collect())
}

/// Docker Compose 2.26 begins each line with a control sequence, terminal or not.
fn bare(line: &str) -> &str {
    line.strip_prefix("\u{1b}[2K").unwrap_or(line)
}

fn read(text: &str, from: &str) -> Option<Line> {
    if timestamp(text)? < from {
        return None;
    }
    // The last line may be on its way.
    Some(Line { fields: serde_json::from_str(text).ok()?, text: text.to_owned() })
}

fn timestamp(line: &str) -> Option<&str> {
    line.strip_prefix(BEGIN)?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::{bare, read};

    #[test]
    fn only_whole_json_lines_since_the_moment_are_read() {
        let from = "2026-01-02T03:04:05.678Z";
        let line = |at: &str| format!(r#"{{"timestamp":"{at}","message":"x"}}"#);
        assert!(read(&line(from), from).is_some_and(|line| line.fields["message"] == "x"));
        assert!(read(&line("2026-01-02T03:04:05.677Z"), from).is_none());
        assert!(read(bare(&format!("\u{1b}[2K{}", line(from))), from).is_some());
        for other in ["03:04:06.000 INFO  order x", "", r#"{"timestamp":"2026-01-02T03:04:06.000Z","mess"#] {
            assert!(read(other, from).is_none(), "{other}");
        }
    }
}
