//! The timeline of an order, as all services tell it.

use anyhow::Context as _;
use e2e::{Service, Settings, Stack, State, eventually};
use futures::future::{join, join_all};
use serde_json::{Value, json};

use crate::messages::published;
use crate::shop::{SOON, comes_to, operate, order, patient, place};
use crate::stranger::Stranger;

fn rows<'a>(timeline: &'a Value, field: &str) -> &'a [Value] {
    timeline[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Whether an entry stands there, and at which place.
fn place_of(timeline: &Value, service: &str, kind: &str, what: &str) -> Option<usize> {
    let is_it = |entry: &Value| entry["service"] == service && entry["kind"] == kind && entry["what"] == what;
    rows(timeline, "entries").iter().position(is_it)
}

fn message<'a>(timeline: &'a Value, kind: &str) -> &'a Value {
    rows(timeline, "messages").iter().find(|message| message["type"] == kind).unwrap_or(&Value::Null)
}

#[tokio::test]
async fn all_services_tell_one_timeline_in_order() -> anyhow::Result<()> {
    let stack = Stack::start(patient()).await?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_flaky_2", "standard")).await?;
    comes_to(&stack, &placed, "completed").await?;
    let path = format!("/orders/{}/timeline", placed.order);
    // Inventory hears of the end a moment later.
    let told = eventually(SOON, "every message is taken", async || {
        let told = stack.order().get(&path).await?.body;
        Ok(if message(&told, "OrderShipped")["place"] == "done" { State::Reached(told) } else { State::pending(told) })
    })
    .await?;
    let steps = [
        ("order", "placed", "order"),
        ("order", "asked", "CapturePayment"),
        ("order", "written", "CapturePayment"),
        ("payment", "received", "CapturePayment"),
        ("payment", "failed", "CapturePayment"),
        ("payment", "processed", "CapturePayment"),
        ("payment", "written", "PaymentCaptured"),
        ("order", "processed", "PaymentCaptured"),
        ("order", "answered", "CapturePayment"),
        ("order", "asked", "ReserveStock"),
        ("inventory", "processed", "ReserveStock"),
        ("order", "asked", "CreateShipment"),
        ("shipping", "processed", "CreateShipment"),
        ("order", "answered", "CreateShipment"),
        ("order", "written", "OrderShipped"),
        ("inventory", "processed", "OrderShipped"),
    ];
    let places: Vec<_> = steps.iter().map(|(service, kind, what)| place_of(&told, service, kind, what)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{steps:?} {places:?} {told}");
    // The receiver may be faster than the sender's note that the broker has it.
    let published = rows(&told, "entries").iter().filter(|entry| entry["kind"] == "published").count();
    assert_eq!(published, rows(&told, "messages").len(), "{told}");
    let failed: Vec<&Value> = rows(&told, "entries").iter().filter(|entry| entry["kind"] == "failed").collect();
    let details: Vec<&str> = failed.iter().filter_map(|entry| entry["detail"].as_str()).collect();
    assert_eq!(details, ["attempt 1: provider.unavailable (Transient)", "attempt 2: provider.unavailable (Transient)"]);
    assert_eq!((&message(&told, "CapturePayment")["attempts"], rows(&told, "missing")), (&json!(3), &[][..]));
    assert!(
        rows(&told, "messages")
            .iter()
            .all(|message| ["done", "published"].contains(&message["place"].as_str().unwrap_or_default()))
    );
    assert_eq!(told["traces"], json!([{"traceId": placed.trace, "url": null}]));
    assert!(rows(&told, "messages").iter().all(|message| message["traceId"] == placed.trace.as_str()), "{told}");
    Ok(())
}

#[tokio::test]
async fn what_came_again_or_too_late_and_what_people_did_is_told() -> anyhow::Result<()> {
    let settings = Settings::default().set(Service::Order, "STEP_DEADLINE_MS", "1500");
    let stack = Stack::start(settings).await?;
    // The answer of a frozen participant comes after its deadline.
    stack.payment().pause()?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_refund_fails", "standard")).await?;
    comes_to(&stack, &placed, "cancelling").await?;
    let path = format!("/orders/{}/timeline", placed.order);
    let told = stack.order().get(&path).await?.body;
    let missing = rows(&told, "missing");
    assert_eq!((missing.len(), &missing[0]["service"]), (1, &json!("payment")), "{told}");
    assert_eq!(message(&told, "CapturePayment")["place"], "unknown", "{told}");
    assert!(place_of(&told, "order", "overdue", "CapturePayment").is_some(), "{told}");
    stack.payment().resume()?;
    comes_to(&stack, &placed, "needs_attention").await?;
    operate(&stack, &placed, "settle", "payment", false).await?;
    comes_to(&stack, &placed, "settled").await?;
    // The same message again, by its id.
    let answers = published(&stack, "payments").await?;
    let is_it = |message: &&Value| message["eventType"] == "PaymentCaptured";
    let captured = answers.iter().find(is_it).context("the late answer")?;
    let stranger = Stranger::at(&stack).await?;
    for _ in 0..2 {
        stranger.send_envelope("order.replies", captured).await?;
    }
    let for_all = stack.order().get(&path).await?;
    assert!(for_all.text.contains("settle") && !for_all.text.contains("ada"), "{}", for_all.text);
    let path = format!("/ops/timeline/{}", placed.order);
    let told = eventually(SOON, "both repeats are told", async || {
        let told = stack.order().client()?.ops_get(&path).await?.body;
        let repeats = message(&told, "PaymentCaptured")["repeats"].clone();
        Ok(if repeats == 2 { State::Reached(told) } else { State::pending(told) })
    })
    .await?;
    let detail = |kind: &str, what: &str| {
        place_of(&told, "order", kind, what).and_then(|at| rows(&told, "entries")[at]["detail"].as_str())
    };
    assert_eq!(detail("repeated", "PaymentCaptured"), Some("came again 2 times, and was skipped"), "{told}");
    assert_eq!(detail("ignored", "PaymentCaptured"), Some("late, once: it changes nothing"), "{told}");
    assert_eq!(detail("operator", "settle"), Some("payment, by ada: the provider was called"), "{told}");
    let traces = rows(&told, "traces");
    assert_eq!((traces.len(), &traces[0]["traceId"]), (2, &json!(placed.trace)), "the operator's is another: {told}");
    Ok(())
}

#[tokio::test]
async fn timelines_that_wait_for_a_silent_service_leave_orders_their_connections() -> anyhow::Result<()> {
    let stack = Stack::start(patient()).await?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &placed, "completed").await?;
    // Whoever asks waits for it, seconds long.
    stack.payment().pause()?;
    let path = format!("/orders/{}/timeline", placed.order);
    let asked = join_all((0..40).map(|_| stack.order().get(&path)));
    let ordered = async {
        let mut accepted = 0;
        for _ in 0..10 {
            place(&stack, &order("MOUSE", 1, "pm_ok", "standard")).await?;
            accepted += 1;
        }
        anyhow::Ok(accepted)
    };
    let (answers, ordered) = join(asked, ordered).await;
    assert_eq!(ordered?, 10);
    let answers = answers.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let refused = answers.iter().filter(|answer| answer.status == 503);
    assert!(
        refused.clone().all(|answer| answer.body["code"] == "overloaded" && answer.headers.contains_key("retry-after"))
    );
    let told = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!((refused.count(), told), (40 - 8, 8), "eight at once");
    stack.payment().resume()?;
    Ok(())
}
