//! What the services, the database's roles and the dependencies are allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::Context as _;
use e2e::{Service, Settings, Stack, workspace};
use serde_json::{Value, json};

/// Licences that may be in the tree: all of them let the services be used, changed and sold, closed or open.
const LICENCES: [&str; 12] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MPL-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

#[tokio::test]
async fn no_service_starts_with_an_operators_token_that_is_missing_or_known_to_everybody() -> anyhow::Result<()> {
    for token in ["", "demo-ops-token"] {
        let refused = Stack::start(Settings::default().set(Service::Payment, "OPS_TOKEN", token)).await;
        let said = refused.err().map(|error| format!("{error:#}")).unwrap_or_default();
        assert!(said.contains("SAGA_DEMO=on"), "{token:?}: {said}");
    }
    let file = workspace().join("target").join(format!("ops-token-{}", std::process::id()));
    std::fs::write(&file, "operators-of-a-test\n")?;
    let settings = Settings::default()
        .set(Service::Payment, "OPS_TOKEN", "demo-ops-token")
        .set(Service::Payment, "SAGA_DEMO", "on")
        .set(Service::Shipping, "OPS_TOKEN", "")
        .set(Service::Shipping, "OPS_TOKEN_FILE", file.display().to_string());
    let stack = Stack::start(settings).await;
    std::fs::remove_file(&file)?;
    let stack = stack?;
    assert_eq!(stack.shipping().client()?.ops_get("/ops/inbox").await?.status, 200, "the file's token");
    assert_eq!(stack.payment().client()?.ops_get("/ops/inbox").await?.status, 401, "the demo's is another");
    Ok(())
}

#[tokio::test]
async fn every_role_has_time_outs_and_a_limit_of_its_own() -> anyhow::Result<()> {
    let stack = Stack::start_empty(Settings::default()).await?;
    let roles = stack
        .database
        .value(
            "select jsonb_object_agg(rolname, jsonb_build_object('limit', rolconnlimit, 'settings', rolconfig,
                    'rights', rolsuper or rolcreatedb or rolcreaterole or rolbypassrls or rolreplication))
             from pg_roles where rolname like '%\\_service' or rolname = 'auditor'",
        )
        .await?;
    let roles = roles.as_object().context("roles")?;
    assert_eq!(roles.len(), 6, "{roles:?}");
    for (role, about) in roles {
        let settings: Vec<&str> =
            about["settings"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for name in ["statement_timeout=", "lock_timeout=", "idle_in_transaction_session_timeout="] {
            assert!(settings.iter().any(|setting| setting.starts_with(name)), "{role}: {settings:?}");
        }
        assert_eq!(about["rights"], json!(false), "{role}");
    }
    let all = "select sum(rolconnlimit) from pg_roles where rolname like '%\\_service' or rolname = 'auditor'";
    let most = stack.database.value("select current_setting('max_connections')::int").await?;
    assert!(stack.database.value(all).await?.as_i64() < most.as_i64(), "the server has room for all: {most}");
    let public = "select has_database_privilege('public', current_database(), 'connect')
                      or has_schema_privilege('public', 'public', 'create')";
    assert_eq!(stack.database.value(public).await?, json!(false));
    Ok(())
}

fn cargo(arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
    let output = Command::new(env!("CARGO")).args(arguments).arg("--locked").current_dir(workspace()).output()?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}

fn docs() -> anyhow::Result<String> {
    Ok(std::fs::read_to_string(workspace().join("docs/licences.md"))?)
}

#[test]
fn every_dependency_has_a_licence_that_lets_everybody_use_it_and_the_docs_list_them() -> anyhow::Result<()> {
    // One platform, so that the list is the same everywhere.
    let told = cargo(&["metadata", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"])?;
    let told: Value = serde_json::from_slice(&told)?;
    let used: BTreeSet<&str> =
        told["resolve"]["nodes"].as_array().into_iter().flatten().filter_map(|node| node["id"].as_str()).collect();
    let mut found = BTreeSet::new();
    let packages = told["packages"].as_array().into_iter().flatten();
    for package in
        packages.filter(|one| one["source"].is_string() && one["id"].as_str().is_some_and(|id| used.contains(id)))
    {
        let licence = package["license"].as_str().with_context(|| format!("{} has no licence", package["name"]))?;
        let licence = licence.replace('/', " OR ");
        // Of alternatives one is enough, of a sum each is needed.
        let is_fine = |part: &str| part.trim_matches(['(', ')']).split(" OR ").any(|one| LICENCES.contains(&one));
        assert!(licence.split(" AND ").all(is_fine), "{}: {licence}", package["name"]);
        found.insert(licence);
    }
    let docs = docs()?;
    let listed: BTreeSet<String> = docs.lines().filter_map(|line| line.strip_prefix("- ")).map(str::to_owned).collect();
    assert_eq!(listed, found, "docs/licences.md lists what cargo metadata says");
    Ok(())
}

#[test]
fn a_crate_is_in_the_tree_twice_only_where_the_docs_say_why() -> anyhow::Result<()> {
    let tree = cargo(&["tree", "--workspace", "--edges", "normal", "--prefix", "none", "--format", "{p}"])?;
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&tree).lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(version)) = (words.next(), words.next()) {
            versions.entry(name.to_owned()).or_default().insert(version.to_owned());
        }
    }
    let twice: BTreeSet<String> = versions.into_iter().filter(|(_, all)| all.len() > 1).map(|(name, _)| name).collect();
    let docs = docs()?;
    let rows = docs.lines().filter_map(|line| line.strip_prefix("| `")).filter_map(|line| line.split(" | ").next());
    let told = rows.flat_map(|row| row.split(", ").map(|name| name.trim_matches('`').to_owned())).collect();
    assert_eq!(twice, told, "docs/licences.md says why");
    Ok(())
}
