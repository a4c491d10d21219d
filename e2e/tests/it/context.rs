//! Trace context that a caller brings: it goes with the order to the last service, and what strangers send there costs
//! an order nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context as _;
use e2e::{Collector, Service, Settings, Span, Stack, State, eventually};
use futures::future::try_join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::figures::value;
use crate::shop::{Placed, SOON, books_balance, comes_to, order, patient, place};
use crate::traces::orphans;

/// More than the bounds of docs/traces.md and their names together.
const LONGEST_HEADERS: i64 = 2_000;

/// All that was ever to be published, by all services.
const ROWS: &str = "select 'order' as service, headers from orders.outbox_log
    union all select 'payment', headers from payments.outbox_log
    union all select 'inventory', headers from inventory.outbox_log
    union all select 'shipping', headers from shipping.outbox_log";

/// Places an order with headers of the caller's.
async fn place_with(stack: &Stack, headers: &[(&str, &str)]) -> anyhow::Result<Placed> {
    let key = format!("context-{:016x}", rand::random::<u64>());
    let request = stack.order().client()?.request(Method::POST, "/orders").header("Idempotency-Key", key);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let answer = e2e::stack::client::send(request.json(&order("KEYBOARD", 1, "pm_ok", "standard"))).await?;
    assert_eq!(answer.status, 202, "{headers:.100?}: {}", answer.text);
    let text = |field: &str| answer.body[field].as_str().map(str::to_owned).with_context(|| format!("no {field}"));
    Ok(Placed {
        order: text("orderId")?,
        saga: text("sagaId")?,
        correlation: text("correlationId")?,
        trace: text("traceId")?,
    })
}

fn trace_of(headers: &Value) -> &str {
    headers["traceparent"].as_str().and_then(|parent| parent.split('-').nth(1)).unwrap_or_default()
}

#[tokio::test]
async fn trace_headers_of_strangers_cost_an_order_nothing() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let (upper, long) = (good.to_uppercase(), "f".repeat(8_192));
    let future = format!("cc-{}-and-what-comes-then", &good[3..]);
    let state = (0..200).map(|number| format!("vendor{number}=value")).collect::<Vec<_>>().join(",");
    let baggage = (0..1_024).map(|number| format!("k{number:04}=v")).collect::<Vec<_>>().join(",");
    let wide = format!("a={0},b={0}", "v".repeat(4_000));
    let none = "00-00000000000000000000000000000000-0000000000000000-00";
    let corpus: &[&[(&str, &str)]] = &[
        &[("traceparent", "")],
        &[("traceparent", "nonsense")],
        &[("traceparent", &long)],
        &[("traceparent", none)],
        &[("traceparent", &upper)],
        &[("traceparent", &future)],
        &[("traceparent", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")],
        &[("traceparent", good), ("tracestate", &state)],
        &[("traceparent", good), ("tracestate", "=,;,= =\t")],
        &[("traceparent", good), ("baggage", &baggage)],
        &[("baggage", &baggage)],
        &[("traceparent", good), ("baggage", &wide)],
        &[("traceparent", good), ("traceparent", none)],
        &[("traceparent", good), ("tracestate", "a=b"), ("tracestate", &state), ("baggage", "%00=%"), ("baggage", "")],
    ];
    let mut traces = BTreeSet::new();
    for headers in corpus {
        let placed = place_with(&stack, headers).await?;
        comes_to(&stack, &placed, "completed").await?;
        let is_hex =
            placed.trace.len() == 32 && placed.trace.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        assert!(is_hex && placed.trace.bytes().any(|byte| byte != b'0'), "{headers:.100?}: {}", placed.trace);
        traces.insert(placed.trace);
    }
    books_balance(&stack).await?;
    let rows = stack.database.rows(ROWS).await?;
    assert!(rows.len() >= 9 * corpus.len(), "{}", rows.len());
    let stored: BTreeSet<String> = rows.iter().map(|row| trace_of(&row["headers"]).to_owned()).collect();
    assert_eq!(stored, traces, "the traces of the rows, and of the answers");
    let longest = format!(
        "select max(longest) from (select length(headers::text) as longest from ({ROWS}) as rows
                                   union all select length(trace::text) from orders.orders) as lengths"
    );
    let longest = stack.database.value(&longest).await?;
    assert!(longest.as_i64() < Some(LONGEST_HEADERS), "a row grew to {longest}");
    Ok(())
}

#[tokio::test]
async fn what_a_caller_gives_along_is_there_in_the_last_service() -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let stack = Stack::start(Settings::default().otlp(collector.endpoint())).await?;
    // Ids that somebody could shorten, and a caller that does not sample.
    let (trace, parent) = ("000000000000000000000000000000f7", "00000000000000a1");
    let (state, baggage) = ("vendor=one,other=two", "tenant=blue");
    let traceparent = format!("00-{trace}-{parent}-00");
    let placed =
        place_with(&stack, &[("traceparent", &traceparent), ("tracestate", state), ("baggage", baggage)]).await?;
    assert_eq!(placed.trace, trace);
    comes_to(&stack, &placed, "completed").await?;
    books_balance(&stack).await?;
    let rows = stack.database.rows(ROWS).await?;
    let services: BTreeSet<&str> = rows.iter().filter_map(|row| row["service"].as_str()).collect();
    assert_eq!(services, BTreeSet::from(["inventory", "order", "payment", "shipping"]));
    for row in &rows {
        let headers = &row["headers"];
        assert_eq!(
            (trace_of(headers), &headers["tracestate"], &headers["baggage"]),
            (trace, &json!(state), &json!(baggage)),
            "{row}"
        );
    }
    for service in Service::ALL {
        let ours = |line: &String| line.contains(&format!("\"traceId\":\"{trace}\""));
        assert!(stack.process(service).logs().iter().any(ours), "{service:?} has no line of the trace");
    }
    eventually(SOON, "the trace is whole", async || {
        let spans = collector.trace(trace);
        let services: BTreeSet<&str> = spans.iter().map(|span| span.service.as_str()).collect();
        // The caller's span is not here.
        let roots: Vec<&Span> = orphans(&spans);
        let whole = services.len() == Service::ALL.len() && roots.len() == 1 && roots[0].parent_id == parent;
        Ok(if whole { State::Reached(()) } else { State::pending((services, spans.len(), roots)) })
    })
    .await?;

    // A byte more than docs/traces.md allows: it is left out as a whole, and the rest stays.
    let (state, baggage) = (format!("vendor={}", "x".repeat(506)), format!("tenant={}", "x".repeat(1_018)));
    let traceparent = format!("00-{}-{parent}-01", "a".repeat(32));
    let headers = [("traceparent", traceparent.as_str()), ("tracestate", &state), ("baggage", &baggage)];
    let placed = place_with(&stack, &headers).await?;
    comes_to(&stack, &placed, "completed").await?;
    books_balance(&stack).await?;
    for row in stack.database.rows(ROWS).await?.iter().filter(|row| trace_of(&row["headers"]) == placed.trace) {
        assert!(row["headers"]["tracestate"].is_null() && row["headers"]["baggage"].is_null(), "{row}");
    }
    Ok(())
}

#[tokio::test]
async fn of_a_thousand_orders_no_span_has_lost_its_parent_without_a_count() -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let stack = Stack::start(patient().otlp(collector.endpoint())).await?;
    try_join_all((0..20).map(|_| async {
        for _ in 0..50 {
            place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
        }
        anyhow::Ok(())
    }))
    .await?;
    eventually(Duration::from_secs(180), "all have ended", async || {
        let ended = stack.database.value("select count(*) from orders.sagas where state = 'completed'").await?;
        Ok(if ended == 1_000 { State::Reached(()) } else { State::pending(ended) })
    })
    .await?;
    books_balance(&stack).await?;
    let mut ended = 0.0;
    for service in Service::ALL {
        let figures = stack.process(service).client()?.ops_get("/metrics").await?.text;
        ended += value(&figures, &["telemetry_spans_ended_total"]).context("a count of spans")?;
        // It sends what it has.
        stack.process(service).terminate().await?;
    }
    let spans = collector.spans();
    let ids: BTreeSet<(&str, &str)> =
        spans.iter().map(|span| (span.trace_id.as_str(), span.span_id.as_str())).collect();
    let parents = spans.iter().filter(|span| !span.parent_id.is_empty());
    let parents: BTreeSet<(&str, &str)> =
        parents.map(|span| (span.trace_id.as_str(), span.parent_id.as_str())).collect();
    let (missing, lost) = (parents.difference(&ids).count(), ended - spans.len() as f64);
    assert!(ended >= 15_000.0, "{ended} spans of a thousand orders");
    assert!(missing as f64 <= lost.max(0.0), "{missing} parents are missing, and {lost} spans are counted as lost");
    Ok(())
}
