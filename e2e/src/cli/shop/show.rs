//! Results, on standard output: in columns and colours for people, as JSON for programs. Colours are left out where
//! nobody would see them: no terminal, or `NO_COLOR`.

use std::fmt::Display;
use std::io::{ErrorKind, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use anstyle::{AnsiColor, Style};
use anyhow::ensure;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde::Serialize;

pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default();
pub(crate) const TITLE: Style = Style::new().bold();
pub(crate) const QUIET: Style = Style::new().dimmed();

/// Whether something could not be shown to a reader who is still there.
static LOST: AtomicBool = AtomicBool::new(false);

/// Shows one line. A reader who went away is no reason to panic.
pub(crate) fn show(line: impl Display) {
    if let Err(error) = writeln!(anstream::stdout(), "{line}")
        && error.kind() != ErrorKind::BrokenPipe
    {
        LOST.store(true, Ordering::Relaxed);
    }
}

/// Whether everything was shown.
///
/// # Errors
/// It was not: the disk is full, for example.
pub(crate) fn all_shown() -> anyhow::Result<()> {
    ensure!(!LOST.load(Ordering::Relaxed), "the result could not be written");
    Ok(())
}

/// Shows a value for programs.
///
/// # Errors
/// It is no JSON.
pub(crate) fn show_json(value: &impl Serialize) -> anyhow::Result<()> {
    show(serde_json::to_string_pretty(value)?);
    Ok(())
}

/// A text in a style.
pub(crate) fn styled(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Shows rows in columns that are as wide as they must be.
pub(crate) fn columns<R: IntoIterator<Item = String>>(rows: impl IntoIterator<Item = R>) {
    let mut table = Table::new();
    table.load_preset(NOTHING).add_rows(rows);
    for line in table.lines() {
        show(format!(" {}", line.trim_end()));
    }
}
