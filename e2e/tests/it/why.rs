//! `GET /ops/why/{id}` names the cause, each cause produced for real.

use anyhow::ensure;
use e2e::stack::client::Answer;
use e2e::{Action, Servers, Service, Settings, Stack, State, eventually};
use futures::future::join_all;
use reqwest::Method;
use serde_json::json;

use crate::shop::{Placed, SOON, comes_to, operate, order, place};

/// What the order service says about an order.
async fn ask(stack: &Stack, id: &str) -> anyhow::Result<Answer> {
    stack.order().client()?.ops_get(&format!("/ops/why/{id}")).await
}

/// Waits until the cause is this one, and that it comes with a sentence that has each of these words.
async fn is(stack: &Stack, placed: &Placed, cause: &str, words: &[&str]) -> anyhow::Result<()> {
    let why = eventually(SOON, &format!("the cause is {cause}"), async || {
        let answer = ask(stack, &placed.order).await?;
        Ok(if answer.body["cause"] == cause { State::Reached(answer.body) } else { State::pending(answer.text) })
    })
    .await?;
    let sentence = why["sentence"].as_str().unwrap_or_default();
    for word in words {
        ensure!(sentence.contains(word), "{word} in {why}");
    }
    ensure!(why["next"].as_str().is_some_and(|next| next.len() > 10), "what to do: {why}");
    ensure!(why["orderId"] == placed.order.as_str() && why["correlationId"] == placed.correlation.as_str(), "{why}");
    Ok(())
}

/// Waits until one of the pieces of evidence says so.
async fn has_evidence(stack: &Stack, placed: &Placed, text: &str) -> anyhow::Result<()> {
    eventually(SOON, &format!("the evidence says: {text}"), async || {
        let answer = ask(stack, &placed.order).await?;
        let evidence = answer.body["evidence"].as_array().cloned().unwrap_or_default();
        let says = evidence.iter().filter_map(|line| line.as_str()).any(|line| line.contains(text));
        Ok(if says { State::Reached(()) } else { State::pending(answer.text) })
    })
    .await
}

async fn cancel(stack: &Stack, placed: &Placed) -> anyhow::Result<()> {
    let answer = stack.order().post(&format!("/orders/{}/cancel", placed.order), &json!({}), "cancel").await?;
    ensure!(answer.status == 202, "{} {}", answer.status, answer.text);
    Ok(())
}

async fn delete_queue(stack: &Stack, queue: &str) -> anyhow::Result<()> {
    stack.vhost.call(Method::DELETE, &format!("queues/{}/{queue}", stack.vhost.name()), None).await.map(drop)
}

/// Deadlines that no test outlasts, and waits in which a person can ask.
fn slow() -> Settings {
    Settings::default()
        .set(Service::Order, "STEP_DEADLINE_MS", "600000")
        .set(Service::Order, "UNDO_DEADLINE_MS", "600000")
        .set(Service::Payment, "CALL_BACKOFF_MS", "20000")
        .set(Service::Payment, "CALL_TIMEOUT_MS", "10000")
}

#[tokio::test]
async fn an_order_that_ended_and_one_that_waits_for_a_person_say_so() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let shipped = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &shipped, "completed").await?;
    is(&stack, &shipped, "finished", &["completed"]).await?;
    let declined = place(&stack, &order("KEYBOARD", 1, "pm_declined", "standard")).await?;
    comes_to(&stack, &declined, "cancelled").await?;
    is(&stack, &declined, "finished", &["cancelled", "payment.declined"]).await?;
    let stuck = place(&stack, &order("KEYBOARD", 1, "pm_refund_fails", "rejected")).await?;
    comes_to(&stack, &stuck, "needs_attention").await?;
    is(&stack, &stuck, "needs_a_person", &["RefundPayment"]).await?;
    let why = ask(&stack, &stuck.order).await?.body;
    let next = why["next"].as_str().unwrap_or_default();
    assert!(next.contains(&format!("cargo saga ops settle {} --step payment", stuck.order)), "{next}");
    operate(&stack, &stuck, "settle", "payment", false).await?;
    is(&stack, &stuck, "finished", &["accepted"]).await
}

#[tokio::test]
async fn any_id_of_an_order_is_understood_and_no_other() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &placed, "completed").await?;
    let timeline = stack.order().get(&format!("/orders/{}/timeline", placed.order)).await?.body;
    let messages = timeline["messages"].as_array().cloned().unwrap_or_default();
    assert!(messages.len() >= 9, "{timeline}");
    let events = messages.iter().filter_map(|message| message["eventId"].as_str());
    for id in [placed.order.as_str(), &placed.saga, &placed.correlation].into_iter().chain(events) {
        let answer = ask(&stack, id).await?;
        assert_eq!((answer.status, &answer.body["orderId"]), (200, &json!(placed.order)), "{id}: {}", answer.text);
    }
    for id in ["nobody", "0192c0de-0000-7000-8000-000000000000", "%20"] {
        let answer = ask(&stack, id).await?;
        assert_eq!((answer.status, &answer.body["code"]), (404, &json!("order.not_found")), "{id}: {}", answer.text);
    }
    Ok(())
}

#[tokio::test]
async fn a_service_that_is_away_frozen_slow_or_busy_is_the_cause() -> anyhow::Result<()> {
    // Nobody needs the published rows for it.
    let stack = Stack::start(slow().set(Service::Order, "OUTBOX_AFTER_PUBLISH", "delete")).await?;
    let keyboard = order("KEYBOARD", 1, "pm_ok", "standard");
    // The provider does not answer: payment works at it.
    stack.sandbox().pause()?;
    let first = place(&stack, &keyboard).await?;
    is(&stack, &first, "waiting_for_answer", &["payment", "CapturePayment"]).await?;
    // More than payment takes at once.
    let crowd = join_all((0..400).map(|_| place(&stack, &keyboard))).await;
    let crowd = crowd.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let causes = join_all(crowd.iter().map(|placed| ask(&stack, &placed.order))).await;
    let causes =
        causes.into_iter().map(|answer| Ok(answer?.body["cause"].clone())).collect::<anyhow::Result<Vec<_>>>()?;
    assert!(causes.contains(&json!("queued")), "{causes:?}");
    stack.sandbox().resume()?;
    comes_to(&stack, &first, "completed").await?;
    // Nobody takes the command.
    stack.inventory().kill().await?;
    let second = place(&stack, &keyboard).await?;
    is(&stack, &second, "consumer_missing", &["ReserveStock", "inventory.commands"]).await?;
    delete_queue(&stack, "inventory.commands").await?;
    is(&stack, &second, "queue_missing", &["inventory.commands"]).await?;
    stack.inventory().restart().await?;
    // It is there, and hears nothing.
    stack.payment().pause()?;
    let third = place(&stack, &keyboard).await?;
    is(&stack, &third, "service_silent", &["payment"]).await?;
    stack.payment().resume()?;
    comes_to(&stack, &third, "completed").await.map(drop)
}

#[tokio::test]
async fn retries_parked_and_discarded_messages_are_the_cause() -> anyhow::Result<()> {
    let stack = Stack::start(slow().set(Service::Order, "UNDO_DEADLINE_MS", "8000")).await?;
    let keyboard = order("KEYBOARD", 1, "pm_ok", "standard");
    stack.sandbox().kill().await?;
    let placed = place(&stack, &keyboard).await?;
    is(&stack, &placed, "retrying", &["CapturePayment", "attempt 1", "provider.unreachable"]).await?;
    cancel(&stack, &placed).await?;
    is(&stack, &placed, "undo_failing", &["RefundPayment", "provider.unreachable"]).await?;
    // Overdue is not given up.
    is(&stack, &placed, "needs_a_person", &["RefundPayment", "not answered in its time"]).await?;
    has_evidence(&stack, &placed, "payment tries RefundPayment again: attempt ").await?;
    let why = ask(&stack, &placed.order).await?.text;
    assert!(why.contains("lift the cause and wait") && !why.contains("a person is called"), "{why}");
    // And where it is when nobody tries it.
    stack.payment().kill().await?;
    has_evidence(&stack, &placed, "payment is away: RefundPayment is in its queue").await?;
    stack.payment().restart().await?;
    // A table that is not there is a bug, and no retry helps.
    stack.database.execute("alter table inventory.reservations rename to aside").await?;
    stack.sandbox().restart().await?;
    let parked = place(&stack, &keyboard).await?;
    is(&stack, &parked, "parked", &["ReserveStock", "database.42P01"]).await?;
    stack.database.execute("alter table inventory.aside rename to reservations").await?;
    stack
        .database
        .execute("update inventory.inbox set status = 'discarded', finished_at = now() where status = 'parked'")
        .await?;
    is(&stack, &parked, "discarded", &["ReserveStock"]).await?;
    let timeline = stack.order().get(&format!("/orders/{}/timeline", parked.order)).await?.body;
    let entries = timeline["entries"].as_array().cloned().unwrap_or_default();
    let of_it = entries.iter().filter(|entry| entry["service"] == "inventory").map(|entry| entry["kind"].clone());
    assert_eq!(of_it.collect::<Vec<_>>(), ["received", "failed", "parked", "discarded"], "{timeline}");
    Ok(())
}

#[tokio::test]
async fn what_holds_a_message_in_the_outbox_is_the_cause() -> anyhow::Result<()> {
    let stack = Stack::start(slow()).await?;
    let keyboard = order("KEYBOARD", 1, "pm_ok", "standard");
    stack.payment().kill().await?;
    delete_queue(&stack, "payment.commands").await?;
    let placed = place(&stack, &keyboard).await?;
    is(&stack, &placed, "unroutable", &["CapturePayment", "outbox of order", "NO_ROUTE"]).await?;
    cancel(&stack, &placed).await?;
    is(&stack, &placed, "held_behind", &["RefundPayment", "CapturePayment"]).await?;
    stack.payment().restart().await?;
    comes_to(&stack, &placed, "cancelled").await?;
    stack.order().holds().arm("relay.read", Action::Hold)?;
    let placed = place(&stack, &keyboard).await?;
    is(&stack, &placed, "publishing", &["CapturePayment"]).await?;
    stack.order().holds().release("relay.read")?;
    comes_to(&stack, &placed, "completed").await?;
    // A forgotten session holds the relay's lock.
    stack.order().kill().await?;
    let mut holder = stack.database.pool().acquire().await?;
    sqlx::query("select pg_advisory_lock(hashtext('relay'), hashtext('orders'))").execute(&mut *holder).await?;
    stack.order().restart().await?;
    let placed = place(&stack, &keyboard).await?;
    is(&stack, &placed, "relay_stuck", &["CapturePayment", "holds the relay's lock"]).await?;
    sqlx::query("select pg_advisory_unlock_all()").execute(&mut *holder).await?;
    comes_to(&stack, &placed, "completed").await?;
    // The broker's administrator takes the right to publish commands away.
    let (vhost, queues) = (stack.vhost.name(), r"^(saga\.events|order\.replies)$");
    let rights = json!({"configure": ".*", "write": queues, "read": ".*"});
    stack.vhost.call(Method::PUT, &format!("permissions/{vhost}/order"), Some(rights)).await?;
    stack.order().restart().await?;
    let placed = place(&stack, &keyboard).await?;
    is(&stack, &placed, "publish_refused", &["CapturePayment", "ACCESS_REFUSED"]).await?;
    let stack = Stack::start(slow().set(Service::Order, "RELAY", "off")).await?;
    let placed = place(&stack, &keyboard).await?;
    is(&stack, &placed, "relay_not_running", &["CapturePayment", "order"]).await
}

#[tokio::test]
async fn an_answer_that_nobody_can_see_is_told_as_that() -> anyhow::Result<()> {
    let stack = Stack::start(slow().set(Service::Payment, "OUTBOX_AFTER_PUBLISH", "delete")).await?;
    stack.order().holds().arm("consumer.remembered", Action::Hold)?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    is(&stack, &placed, "answered", &["CapturePayment"]).await?;
    stack.order().holds().release("consumer.remembered")?;
    comes_to(&stack, &placed, "completed").await.map(drop)
}

#[tokio::test]
async fn a_broker_or_a_database_that_is_away_is_the_cause() -> anyhow::Result<()> {
    let servers = Servers::start().await?;
    let to_payments = e2e::Proxy::start(servers.coordinates().postgres.address()).await?;
    let settings = slow().on(servers.coordinates()).postgres_through(Service::Payment, to_payments.address());
    let stack = Stack::start(settings).await?;
    let keyboard = order("KEYBOARD", 1, "pm_ok", "standard");
    stack.inventory().kill().await?;
    let published = place(&stack, &keyboard).await?;
    is(&stack, &published, "consumer_missing", &["ReserveStock"]).await?;
    servers.broker.kill().await?;
    is(&stack, &published, "broker_away", &["ReserveStock", "is published"]).await?;
    let placed = place(&stack, &keyboard).await?;
    is(&stack, &placed, "broker_away", &["CapturePayment", "outbox of order"]).await?;
    servers.broker.start().await?;
    stack.inventory().restart().await?;
    comes_to(&stack, &placed, "completed").await?;
    servers.broker.lack_memory().await?;
    let placed = place(&stack, &keyboard).await?;
    is(&stack, &placed, "broker_blocked", &["CapturePayment", "in alarm"]).await?;
    servers.broker.have_memory().await?;
    comes_to(&stack, &placed, "completed").await?;
    to_payments.swallow();
    let placed = place(&stack, &keyboard).await?;
    is(&stack, &placed, "database_away", &["CapturePayment", "payment"]).await?;
    // Another fault that is not in this message's way yet is told beside the cause, and the cause itself only once.
    stack.inventory().kill().await?;
    has_evidence(&stack, &placed, "also, at inventory: it does not answer").await?;
    let evidence = ask(&stack, &placed.order).await?.body["evidence"].to_string();
    assert!(!evidence.contains("at payment"), "{evidence}");
    Ok(())
}
