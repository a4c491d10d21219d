//! Our own broker and database go away and come back: orders wait, nothing is lost, nothing is counted against them.

use std::time::Duration;

use e2e::{Action, Proxy, Servers, Service, Settings, Stack, State, eventually};
use futures::future::join_all;
use serde_json::json;

use crate::shop::{SOON, books_balance, comes_to, order, patient, place};

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
async fn a_deadline_does_not_run_while_its_command_waits_in_the_outbox() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default().set(Service::Order, "STEP_DEADLINE_MS", "3000")).await?;
    // Answers could be heard, but nothing leaves.
    stack.order().holds().arm("relay.read", Action::Hold)?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    let deadline = "select deadline from orders.saga_steps";
    let first = stack.database.value(deadline).await?;
    let moved = format!(
        "select deadline > '{}'::timestamptz + interval '2 seconds' from orders.saga_steps",
        first.as_str().unwrap_or_default()
    );
    eventually(SOON, "the deadline has been moved on", async || {
        let moved = stack.database.value(&moved).await?;
        Ok(if moved == json!(true) { State::Reached(()) } else { State::pending(moved) })
    })
    .await?;
    let seen = stack.order().get(&format!("/orders/{}", placed.order)).await?;
    assert_eq!(seen.body["status"], "pending", "what was not asked is not late");
    stack.order().holds().release("relay.read")?;
    comes_to(&stack, &placed, "completed").await?;
    books_balance(&stack).await
}

#[tokio::test]
async fn a_deadline_does_not_run_while_nobody_can_hear_the_answers() -> anyhow::Result<()> {
    let servers = Servers::start().await?;
    let settings = patient().on(servers.coordinates()).set(Service::Order, "STEP_DEADLINE_MS", "8000");
    let stack = Stack::start(settings).await?;
    // The payments are captured in time, and their answers cannot travel.
    stack.payment().holds().arm("relay.read", Action::Hold)?;
    let mut waiting = Vec::new();
    for _ in 0..10 {
        waiting.push(place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?);
    }
    let captured = "select count(*) from payments.payments where status = 'captured'";
    eventually(SOON, "all payments are captured", async || {
        let captured = stack.database.value(captured).await?;
        Ok(if captured == json!(10) { State::Reached(()) } else { State::pending(captured) })
    })
    .await?;
    servers.broker.kill().await?;
    stack.payment().holds().release("relay.read")?;
    // Longer than the deadline.
    tokio::time::sleep(Duration::from_secs(11)).await;
    servers.broker.start().await?;
    for placed in &waiting {
        comes_to(&stack, placed, "completed").await?;
    }
    books_balance(&stack).await
}

#[tokio::test]
async fn one_saga_that_cannot_move_on_does_not_hold_the_deadlines_of_the_others() -> anyhow::Result<()> {
    let settings = ["STEP_DEADLINE_MS", "UNDO_DEADLINE_MS"]
        .into_iter()
        .fold(Settings::default(), |settings, deadline| settings.set(Service::Order, deadline, "2000"));
    let stack = Stack::start(settings).await?;
    stack.payment().pause()?;
    let stuck = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    // What it would have to tell is longer than any message may be.
    stack
        .database
        .execute(&format!(
            "update orders.sagas set reason_code = repeat('x', 300000) where order_id = '{}'",
            stuck.order
        ))
        .await?;
    let others = [
        place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?,
        place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?,
    ];
    for other in &others {
        comes_to(&stack, other, "needs_attention").await?;
    }
    eventually(SOON, "the saga that cannot move on is told in the log", async || {
        let told = stack
            .order()
            .logs()
            .iter()
            .any(|line| line.contains("a deadline cannot be acted on") && line.contains(&stuck.saga));
        Ok(if told { State::Reached(()) } else { State::pending("not told") })
    })
    .await?;
    stack.payment().resume()
}

#[tokio::test]
async fn a_database_that_only_reads_for_a_while_is_used_again_when_it_writes() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let database = stack.database.name().to_owned();
    let read_only = async |value: &str| {
        stack.database.execute(&format!("alter database {database} set default_transaction_read_only = {value}")).await
    };
    read_only("on").await?;
    let kill = "select count(pg_terminate_backend(pid)) from pg_stat_activity where usename like '%\\_service'
                and datname = current_database()";
    stack.database.value(kill).await?;
    // Connections are opened again, and can only read.
    let refused = eventually(SOON, "orders are refused", async || {
        let tries = (0..6).map(|_| async {
            stack.order().post("/orders", &order("KEYBOARD", 1, "pm_ok", "standard"), "read-only").await
        });
        let answers = futures::future::try_join_all(tries).await?;
        let all = answers.iter().all(|answer| answer.status == 503);
        Ok(if all { State::Reached(answers.into_iter().next()) } else { State::pending("some were taken") })
    })
    .await?;
    assert!(refused.is_some_and(|refused| refused.headers.contains_key("retry-after")));
    let ready = stack.order().client()?.ops_get("/health/ready").await?;
    assert_eq!(ready.status, 503, "{}", ready.text);
    read_only("off").await?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &placed, "completed").await?;
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

#[tokio::test]
async fn a_database_that_freezes_leaves_no_request_without_an_answer() -> anyhow::Result<()> {
    let servers = Servers::start().await?;
    let stack = Stack::start(Settings::default().on(servers.coordinates())).await?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &placed, "completed").await?;
    let path = format!("/orders/{}", placed.order);
    let ask = || join_all((0..6).map(|_| stack.order().get(&path)));
    // Connections that have just answered are trusted.
    for answer in ask().await {
        assert_eq!(answer?.status, 200);
    }
    servers.postgres.pause().await;
    for answer in ask().await {
        assert_eq!(answer?.status, 503);
    }
    servers.postgres.resume().await;
    eventually(SOON, "orders are told again", async || {
        let answer = stack.order().get(&path).await?;
        Ok(if answer.status == 200 { State::Reached(()) } else { State::pending(answer.text) })
    })
    .await
}
