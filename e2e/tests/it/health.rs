//! Health turns when something breaks, and back when it is whole again, within what is promised.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use e2e::{Action, Servers, Service, Settings, Stack, State, eventually};
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::figures::value;
use crate::shop::{SOON, books_balance, comes_to, order, patient, place};

/// FAULTS: the right probe turns by then.
const TURNS_WITHIN: Duration = Duration::from_secs(15);

/// Waits until a service's readiness says this, and that it is alive all the while.
async fn turns(stack: &Stack, service: Service, status: &str) -> anyhow::Result<()> {
    eventually(TURNS_WITHIN, &format!("{} is {status}", service.name()), async || {
        let client = stack.process(service).client()?;
        let live = client.ops_get("/health/live").await?;
        assert_eq!(live.status, 200, "alive, whatever it waits for: {}", live.text);
        let ready = client.ops_get("/health/ready").await?;
        let is_right = ready.body["status"] == status && (ready.status == 200) == (status != "not_ready");
        Ok(if is_right { State::Reached(()) } else { State::pending(ready.text) })
    })
    .await
}

/// Waits until a service is not ready, and one of its loops waits for a reason with this word.
async fn waits_for(stack: &Stack, service: Service, word: &str) -> anyhow::Result<()> {
    eventually(TURNS_WITHIN, &format!("{} waits and says {word}", service.name()), async || {
        let ready = stack.process(service).client()?.ops_get("/health/ready").await?;
        let loops = ready.body["loops"].as_array().context("loops")?;
        let is_told = loops.iter().any(|one| one["reason"].as_str().is_some_and(|reason| reason.contains(word)));
        Ok(if ready.status == 503 && is_told { State::Reached(()) } else { State::pending(ready.text) })
    })
    .await
}

/// When each loop of a service last went round, as it tells Prometheus.
async fn beats(stack: &Stack, service: Service) -> anyhow::Result<BTreeMap<String, f64>> {
    let client = stack.process(service).client()?;
    let (ready, figures) = (client.ops_get("/health/ready").await?, client.ops_get("/metrics").await?);
    let loops = ready.body["loops"].as_array().context("loops")?;
    let names = loops.iter().filter_map(|one| one["name"].as_str());
    let beat = |name: &str| {
        let parts = ["messaging_loop_last_beat_timestamp_seconds", &format!("loop=\"{name}\"")];
        Ok((name.to_owned(), value(&figures.text, &parts).with_context(|| format!("{name} has no beat"))?))
    };
    names.map(beat).collect()
}

const WITH_BROKER: [Service; 4] = [Service::Order, Service::Payment, Service::Inventory, Service::Shipping];

#[tokio::test]
async fn readiness_goes_with_broker_and_database_and_comes_back_with_them() -> anyhow::Result<()> {
    let servers = Servers::start().await?;
    let stack = Stack::start(Settings::default().on(servers.coordinates())).await?;
    servers.broker.kill().await?;
    for service in WITH_BROKER {
        turns(&stack, service, "not_ready").await?;
    }
    turns(&stack, Service::Sandbox, "ready").await?;
    servers.broker.start().await?;
    for service in WITH_BROKER {
        turns(&stack, service, "ready").await?;
    }
    servers.postgres.kill().await?;
    for service in Service::ALL {
        turns(&stack, service, "not_ready").await?;
    }
    servers.postgres.start().await?;
    for service in Service::ALL {
        turns(&stack, service, "ready").await?;
        let before = beats(&stack, service).await?;
        assert!(!before.is_empty(), "{service:?} has loops");
        eventually(SOON, "each loop goes round again", async || {
            let now = beats(&stack, service).await?;
            let all = before.iter().all(|(name, beat)| now.get(name).is_some_and(|later| later > beat));
            Ok(if all { State::Reached(()) } else { State::pending((&before, now)) })
        })
        .await?;
    }
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &placed, "completed").await.map(drop)
}

#[tokio::test]
async fn a_queue_that_was_deleted_is_there_again_before_anybody_must_be_told() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    stack.vhost.call(Method::DELETE, &format!("queues/{}/payment.commands", stack.vhost.name()), None).await?;
    turns(&stack, Service::Payment, "ready").await?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &placed, "completed").await.map(drop)
}

#[tokio::test]
async fn rows_that_wait_for_minutes_degrade_and_a_parked_message_does_not() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    stack.order().holds().arm("relay.read", Action::Hold)?;
    place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    turns(&stack, Service::Order, "ready").await?;
    stack.database.execute("update orders.outbox set created_at = created_at - interval '6 minutes'").await?;
    turns(&stack, Service::Order, "degraded").await?;
    stack.order().holds().release("relay.read")?;
    turns(&stack, Service::Order, "ready").await?;

    let exchange = format!("exchanges/{}/saga.commands/publish", stack.vhost.name());
    for number in 1..=5 {
        let message = json!({"routing_key": "payment", "payload": "nobody can read this", "payload_encoding": "string",
                             "properties": {"message_id": format!("unreadable-{number}")}});
        stack.vhost.call(Method::POST, &exchange, Some(message)).await?;
    }
    eventually(SOON, "all five are told as parked", async || {
        let figures = stack.payment().client()?.ops_get("/metrics").await?.text;
        let parked = value(&figures, &["inbox_open_messages", "parked"]);
        Ok(if parked == Some(5.0) { State::Reached(()) } else { State::pending(parked) })
    })
    .await?;
    turns(&stack, Service::Payment, "ready").await
}

#[tokio::test]
async fn a_broker_in_alarm_shows_where_something_is_to_be_published_and_nowhere_else() -> anyhow::Result<()> {
    let servers = Servers::start().await?;
    let stack = Stack::start(Settings::default().on(servers.coordinates())).await?;
    stack.payment().holds().arm("relay.read", Action::Hold)?;
    let mut placed = vec![place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?];
    stack.payment().holds().wait_reached("relay.read").await?;
    servers.broker.lack_memory().await?;
    stack.payment().holds().release("relay.read")?;
    for _ in 0..5 {
        placed.push(place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?);
    }
    waits_for(&stack, Service::Payment, "in alarm").await?;
    waits_for(&stack, Service::Order, "in alarm").await?;
    for service in [Service::Inventory, Service::Shipping] {
        turns(&stack, service, "ready").await?;
    }
    servers.broker.have_memory().await?;
    for service in WITH_BROKER {
        turns(&stack, service, "ready").await?;
    }
    for placed in &placed {
        comes_to(&stack, placed, "completed").await?;
    }
    books_balance(&stack).await
}

#[tokio::test]
async fn a_queue_that_is_not_ours_any_more_shows_until_it_is_gone() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let queue = format!("queues/{}/payment.commands", stack.vhost.name());
    // Faster than payment could make it again.
    stack.payment().pause()?;
    stack.vhost.call(Method::DELETE, &queue, None).await?;
    stack.vhost.call(Method::PUT, &queue, Some(json!({"durable": true}))).await?;
    stack.payment().resume()?;
    waits_for(&stack, Service::Payment, "x-queue-type").await?;
    stack.vhost.call(Method::DELETE, &queue, None).await?;
    turns(&stack, Service::Payment, "ready").await?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &placed, "completed").await.map(drop)
}

#[tokio::test]
async fn a_loop_that_panics_shows_and_goes_on_in_the_same_process() -> anyhow::Result<()> {
    let stack = Stack::start(patient().set(Service::Order, "STEP_DEADLINE_MS", "3000")).await?;
    let (holds, pid) = (stack.order().holds(), stack.order().pid()?);
    for (point, method, end) in [("relay.read", "pm_ok", "completed"), ("deadline.locked", "pm_timeout", "cancelled")] {
        holds.arm(point, Action::Panic)?;
        let placed = place(&stack, &order("KEYBOARD", 1, method, "standard")).await?;
        waits_for(&stack, Service::Order, "panicked").await?;
        holds.release(point)?;
        turns(&stack, Service::Order, "ready").await?;
        comes_to(&stack, &placed, end).await?;
    }
    assert_eq!(stack.order().pid()?, pid);
    assert!(stack.order().is_running());
    books_balance(&stack).await
}

#[tokio::test]
async fn a_handler_that_panics_again_and_again_parks_its_message_and_harms_nobody_else() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    stack.payment().holds().arm("consumer.before_commit", Action::Panic)?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    let parked = "select message_id, error_code, attempts from payments.inbox where status = 'parked'";
    let parked = eventually(SOON, "the command is parked", async || {
        let rows = stack.database.rows(parked).await?;
        Ok(if rows.len() == 1 { State::Reached(rows) } else { State::pending(rows) })
    })
    .await?;
    assert_eq!(parked[0]["error_code"], "handler.panicked", "{parked:?}");
    assert!(parked[0]["attempts"].as_i64() > Some(1), "{parked:?}");
    stack.payment().holds().release("consumer.before_commit")?;
    turns(&stack, Service::Payment, "ready").await?;
    let other = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &other, "completed").await?;
    // As the runbook takes it up again.
    let id = parked[0]["message_id"].as_str().context("an id")?;
    let again = format!(
        "update payments.inbox set status = 'retrying', attempts = 0, unfinished = 0, next_attempt_at = now()
         where message_id = '{id}'"
    );
    stack.database.execute(&again).await?;
    comes_to(&stack, &placed, "completed").await?;
    books_balance(&stack).await
}

#[tokio::test]
async fn a_service_that_is_to_end_waits_for_no_idle_or_half_sent_request() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    for service in Service::ALL {
        let mut held = Vec::new();
        let client = stack.process(service).client()?;
        for url in [client.url(), client.ops_url()] {
            let address = url.trim_start_matches("http://");
            for _ in 0..5 {
                let mut idle = TcpStream::connect(address).await?;
                idle.write_all(format!("GET /nothing HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
                assert!(idle.read(&mut [0; 4_096]).await? > 0, "an answer, and the connection stays");
                held.push(idle);
            }
            let mut half = TcpStream::connect(address).await?;
            half.write_all(
                format!("POST /orders HTTP/1.1\r\nHost: {address}\r\nContent-Length: 9\r\n\r\n{{").as_bytes(),
            )
            .await?;
            held.push(half);
        }
        let status = stack.process(service).terminate().await?;
        assert!(status.success(), "{service:?}: {status}");
        let late = |line: &&String| line.contains("did not end in time");
        assert_eq!(stack.process(service).logs().iter().find(late), None);
        drop(held);
    }
    Ok(())
}

#[tokio::test]
async fn health_and_figures_are_told_while_every_connection_for_requests_is_busy() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &placed, "completed").await?;
    // Requests hold a connection each until their lock is given up.
    let mut holder = stack.database.pool().begin().await?;
    sqlx::query("lock table orders.orders in access exclusive mode").execute(&mut *holder).await?;
    let client = stack.order().client()?;
    let path = format!("/orders/{}", placed.order);
    let requests = (0..12).map(|_| client.get(&path));
    let busy = futures::future::join_all(requests);
    let asked = async {
        eventually(SOON, "all connections are busy", async || {
            let waiting = "select count(*) from pg_stat_activity where datname = current_database()
                           and usename = 'orders_service' and wait_event_type = 'Lock'";
            let waiting = stack.database.value(waiting).await?;
            Ok(if waiting.as_i64() >= Some(6) { State::Reached(()) } else { State::pending(waiting) })
        })
        .await?;
        let ready = client.ops_get("/health/ready").await?;
        let figures = client.ops_get("/metrics").await?;
        holder.rollback().await?;
        anyhow::Ok((ready, figures))
    };
    let (answers, asked) = futures::future::join(busy, asked).await;
    let (ready, figures) = asked?;
    assert_eq!((ready.status, &ready.body["database"]), (200, &json!("up")), "{}", ready.text);
    assert!(value(&figures.text, &["outbox_pending"]).is_some(), "{}", figures.text);
    let answers = answers.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    assert!(answers.iter().all(|answer| matches!(answer.status, 200 | 503)), "{answers:?}");
    Ok(())
}
