//! From the log alone: what failed, at which step, at which attempt, how far the undo got; and nothing that must not
//! be there.

use e2e::{Service, Stack};
use serde_json::Value;

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
