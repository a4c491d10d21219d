//! The compose file, line by line: nothing in it runs as root, writes where it should not, is reachable from elsewhere,
//! or knows another one's secrets.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, ensure};
use e2e::{Service, workspace};
use serde_yaml_ng::Value;

fn file() -> anyhow::Result<Value> {
    let mut file: Value = serde_yaml_ng::from_str(&fs::read_to_string(workspace().join("docker-compose.yml"))?)?;
    file.apply_merge()?;
    Ok(file)
}

fn services(file: &Value) -> anyhow::Result<Vec<(&str, &Value)>> {
    let all = file["services"].as_mapping().context("services")?;
    Ok(all.iter().filter_map(|(name, service)| Some((name.as_str()?, service))).collect())
}

fn texts(list: &Value) -> Vec<String> {
    let list = list.as_sequence().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect()
}

/// Those that are built from this repository.
fn is_ours(service: &Value) -> bool {
    service["image"] == "operable-saga:local"
}

#[test]
fn every_container_is_bounded_and_has_no_more_rights_than_it_needs() -> anyhow::Result<()> {
    let file = file()?;
    for (name, service) in services(&file)? {
        assert_eq!(service["read_only"], true, "{name}: its root file system");
        assert_eq!(texts(&service["cap_drop"]), ["ALL"], "{name}");
        assert!(service["cap_add"].is_null() && service["privileged"].is_null() && service["pid"].is_null(), "{name}");
        assert_eq!(texts(&service["security_opt"]), ["no-new-privileges:true"], "{name}");
        for bound in ["mem_limit", "pids_limit", "cpus"] {
            assert!(!service[bound].is_null(), "{name} has no {bound}");
        }
        assert!(service["restart"].is_string(), "{name}");
        assert!(service["container_name"].is_null(), "{name}: a fixed name cannot be scaled");
        assert!(service["network_mode"].is_null(), "{name}");
        let image = service["image"].as_str().unwrap_or_default();
        assert!(image.contains(':') && !image.ends_with(":latest"), "{name}: {image} is no pinned version");
        let volumes = texts(&service["volumes"]);
        assert!(volumes.iter().all(|volume| !volume.contains("docker.sock")), "{name}: {volumes:?}");
        let from_here = volumes.iter().filter(|volume| volume.starts_with('.') || volume.starts_with('/'));
        assert!(from_here.clone().all(|volume| volume.ends_with(":ro")), "{name} may write to {volumes:?}");
    }
    Ok(())
}

#[test]
fn every_port_is_on_loopback_and_can_be_set() -> anyhow::Result<()> {
    let file = file()?;
    for (name, service) in services(&file)? {
        for port in texts(&service["ports"]) {
            let published = port.strip_prefix("127.0.0.1:").with_context(|| format!("{name}: {port}"))?;
            let default = published.split(":-").nth(1).and_then(|rest| rest.split('}').next()).context("a default")?;
            ensure!(published.starts_with("${") && default.parse::<u16>().is_ok(), "{name}: {port}");
        }
    }
    Ok(())
}

#[test]
fn every_service_is_asked_for_its_health_and_has_time_to_finish() -> anyhow::Result<()> {
    let file = file()?;
    for (name, service) in services(&file)?.into_iter().filter(|(_, service)| is_ours(service)) {
        let is_scalable = Service::ALL.into_iter().any(|one| one.name() == name);
        assert!(!is_scalable || service["ports"].is_null(), "{name}: a port of its own cannot be had twice");
        let grace = service["stop_grace_period"].as_str().and_then(|grace| grace.strip_suffix('s'));
        let grace: u32 = grace.context("a grace period in seconds")?.parse()?;
        assert!(grace > 20, "{name}: a service finishes within 20 s");
        if name == "migrations" {
            continue;
        }
        assert_eq!(texts(&service["healthcheck"]["test"]), ["CMD", name, "health"], "{name}");
        for dependency in service["depends_on"].as_mapping().into_iter().flatten() {
            assert!(dependency.1["condition"].is_string(), "{name}");
        }
        assert_eq!(service["depends_on"]["migrations"]["condition"], "service_completed_successfully", "{name}");
    }
    // Else a container that is made anew finds none of its queues.
    assert!(file["services"]["rabbitmq"]["hostname"].is_string());
    Ok(())
}

#[test]
fn no_container_is_told_a_secret_of_another_one() -> anyhow::Result<()> {
    let file = file()?;
    let mut seen = BTreeSet::new();
    for service in Service::ALL {
        let (name, schema) = (service.name(), service.schema());
        let environment = file["services"][name]["environment"].as_mapping().context("an environment")?;
        for (variable, value) in environment {
            let (variable, value) = (variable.as_str().unwrap_or_default(), value.as_str().unwrap_or_default());
            let is_secret = value.contains("demo-");
            match variable {
                "DATABASE_URL" => {
                    let own = format!("postgres://{schema}_service:${{{}_DATABASE_PASSWORD", schema.to_uppercase());
                    assert!(value.starts_with(&own), "{name}: {value}");
                }
                "AMQP_URL" => assert!(value.starts_with(&format!("amqp://{name}:")), "{name}: {value}"),
                "OPS_TOKEN" => {}
                _ => assert!(!is_secret, "{name} has a secret in {variable}"),
            }
            if is_secret && variable != "OPS_TOKEN" {
                assert!(seen.insert(value.to_owned()), "{name} shares {variable}");
            }
        }
    }
    // The image is built without any of it.
    let image = fs::read_to_string(workspace().join("services/Dockerfile"))?;
    assert!(!image.contains("demo-") && !image.contains("PASSWORD") && !image.contains("TOKEN"), "{image}");
    assert!(image.lines().any(|line| line.starts_with("USER ") && !line.contains("root")), "{image}");
    Ok(())
}
