//! A stack is the whole shop, and a test can do to its processes what happens to them in production.

use std::time::Duration;

use e2e::{Collector, Service, Settings, Stack, State, eventually};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);

fn order() -> Value {
    json!({
        "customerId": "c-1",
        "items": [{"sku": "KEYBOARD", "quantity": 1}],
        "paymentMethod": "pm_ok",
        "shipping": {
            "service": "standard", "name": "A", "street": "B 1", "city": "C", "postalCode": "1", "country": "DE",
        },
    })
}

async fn completed(stack: &Stack, key: &str) -> anyhow::Result<String> {
    let placed = stack.order().post("/orders", &order(), key).await?;
    assert_eq!(placed.status, 202, "{}", placed.text);
    let path = format!("/orders/{}", placed.body["orderId"].as_str().unwrap_or_default());
    eventually(SOON, "the order is completed", async || {
        let seen = stack.order().get(&path).await?;
        Ok(if seen.body["status"] == "completed" { State::Reached(()) } else { State::pending(seen.body) })
    })
    .await?;
    Ok(placed.body["correlationId"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn an_order_goes_through_all_services_and_its_spans_arrive() -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let stack = Stack::start(Settings::default().otlp(collector.endpoint())).await?;

    let correlation_id = completed(&stack, "one").await?;

    eventually(SOON, "all four services have told of it", async || {
        let spans = collector.spans_with("correlation.id", &correlation_id);
        let told = |name: &str| spans.iter().any(|span| span.service == name);
        let all = ["order", "payment", "inventory", "shipping"].into_iter().all(told);
        Ok(if all { State::Reached(()) } else { State::pending(spans.len()) })
    })
    .await
}

#[tokio::test]
async fn a_process_can_be_killed_ended_frozen_and_doubled() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let address = stack.payment().client()?.url();

    stack.payment().kill().await?;
    assert!(stack.payment().get("/health").await.is_err());
    stack.payment().restart().await?;
    assert_eq!(stack.payment().client()?.url(), address);

    assert!(stack.payment().terminate().await?.success());
    stack.payment().restart().await?;

    let second = stack.another(Service::Payment).await?;
    stack.payment().pause()?;
    assert_eq!(second.client()?.ops_get("/health/ready").await?.status, 200);
    stack.payment().resume()?;

    completed(&stack, "one").await.map(drop)
}
