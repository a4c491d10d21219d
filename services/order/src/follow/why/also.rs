//! Faults that are not the cause and would be the next one: where several meet, each is told.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, way, works};
use crate::follow::Part;

/// Adds to the evidence what does not work besides.
pub(super) fn add(finding: &mut Finding, parts: &[Part]) {
    let mut found: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for part in parts {
        let is_told = |cause: &str| match cause {
            "service_silent" => finding.sentence.contains(&part.service),
            _ => cause == finding.cause,
        };
        let faults: BTreeSet<String> =
            faults(part).into_iter().filter(|(cause, _)| !is_told(cause)).map(|(_, what)| what).collect();
        for what in faults {
            found.entry(what).or_default().push(&part.service);
        }
    }
    finding
        .evidence
        .extend(found.into_iter().map(|(what, services)| format!("also, at {}: {what}", services.join(", "))));
}

/// What does not work at a service: the cause that it would be, and what is seen.
fn faults(part: &Part) -> Vec<(&'static str, String)> {
    match &part.readiness {
        Err(_) => vec![("service_silent", "it does not answer".to_owned())],
        // Its loops wait for the database, each of them.
        Ok(readiness) if readiness.database == "away" => vec![("database_away", "its database is away".to_owned())],
        Ok(readiness) => readiness
            .loops
            .iter()
            .filter(|one| !works(one))
            .map(|one| match way::trouble(one) {
                (cause @ "relay_not_running", why, _) => (cause, format!("{why}: {}", one.name)),
                (cause, why, _) => (cause, why.to_owned()),
            })
            .collect(),
    }
}
