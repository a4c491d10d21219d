//! `saga prepare`: the committed descriptions of all queries (`.sqlx` in each crate), made anew from the tables as the
//! migrations make them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Context as _;
use clap::Args;
use e2e::servers::{Coordinates, migrate};
use e2e::{Servers, workspace};

use crate::cli::cargo::{cargo, run_well};
use crate::cli::ensure_servers;
use crate::cli::say::{say, timed};

/// Refreshes the committed query data after a query or a table has changed.
///
/// Each crate is checked against its own schema on a fresh PostgreSQL, as its own role. Where nothing compiles because
/// the data is out of date, run it without the parts that need the services:
/// `cargo run -p e2e --no-default-features -- prepare`
#[derive(Args)]
pub(crate) struct Arguments {
    /// Change nothing; fail when something would change.
    #[arg(long)]
    check: bool,
    /// Fetch missing servers without asking, into a private folder; nothing is installed. `CI=true` does the same.
    #[arg(long)]
    yes: bool,
}

/// Each crate with queries, its folder and its schema, dependencies first.
const CRATES: [(&str, &str, &str); 7] = [
    ("messaging", "shared/messaging", "orders"),
    ("chassis", "shared/chassis", "orders"),
    ("order", "services/order", "orders"),
    ("payment", "services/payment", "payments"),
    ("inventory", "services/inventory", "inventory"),
    ("shipping", "services/shipping", "shipping"),
    ("sandbox", "services/sandbox", "sandbox"),
];

const DATABASE: &str = "saga";

/// File names and contents.
type Queries = BTreeMap<String, String>;

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    ensure_servers(arguments.yes).await?;
    let servers = timed("PostgreSQL is ready", Servers::start()).await?;
    let coordinates = servers.coordinates();
    timed("all migrations are applied", migrate(&coordinates, DATABASE)).await?;
    let mut stale = Vec::new();
    for (name, folder, schema) in CRATES {
        let described = describe(&coordinates, servers.directory(), name, folder, schema);
        let fresh = timed(format!("{name} is checked against schema {schema}"), described).await?;
        let committed = workspace().join(folder).join(".sqlx");
        let differences = compare(&read(&committed)?, &fresh);
        for difference in &differences {
            say(format!("  {folder}/.sqlx: {difference}"));
        }
        if !differences.is_empty() && !arguments.check {
            replace(&committed, &fresh)?;
        }
        stale.extend(differences);
    }
    servers.stop().await?;
    match (stale.len(), arguments.check) {
        (0, _) => say("all query data is up to date"),
        (count, false) => say(format!("{count} files changed: commit them")),
        (count, true) => {
            say(format!("{count} files are out of date: run `cargo saga prepare` and commit what it changes"));
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Lets sqlx's macros describe the queries of one crate, and returns what they wrote.
async fn describe(
    coordinates: &Coordinates,
    state: &Path,
    name: &str,
    folder: &str,
    schema: &str,
) -> anyhow::Result<Queries> {
    let directory = state.join(format!("queries-{name}"));
    fs::create_dir(&directory)?;
    let check = || {
        let mut check = cargo(&["check", "--quiet", "--package", name, "--all-targets"]);
        check.env("DATABASE_URL", coordinates.database_url(schema, DATABASE, coordinates.postgres.address()));
        check.env("SQLX_OFFLINE", "false").env_remove("SQLX_OFFLINE_DIR");
        check
    };
    let what = || format!("checking {name} against schema {schema}");
    // First what it depends on, which would write its queries among ours: one set of features is one more compilation.
    run_well(check()).await.with_context(what)?;
    // The macros run only when the crate is compiled anew, and cargo does not know of the variables they read.
    File::open(workspace().join(folder).join("src/lib.rs"))?.set_modified(SystemTime::now())?;
    let mut described = check();
    described.env("SQLX_OFFLINE_DIR", &directory);
    run_well(described).await.with_context(what)?;
    read(&directory)
}

fn read(directory: &Path) -> anyhow::Result<Queries> {
    if !directory.exists() {
        return Ok(Queries::new());
    }
    let mut queries = Queries::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("query-") {
            queries.insert(name, fs::read_to_string(entry.path())?);
        }
    }
    Ok(queries)
}

fn compare(committed: &Queries, fresh: &Queries) -> Vec<String> {
    let mut differences = Vec::new();
    for (name, content) in fresh {
        match committed.get(name) {
            None => differences.push(format!("{name} is missing")),
            Some(old) if old.trim_end() != content.trim_end() => differences.push(format!("{name} differs")),
            Some(_) => {}
        }
    }
    differences
        .extend(committed.keys().filter(|name| !fresh.contains_key(*name)).map(|name| format!("{name} is not used")));
    differences
}

fn replace(directory: &Path, queries: &Queries) -> anyhow::Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    if queries.is_empty() {
        return Ok(());
    }
    fs::create_dir(directory)?;
    for (name, content) in queries {
        fs::write(directory.join(name), format!("{}\n", content.trim_end()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Queries, compare};

    #[test]
    fn a_difference_names_the_file_and_what_is_wrong_with_it() {
        let of = |files: &[(&str, &str)]| -> Queries {
            files.iter().map(|(name, content)| ((*name).to_owned(), (*content).to_owned())).collect()
        };
        let committed = of(&[("query-1.json", "{}\n"), ("query-2.json", "{}"), ("query-3.json", "{}")]);
        let fresh = of(&[("query-1.json", "{}"), ("query-2.json", "{\"a\":1}"), ("query-4.json", "{}")]);
        assert_eq!(
            compare(&committed, &fresh),
            ["query-2.json differs", "query-4.json is missing", "query-3.json is not used"]
        );
    }
}
