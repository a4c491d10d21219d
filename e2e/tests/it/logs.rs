//! From the log alone: what failed, at which step, at which attempt, how far the undo got; and nothing that must not
//! be there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use e2e::{Service, Settings, Stack, workspace};
use serde_json::{Value, json};

use crate::shop::{books_balance, comes_to, impatient, order, place};

fn lines(stack: &Stack) -> Vec<Value> {
    Service::ALL
        .iter()
        .flat_map(|service| stack.process(*service).logs())
        .map(|line| serde_json::from_str(&line).unwrap_or_else(|error| panic!("no JSON: {error}: {line}")))
        .collect()
}

#[tokio::test]
async fn every_line_is_json_and_tells_what_failed_and_how_far_the_undo_got() -> anyhow::Result<()> {
    let stack = Stack::start(impatient()).await?;
    let mut body = order("MOUSE", 1, "pm_ok", "timeout");
    body["shipping"]["name"] = "Marked-Name-4711".into();
    let placed = place(&stack, &body).await?;
    comes_to(&stack, &placed, "cancelled").await?;
    books_balance(&stack).await?;
    let lines = lines(&stack);
    let of_saga: Vec<&Value> = lines.iter().filter(|line| line["correlationId"] == placed.correlation).collect();
    assert!(of_saga.len() >= 10, "{of_saga:#?}");
    for line in &of_saga {
        for field in ["timestamp", "level", "service", "message", "traceId"] {
            assert!(line[field].is_string(), "{field}: {line:#}");
        }
        assert_eq!(line["traceId"], placed.trace, "{line:#}");
    }
    let attempts: Vec<&Value> = of_saga
        .iter()
        .filter(|line| line["errorType"] == "Technical" && line["service"] == "shipping" && line["retryable"] == true)
        .map(|line| &line["attempt"])
        .collect();
    assert!(attempts.contains(&&Value::from(1)) && attempts.contains(&&Value::from(3)), "{attempts:?}");
    let answered: Vec<&&Value> = of_saga.iter().filter(|line| line["status"] == "Failed").collect();
    assert!(!answered.is_empty(), "nobody says that the step failed");
    for line in answered {
        let told = [&line["service"], &line["stepName"], &line["attempt"], &line["errorType"]];
        assert_eq!(told, [&json!("shipping"), &json!("shipping"), &json!(4), &json!("Technical")], "{line:#}");
    }
    for (step, status) in [("shipping", "compensating"), ("inventory", "compensating"), ("payment", "cancelled")] {
        let told = of_saga
            .iter()
            .any(|line| line["service"] == "order" && line["stepName"] == step && line["status"] == status);
        assert!(told, "{step} {status}");
    }
    let all = lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    assert!(!all.contains("Marked-Name-4711"), "a customer's name is in the log");
    assert!(!all.contains("operators-of-a-test"), "a secret is in the log");
    Ok(())
}

/// Fields that a line must have because it has another, and fields of every line of a saga.
#[tokio::test]
async fn every_line_of_a_saga_has_the_fields_that_the_docs_promise() -> anyhow::Result<()> {
    let stack = Stack::start(impatient()).await?;
    let shipped = place(&stack, &order("KEYBOARD", 1, "pm_flaky_2", "standard")).await?;
    comes_to(&stack, &shipped, "completed").await?;
    let undone = place(&stack, &order("UNICORN", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &undone, "cancelled").await?;
    let late = stack.order().post(&format!("/orders/{}/cancel", shipped.order), &json!({}), "late").await?;
    assert_eq!(late.status, 409, "{}", late.text);
    books_balance(&stack).await?;
    let docs = fs::read_to_string(workspace().join("docs/logs.md"))?;
    let cells = docs.lines().filter_map(|line| line.strip_prefix("| `")).filter_map(|line| line.split(" |").next());
    let told: BTreeSet<&str> =
        cells.flat_map(|cell| cell.split(['`', ',', ' '])).filter(|name| !name.is_empty()).collect();
    let mut failures = BTreeMap::new();
    for line in lines(&stack) {
        let has = |field: &str| !line[field].is_null();
        let fields =
            line.as_object().map(|line| line.keys().map(String::as_str).collect::<Vec<_>>()).unwrap_or_default();
        let is_start = line["message"] == "listening";
        let unknown: Vec<&&str> = fields.iter().filter(|field| !is_start && !told.contains(**field)).collect();
        assert!(unknown.is_empty(), "docs/logs.md does not know {unknown:?}: {line:#}");
        let is_ours = [&shipped, &undone].iter().any(|placed| line["correlationId"] == placed.correlation);
        if !is_ours {
            assert!(is_start || has("loopName") || line["service"] == "sandbox", "a line of no order: {line:#}");
            continue;
        }
        assert!(has("traceId"), "{line:#}");
        let is_third_party = line["service"] == "sandbox";
        assert!(is_third_party || has("sagaId"), "{line:#}");
        assert!(!has("httpStatus") || has("orderId"), "{line:#}");
        assert!(
            !has("eventId") || (has("attempt") && (line["service"] == "order" || has("idempotencyKey"))),
            "{line:#}"
        );
        assert!(has("errorType") == has("errorCode"), "{line:#}");
        assert!(!has("retryable") || has("errorCode"), "{line:#}");
        assert!(!has("retryable") || line["service"] == "order" || has("stepName"), "{line:#}");
        if has("retryable") {
            *failures.entry((line["eventId"].to_string(), line["attempt"].to_string())).or_insert(0) += 1;
        }
    }
    assert_eq!(failures.len(), 2, "two attempts failed: {failures:?}");
    assert!(failures.values().all(|count| *count == 1), "a failure is told once: {failures:?}");
    Ok(())
}

#[tokio::test]
async fn lines_for_a_terminal_are_one_for_each_event_with_all_ids_and_no_colours() -> anyhow::Result<()> {
    let pretty = |settings: Settings, service| settings.set(service, "SAGA_LOG", "pretty");
    let stack = Stack::start(Service::ALL.into_iter().fold(Settings::default(), pretty)).await?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &placed, "completed").await?;
    let broken = order("KEY\nBOARD\u{1b}[31m", 1, "pm_ok", "standard");
    let refused = stack.order().post("/orders", &broken, "broken\u{7f}").await;
    assert!(refused.is_err() || refused.is_ok_and(|answer| answer.status >= 400));
    books_balance(&stack).await?;
    for service in Service::ALL {
        let lines = stack.process(service).logs();
        for line in &lines {
            let (clock, rest) = line.split_at_checked(12).unwrap_or((line, ""));
            let shape: String = clock.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
            let mut words = rest.split_whitespace();
            let level = words.next().unwrap_or_default();
            let is_level = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"].contains(&level);
            assert!(shape == "00:00:00.000" && is_level && words.next() == Some(service.name()), "no event: {line:?}");
            assert!(!line.chars().any(char::is_control), "{line:?}");
        }
        let of_order: Vec<&String> = lines.iter().filter(|line| line.contains(&placed.correlation)).collect();
        assert!(!of_order.is_empty(), "{service:?} says nothing of the order");
        for line in of_order {
            assert!(line.contains(&format!("traceId=\"{}\"", placed.trace)), "{line}");
            let is_third_party = service == Service::Sandbox;
            assert!(is_third_party || line.contains(&format!("sagaId=\"{}\"", placed.saga)), "{line}");
        }
    }
    Ok(())
}
