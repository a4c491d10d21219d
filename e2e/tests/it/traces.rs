//! One order is one trace: in an OTLP receiver, span by span, and in a real Jaeger.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context as _;
use e2e::otlp::Answer;
use e2e::scenario::{Runner, find};
use e2e::stack::Service;
use e2e::{Action, Collector, Jaeger, Settings, Span, Stack, State, eventually};
use serde_json::{Value, json};

use crate::scenarios::shop_of;
use crate::shop::{SOON, comes_to, order, place};

const SERVICES: [&str; 4] = ["inventory", "order", "payment", "shipping"];

/// Spans whose parent is missing from the trace.
pub(crate) fn orphans(spans: &[Span]) -> Vec<&Span> {
    let ids: BTreeSet<&str> = spans.iter().map(|span| span.span_id.as_str()).collect();
    spans.iter().filter(|span| !span.parent_id.is_empty() && !ids.contains(span.parent_id.as_str())).collect()
}

#[tokio::test]
async fn one_order_is_one_trace_through_all_services() -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let stack = Stack::start(Settings::default().otlp(collector.endpoint())).await?;
    for (method, sku, end, least) in [("pm_ok", "KEYBOARD", "completed", 3), ("pm_ok", "UNICORN", "cancelled", 3)] {
        let placed = place(&stack, &order(sku, 1, method, "standard")).await?;
        comes_to(&stack, &placed, end).await?;
        let spans = eventually(SOON, "the trace is whole", async || {
            let spans = collector.trace(&placed.trace);
            let consumed = spans.iter().filter(|span| span.kind == "consumer").count();
            let produced = spans.iter().filter(|span| span.kind == "producer").count();
            let whole = consumed >= 2 * least && produced >= consumed && orphans(&spans).is_empty();
            Ok(if whole { State::Reached(spans) } else { State::pending((consumed, produced, spans)) })
        })
        .await?;
        let roots: Vec<&Span> = spans.iter().filter(|span| span.parent_id.is_empty()).collect();
        assert_eq!(roots.len(), 1, "{roots:#?}");
        assert_eq!((roots[0].name.as_str(), roots[0].kind), ("POST /orders", "server"));
        for span in &spans {
            assert_eq!(span.attribute("correlation.id"), Some(placed.correlation.as_str()), "{span:#?}");
        }
        for span in spans.iter().filter(|span| span.kind == "consumer") {
            let parent = spans.iter().find(|parent| parent.span_id == span.parent_id);
            assert_eq!(parent.map(|parent| parent.kind), Some("producer"), "{span:#?}");
            assert_eq!(span.attribute("saga.id"), Some(placed.saga.as_str()));
            assert_eq!(span.attribute("order.id"), Some(placed.order.as_str()), "{span:#?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn retries_stay_in_the_trace_of_their_order() -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let stack = Stack::start(crate::shop::impatient().otlp(collector.endpoint())).await?;
    let placed = place(&stack, &order("MOUSE", 1, "pm_flaky_2", "standard")).await?;
    comes_to(&stack, &placed, "completed").await?;
    eventually(SOON, "three attempts at the payment are in the trace", async || {
        let spans = collector.trace(&placed.trace);
        let attempts: BTreeSet<&str> = spans
            .iter()
            .filter(|span| span.name == "process payment.commands")
            .filter_map(|span| span.attribute("attempt"))
            .collect();
        let calls = spans.iter().filter(|span| span.kind == "client" && span.service == "payment").count();
        let whole = attempts == BTreeSet::from(["1", "2", "3"]) && calls == 3 && orphans(&spans).is_empty();
        Ok(if whole { State::Reached(()) } else { State::pending((attempts, calls)) })
    })
    .await
}

#[tokio::test]
async fn retries_have_linked_traces_of_their_own_where_a_setting_says_so() -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let settings = crate::shop::impatient().otlp(collector.endpoint()).set(Service::Payment, "TRACE_LATER", "link");
    let stack = Stack::start(settings).await?;
    let placed = place(&stack, &order("MOUSE", 1, "pm_flaky_2", "standard")).await?;
    comes_to(&stack, &placed, "completed").await?;
    eventually(SOON, "two retries link to the trace of the order", async || {
        let spans = collector.spans_with("correlation.id", &placed.correlation);
        let attempts = spans.iter().filter(|span| span.name == "process payment.commands");
        let (inside, outside): (Vec<_>, Vec<_>) = attempts.partition(|span| span.trace_id == placed.trace);
        let links = |span: &&Span| span.parent_id.is_empty() && span.links.iter().any(|(id, _)| *id == placed.trace);
        let whole = inside.len() == 1 && outside.len() == 2 && outside.iter().all(links);
        Ok(if whole { State::Reached(()) } else { State::pending(spans) })
    })
    .await
}

#[tokio::test]
async fn a_batch_links_to_its_messages_and_is_the_parent_of_none() -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let stack = Stack::start(crate::shop::patient().otlp(collector.endpoint())).await?;
    // Twenty commands wait, and are published and applied together.
    stack.order().holds().arm("relay.read", Action::Hold)?;
    let places = (0..20).map(|_| async { place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await });
    let placed = futures::future::try_join_all(places).await?;
    stack.order().holds().release("relay.read")?;
    for placed in &placed {
        comes_to(&stack, placed, "completed").await?;
    }
    eventually(SOON, "batches of both kinds are linked both ways", async || {
        let spans = collector.spans();
        let of = |id: &str| spans.iter().find(|span| span.span_id == id);
        let mut seen = BTreeSet::new();
        for batch in spans.iter().filter(|span| span.name == "relay batch" || span.name.starts_with("apply ")) {
            assert!(
                batch.parent_id.is_empty() && !spans.iter().any(|span| span.parent_id == batch.span_id),
                "{batch:#?}"
            );
            let linking = spans.iter().filter(|span| span.links.iter().any(|(_, id)| *id == batch.span_id));
            let count = batch.attribute("messaging.batch.message_count").and_then(|count| count.parse::<usize>().ok());
            let is_whole = batch.links.iter().all(|(_, id)| of(id).is_some()) && Some(linking.count()) == count;
            if is_whole && count > Some(1) && Some(batch.links.len()) == count {
                seen.insert(batch.name.split(' ').next().unwrap_or_default().to_owned());
            }
        }
        Ok(if seen.len() == 2 { State::Reached(()) } else { State::pending(seen) })
    })
    .await
}

#[tokio::test]
async fn what_a_customer_cancels_is_undone_in_the_trace_of_the_order() -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let stack = Stack::start(crate::shop::patient().otlp(collector.endpoint())).await?;
    stack.payment().pause()?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    let cancelled = stack.order().post(&format!("/orders/{}/cancel", placed.order), &json!({}), "cancel").await?;
    assert_eq!(cancelled.status, 202, "{}", cancelled.text);
    stack.payment().resume()?;
    comes_to(&stack, &placed, "cancelled").await?;
    let timeline = stack.order().get(&format!("/orders/{}/timeline", placed.order)).await?;
    assert!(timeline.text.contains("by the customer"), "{}", timeline.text);
    eventually(SOON, "do and undo are in one trace", async || {
        let spans = collector.trace(&placed.trace);
        let processed = spans.iter().filter(|span| span.name == "process payment.commands").count();
        let wishes = spans.iter().filter(|span| span.name == "cancel order" && span.links.len() == 1).count();
        let whole = processed == 2 && wishes == 1 && orphans(&spans).is_empty();
        Ok(if whole { State::Reached(()) } else { State::pending(spans) })
    })
    .await
}

#[tokio::test]
async fn turns_that_a_message_took_are_events_on_its_span() -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let stack = Rc::new(Stack::start(crate::shop::patient().otlp(collector.endpoint())).await?);
    let shop = shop_of(&stack)?;
    // The one that kills payment first: spans that it had not sent die with it.
    for name in ["undo-before-do", "duplicate-message", "late-answer", "payment-flaky", "poison-message"] {
        for scenario in find(name)? {
            let report = Runner::new(&shop).run(&scenario, drop).await?;
            anyhow::ensure!(report.is_as_expected(), "{report:#?}");
        }
    }
    let expected = [
        ("process payment.commands", "tombstone"),
        ("process order.replies", "late"),
        ("process payment.commands", "deduplicated"),
        ("process payment.commands", "parked"),
        ("process payment.commands", "retry_scheduled"),
    ];
    eventually(SOON, "every turn is an event", async || {
        let turns: BTreeSet<(String, String)> = collector
            .spans()
            .into_iter()
            .flat_map(|span| span.events.into_iter().map(move |event| (span.name.clone(), event)))
            .collect();
        let missing = |(name, event): &(&str, &str)| !turns.contains(&((*name).to_owned(), (*event).to_owned()));
        let missing: Vec<_> = expected.into_iter().filter(missing).collect();
        Ok(if missing.is_empty() { State::Reached(()) } else { State::pending((missing, turns)) })
    })
    .await
}

#[tokio::test]
async fn a_shop_that_nobody_uses_makes_no_spans() -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let stack = Stack::start(Settings::default().otlp(collector.endpoint())).await?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &placed, "completed").await?;
    eventually(SOON, "the trace is there", async || {
        let spans = collector.trace(&placed.trace).len();
        Ok(if spans >= 15 { State::Reached(()) } else { State::pending(spans) })
    })
    .await?;
    // The exporter sends every five seconds: what was made before has come by then.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let before = collector.spans().len();
    let begin = std::time::Instant::now();
    while begin.elapsed() < Duration::from_secs(14) {
        for service in Service::ALL {
            let client = stack.process(service).client()?;
            for path in ["/health/live", "/health/ready", "/metrics"] {
                client.ops_get(path).await?;
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let new = &collector.spans()[before..];
    assert!(new.is_empty(), "{new:#?}");
    Ok(())
}

#[tokio::test]
async fn a_collector_that_refuses_or_never_answers_costs_spans_and_nothing_else() -> anyhow::Result<()> {
    for answer in [Answer::Refuses, Answer::Never] {
        let collector = Collector::start_as(answer).await?;
        let stack = Stack::start(Settings::default().otlp(collector.endpoint())).await?;
        for _ in 0..5 {
            let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
            comes_to(&stack, &placed, "completed").await?;
        }
        if answer == Answer::Refuses {
            eventually(SOON, "the lost spans are counted", async || {
                let text = stack.order().client()?.ops_get("/metrics").await?.text;
                let failed = crate::figures::value(&text, &["telemetry_spans_failed_total"]);
                Ok(if failed.is_some_and(|failed| failed > 0.0) { State::Reached(()) } else { State::pending(failed) })
            })
            .await?;
        }
        for service in Service::ALL {
            // The harness allows what the services promise.
            let status = stack.process(service).terminate().await?;
            assert!(status.success(), "{service:?} with a collector that {answer:?}: {status}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_real_jaeger_finds_the_whole_order_by_its_correlation_id() -> anyhow::Result<()> {
    let directory = jaeger_directory()?;
    let Some(jaeger) = Jaeger::start(&directory).await? else {
        writeln!(std::io::stderr(), "DID NOT RUN: no Jaeger program on this machine (name one with JAEGER=path)")?;
        return Ok(());
    };
    let stack = Stack::start(Settings::default().otlp(jaeger.endpoint())).await?;
    let mut body = order("KEYBOARD", 1, "pm_ok", "standard");
    body["customerId"] = "c-jaeger".into();
    let placed = place(&stack, &body).await?;
    comes_to(&stack, &placed, "completed").await?;
    eventually(SOON, "Jaeger has one whole trace", async || {
        let traces = jaeger.traces("order", "correlation.id", &placed.correlation).await?;
        let services: BTreeSet<String> = traces.iter().flat_map(services_of).collect();
        let found = traces.len() == 1
            && SERVICES.iter().all(|service| services.contains(*service))
            && missing_parents(&traces[0]) == 0
            && spans_of(&traces[0]).len() >= 15;
        Ok(if found { State::Reached(()) } else { State::pending((traces.len(), services)) })
    })
    .await
}

fn spans_of(trace: &Value) -> Vec<&Value> {
    trace["spans"].as_array().map(|spans| spans.iter().collect()).unwrap_or_default()
}

fn services_of(trace: &Value) -> Vec<String> {
    let processes = trace["processes"].as_object().cloned().unwrap_or_default();
    processes.values().filter_map(|process| Some(process["serviceName"].as_str()?.to_owned())).collect()
}

fn missing_parents(trace: &Value) -> usize {
    let spans = spans_of(trace);
    let ids: BTreeSet<&str> = spans.iter().filter_map(|span| span["spanID"].as_str()).collect();
    let references = spans.iter().filter_map(|span| span["references"].as_array()).flatten();
    references
        .filter(|reference| reference["refType"] == "CHILD_OF")
        .filter(|reference| !reference["spanID"].as_str().is_some_and(|id| ids.contains(id)))
        .count()
}

/// Beside the logs of the run: it goes with them.
fn jaeger_directory() -> anyhow::Result<std::path::PathBuf> {
    let programs = e2e::stack::programs()?;
    let target = programs.parent().context("the target directory")?;
    let directory = target.join(e2e::stack::LOGS).join("jaeger");
    std::fs::create_dir_all(&directory)?;
    Ok(directory)
}
