//! What the README says must be there is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use e2e::scenario::{Scenario, all_scenarios};
use e2e::workspace;

fn readme() -> anyhow::Result<String> {
    Ok(fs::read_to_string(workspace().join("README.md"))?)
}

/// What stands between backticks in the rows of the table below this heading.
fn quoted(heading: &str) -> anyhow::Result<Vec<String>> {
    let readme = readme()?;
    let section = readme.split(&format!("## {heading}")).nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with('|'));
    Ok(rows.flat_map(|row| row.split('`').skip(1).step_by(2)).map(str::to_owned).collect())
}

/// All Rust sources of the workspace, one after the other.
pub(crate) fn sources(directory: &Path, text: &mut String) -> anyhow::Result<()> {
    for entry in fs::read_dir(directory)?.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
            sources(&path, text)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

fn all_sources() -> anyhow::Result<String> {
    let mut text = String::new();
    sources(workspace(), &mut text)?;
    Ok(text)
}

#[test]
fn every_guarantee_names_a_test_that_exists() -> anyhow::Result<()> {
    let sources = all_sources()?;
    let scenarios: BTreeSet<String> = all_scenarios()?.into_iter().map(|scenario| scenario.name).collect();
    let named = quoted("What it guarantees")?;
    assert!(named.len() > 30, "{named:?}");
    for test in named {
        let is_there = sources.contains(&format!("fn {test}(")) || scenarios.contains(&test);
        assert!(is_there, "there is no test {test}");
    }
    Ok(())
}

#[test]
fn every_known_pitfall_names_a_test_or_a_scenario_that_exists() -> anyhow::Result<()> {
    let sources = all_sources()?;
    let scenarios: BTreeSet<String> = all_scenarios()?.into_iter().map(|scenario| scenario.name).collect();
    let page = fs::read_to_string(workspace().join("docs/pitfalls.md"))?;
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let quoted = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let mut tests = 0;
    for name in quoted {
        let is_word = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
        let is_test = name.matches('_').count() > 2 && name.chars().all(|c| is_word(c) || c == '_');
        let is_scenario = name.contains('-') && name.chars().all(|c| is_word(c) || c == '-');
        if is_test && !name.ends_with("_total") {
            assert!(sources.contains(&format!("fn {name}(")), "there is no test {name}");
            tests += 1;
        }
        assert!(!is_scenario || scenarios.contains(name), "there is no scenario {name}");
    }
    assert!(tests > 80, "{tests} tests are named");
    Ok(())
}

#[test]
fn every_scenario_is_listed_as_its_file_tells_it() -> anyhow::Result<()> {
    let readme = readme()?;
    for Scenario { name, about, .. } in all_scenarios()? {
        assert!(readme.contains(&format!("| `{name}` | {about} |")), "{name}: {about}");
    }
    Ok(())
}

#[test]
fn every_error_code_is_one_that_a_service_gives() -> anyhow::Result<()> {
    let sources = all_sources()?;
    let is_code =
        |text: &String| text.contains('.') && text.chars().all(|c| c.is_ascii_lowercase() || "._".contains(c));
    let codes: Vec<String> = quoted("Errors")?.into_iter().filter(is_code).collect();
    assert!(codes.len() > 20, "{codes:?}");
    for code in codes {
        assert!(sources.contains(&format!("\"{code}\"")), "no service gives {code}");
    }
    Ok(())
}
