//! What Jaeger says about the newest orders. It keeps traces in memory and forgets them when it ends: an order whose
//! trace it does not have is not judged. Nor is one that was placed before a service was started: a process that was
//! killed takes the spans with it that it had not sent.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context as _;
use futures::future::join_all;
use reqwest::StatusCode;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::books::Ended;
use super::{Told, Violation};
use crate::shop::Shop;
use crate::stack::Service;

/// So many of the newest orders are looked up.
const SAMPLE: usize = 20;

pub(super) async fn look(shop: &Shop, page: &str, ended: &[Ended]) -> anyhow::Result<Told> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let (mut seen, mut violations) = (0, Vec::new());
    let started = last_start(shop).await?;
    let told = ended.iter().filter(|ended| ended.is_told && ended.placed_at > started);
    let with_trace = told.filter_map(|ended| Some((ended, ended.traceparent.as_deref()?.split('-').nth(1)?)));
    for (ended, trace_id) in with_trace.take(SAMPLE) {
        let answer = client.get(format!("{page}/api/traces/{trace_id}")).send().await.context("asking Jaeger")?;
        if answer.status() == StatusCode::NOT_FOUND {
            continue;
        }
        let answer: Value = answer.error_for_status()?.json().await?;
        let trace = &answer["data"][0];
        seen += 1;
        let broken = missing_parents(trace);
        if !broken.is_empty() {
            violations.push(violation(ended, "no span has a parent that is missing", trace_id, &broken));
        }
        let absent = absent_services(trace, &ended.answer);
        if !absent.is_empty() {
            violations.push(violation(ended, "a shipped order has one trace, through all services", trace_id, &absent));
        }
    }
    if seen == 0 {
        let why = "Jaeger knows no order since the last start of a service that ended more than 15 s ago";
        return Ok(Told::skipped(why));
    }
    let note = format!("{seen} traces of the newest orders");
    Ok(Told { violations, note: Some(note), ..Told::default() })
}

/// When the youngest process began.
async fn last_start(shop: &Shop) -> anyhow::Result<OffsetDateTime> {
    let starts = Service::ALL.map(async |service| {
        let figures = shop.client(service)?.ops_get("/metrics").await?.text;
        let line = figures.lines().find(|line| line.starts_with("process_start_time_seconds"));
        let seconds = line.and_then(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        let seconds = seconds.with_context(|| format!("when {} was started", service.name()))?;
        anyhow::Ok(OffsetDateTime::UNIX_EPOCH + Duration::from_secs_f64(seconds))
    });
    let starts = join_all(starts).await.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    Ok(starts.into_iter().max().unwrap_or(OffsetDateTime::UNIX_EPOCH))
}

fn violation(ended: &Ended, what: &str, trace_id: &str, seen: &[String]) -> Violation {
    Violation {
        order: Some(ended.order.clone()),
        what: what.to_owned(),
        rows: json!({"traceId": trace_id, "seen": seen}),
    }
}

/// Spans whose parent is not in the trace. That of the request is its client's, who may send spans elsewhere.
fn missing_parents(trace: &Value) -> Vec<String> {
    let spans = trace["spans"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ids: BTreeSet<&str> = spans.iter().filter_map(|span| span["spanID"].as_str()).collect();
    let is_request = |span: &&Value| {
        span["tags"].as_array().into_iter().flatten().any(|tag| tag["key"] == "span.kind" && tag["value"] == "server")
            && service(trace, span) == Some(Service::Order.name())
    };
    let lacks_parent = |span: &&Value| {
        let references = span["references"].as_array().into_iter().flatten();
        let mut parents = references.filter(|reference| reference["refType"] == "CHILD_OF");
        parents.any(|parent| {
            parent["traceID"] == span["traceID"] && !ids.contains(parent["spanID"].as_str().unwrap_or_default())
        })
    };
    let broken = spans.iter().filter(|span| !is_request(span) && lacks_parent(span));
    broken.map(|span| format!("{} {}", service(trace, span).unwrap_or_default(), span["operationName"])).collect()
}

fn absent_services(trace: &Value, order: &Value) -> Vec<String> {
    if order["status"] != "completed" {
        return Vec::new();
    }
    let spans = trace["spans"].as_array().into_iter().flatten();
    let there: BTreeSet<&str> = spans.filter_map(|span| service(trace, span)).collect();
    let broker_users = Service::ALL.into_iter().filter(|service| service.has_broker());
    let absent = broker_users.map(Service::name).filter(|name| !there.contains(name));
    absent.map(|name| format!("no span of {name}")).collect()
}

fn service<'a>(trace: &'a Value, span: &Value) -> Option<&'a str> {
    trace["processes"][span["processID"].as_str()?]["serviceName"].as_str()
}
