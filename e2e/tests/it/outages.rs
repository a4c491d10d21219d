//! Our own broker and database go away and come back: orders wait, nothing is lost, nothing is counted against them.

use std::time::Duration;

use e2e::{Proxy, Servers, Service, Settings, Stack, State, eventually};
use serde_json::json;

use crate::shop::{SOON, books_balance, comes_to, order, place};

#[tokio::test]
async fn orders_are_accepted_while_the_broker_is_away_and_end_when_it_is_back() -> anyhow::Result<()> {
    let servers = Servers::start().await?;
    let stack = Stack::start(Settings::default().on(servers.coordinates())).await?;
    servers.broker.kill().await?;
    let mut waiting = Vec::new();
    for _ in 0..10 {
        waiting.push(place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?);
    }
    for placed in &waiting {
        let seen = stack.order().get(&format!("/orders/{}", placed.order)).await?;
        assert_eq!(seen.body["status"], "pending");
    }
    servers.broker.start().await?;
    for placed in &waiting {
        comes_to(&stack, placed, "completed").await?;
    }
    let burnt = "select count(*) from orders.outbox_history where attempts > 0";
    assert_eq!(stack.database.value(burnt).await?, json!(0), "an outage counts no attempt");
    books_balance(&stack).await
}

#[tokio::test]
async fn every_idle_consumer_comes_back_after_the_broker_was_killed() -> anyhow::Result<()> {
    let servers = Servers::start().await?;
    let stack = Stack::start(Settings::default().on(servers.coordinates())).await?;
    for _ in 0..2 {
        servers.broker.kill().await?;
        servers.broker.start().await?;
        // One order passes every queue: all five consumers must be there again.
        let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
        comes_to(&stack, &placed, "completed").await?;
        books_balance(&stack).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_deadline_does_not_run_while_its_command_waits_for_the_broker() -> anyhow::Result<()> {
    let servers = Servers::start().await?;
    // Longer than the others may need to find the broker again: from then on the deadline does run.
    let settings = Settings::default().on(servers.coordinates()).set(Service::Order, "STEP_DEADLINE_MS", "15000");
    let stack = Stack::start(settings).await?;
    servers.broker.kill().await?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    let deadline = "select deadline from orders.saga_steps";
    let first = stack.database.value(deadline).await?;
    eventually(SOON, "the deadline has been moved on", async || {
        let passed = stack
            .database
            .value(&format!(
                "select (deadline - '{}'::timestamptz) > interval '10 seconds' from orders.saga_steps",
                first.as_str().unwrap_or_default()
            ))
            .await?;
        Ok(if passed == json!(true) { State::Reached(()) } else { State::pending(passed) })
    })
    .await?;
    let seen = stack.order().get(&format!("/orders/{}", placed.order)).await?;
    assert_eq!(seen.body["status"], "pending", "an outage of ours cancels nobody");
    servers.broker.start().await?;
    comes_to(&stack, &placed, "completed").await?;
    books_balance(&stack).await
}

#[tokio::test]
async fn orders_go_on_after_the_database_was_restarted() -> anyhow::Result<()> {
    let servers = Servers::start().await?;
    let stack = Stack::start(Settings::default().on(servers.coordinates())).await?;
    let before = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    servers.postgres.kill().await?;
    let refused = stack.order().post("/orders", &order("KEYBOARD", 1, "pm_ok", "standard"), "during").await?;
    assert_eq!((refused.status, &refused.body["retryable"]), (503, &json!(true)), "{}", refused.text);
    assert!(refused.headers.contains_key("retry-after"));
    servers.postgres.start().await?;
    comes_to(&stack, &before, "completed").await?;
    let after = eventually(SOON, "orders are taken again", async || {
        Ok(State::Reached(place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?))
    })
    .await?;
    comes_to(&stack, &after, "completed").await?;
    books_balance(&stack).await
}

#[tokio::test]
async fn a_service_that_is_cut_off_from_the_broker_is_back_within_its_deadlines() -> anyhow::Result<()> {
    let coordinates = Servers::of_this_run()?;
    let proxy = Proxy::start(coordinates.broker.address()).await?;
    let stack = Stack::start(Settings::default().broker_through(Service::Payment, proxy.address())).await?;
    // Nothing passes, and nobody is told: only heartbeats and deadlines can find that out.
    proxy.swallow();
    let waiting = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    eventually(Duration::from_secs(40), "payment has found out", async || {
        let ready = stack.payment().client()?.ops_get("/health/ready").await?;
        Ok(if ready.status == 503 { State::Reached(()) } else { State::pending(ready.text) })
    })
    .await?;
    proxy.heal();
    comes_to(&stack, &waiting, "completed").await?;
    books_balance(&stack).await
}

#[tokio::test]
async fn services_that_are_stopped_in_the_middle_lose_nothing_and_count_no_attempt() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let mut placed = Vec::new();
    for service in Service::ALL.into_iter().filter(|service| service.has_broker()) {
        for _ in 0..10 {
            placed.push(place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?);
        }
        let status = stack.process(service).terminate().await?;
        assert!(status.success(), "{service:?}: {status}");
        stack.process(service).restart().await?;
    }
    for placed in &placed {
        comes_to(&stack, placed, "completed").await?;
    }
    for schema in ["orders", "payments", "inventory", "shipping"] {
        let parked = format!("select count(*) from {schema}.inbox where status <> 'done'");
        assert_eq!(stack.database.value(&parked).await?, json!(0), "{schema}");
    }
    books_balance(&stack).await
}
