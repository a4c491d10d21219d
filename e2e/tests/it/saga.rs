//! The saga from end to end: what a customer orders is shipped, or undone without a trace in the books.

use e2e::{Settings, Stack};
use serde_json::json;

use crate::shop::{books_balance, comes_to, impatient, operate, order, place, step, switch};

#[tokio::test]
async fn an_order_is_paid_reserved_and_shipped() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let placed = place(&stack, &order("KEYBOARD", 2, "pm_ok", "standard")).await?;
    let shipped = comes_to(&stack, &placed, "completed").await?;
    assert_eq!(shipped["total"], json!({"amount": 15800, "currency": "EUR"}));
    for name in ["payment", "inventory", "shipping"] {
        assert_eq!(step(&shipped, name, "do")["status"], "done", "{shipped:#}");
        assert!(step(&shipped, name, "undo").is_null(), "{shipped:#}");
    }
    books_balance(&stack).await?;
    let payment = stack.payment().get(&format!("/payments/{}", placed.order)).await?;
    assert_eq!((payment.body["status"].as_str(), payment.body["amount"].as_i64()), (Some("captured"), Some(15800)));
    let shipment = stack.shipping().get(&format!("/shipments/{}", placed.order)).await?;
    assert_eq!(shipment.body["status"], "created");
    let stock = stack.inventory().get("/stock/KEYBOARD").await?;
    assert_eq!((stock.body["reserved"].as_i64(), stock.body["shipped"].as_i64()), (Some(0), Some(2)));
    let timeline = stack.order().get(&format!("/orders/{}/timeline", placed.order)).await?;
    let told = timeline.text.matches("\"published\"").count();
    assert!(told >= 6, "three commands and three events: {}", timeline.text);
    let entries = timeline.body["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
    let place = |kind: &str, what: &str| entries.iter().position(|one| one["kind"] == kind && one["what"] == what);
    let cause = [place("processed", "PaymentCaptured"), place("answered", "CapturePayment")];
    assert!(cause[0] < cause[1] && cause[1] < place("written", "ReserveStock"), "{}", timeline.text);
    Ok(())
}

#[tokio::test]
async fn a_refund_that_fails_waits_for_a_person_who_retries_it() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let placed = place(&stack, &order("UNICORN", 1, "pm_refund_fails", "standard")).await?;
    let waiting = comes_to(&stack, &placed, "needs_attention").await?;
    assert_eq!(step(&waiting, "payment", "undo")["error"], "payment.undo_refused");
    let (status, dry) = operate(&stack, &placed, "retry", "payment", true).await?;
    assert_eq!((status, &dry["lastAttempt"], &dry["command"]), (200, &json!("refused"), &json!("RefundPayment")));
    let (status, _) = operate(&stack, &placed, "retry", "payment", false).await?;
    assert_eq!(status, 200);
    let again = comes_to(&stack, &placed, "needs_attention").await?;
    assert_eq!(step(&again, "payment", "undo")["attempts"], 2);
    let (status, acted) = operate(&stack, &placed, "settle", "payment", false).await?;
    assert_eq!((status, &acted["status"]), (200, &json!("settled")));
    comes_to(&stack, &placed, "settled").await?;
    let (status, refused) = operate(&stack, &placed, "retry", "payment", false).await?;
    assert_eq!((status, &refused["code"]), (409, &json!("saga.not_waiting")));
    let cancel = stack.order().post(&format!("/orders/{}/cancel", placed.order), &json!({}), "k").await?;
    assert_eq!((cancel.status, &cancel.body["code"]), (409, &json!("order.settled")));
    let acts = stack.database.value("select jsonb_agg(verb order by id) from orders.operator_actions").await?;
    assert_eq!(acts, json!(["retry", "settle"]), "a dry run is no act");
    let timeline = stack.order().client()?.ops_get(&format!("/ops/timeline/{}", placed.order)).await?;
    let told = |kind: &str, what: &str| {
        let entries = timeline.body["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
        entries.iter().filter(|entry| entry["kind"] == kind && entry["what"] == what).count()
    };
    let both = (told("processed", "RefundFailed"), told("written", "RefundPayment"));
    assert_eq!((both, told("operator", "retry"), told("operator", "settle")), ((2, 2), 1, 1), "{}", timeline.text);
    // The first attempt is still there, and who did what.
    assert_eq!((told("asked", "RefundPayment"), told("answered", "RefundPayment")), (2, 2), "{}", timeline.text);
    assert!(timeline.text.contains("payment, by "), "{}", timeline.text);
    books_balance(&stack).await
}

#[tokio::test]
async fn an_operators_request_that_is_repeated_never_settles_another_step() -> anyhow::Result<()> {
    let stack = Stack::start(impatient()).await?;
    switch(&stack, "recall_refused", 1.0).await?;
    let placed = place(&stack, &order("MOUSE", 1, "pm_refund_fails", "timeout_created")).await?;
    let waiting = comes_to(&stack, &placed, "needs_attention").await?;
    assert_eq!(step(&waiting, "shipping", "undo")["error"], "shipping.undo_refused");
    let (status, acted) = operate(&stack, &placed, "settle", "shipping", false).await?;
    assert_eq!((status, &acted["already"]), (200, &json!(false)));
    let waiting = comes_to(&stack, &placed, "needs_attention").await?;
    assert_eq!(step(&waiting, "payment", "undo")["error"], "payment.undo_refused");
    // Its answer was lost, so the operator asks again: the payment is not what was meant.
    let (status, again) = operate(&stack, &placed, "settle", "shipping", false).await?;
    assert_eq!((status, &again["already"], &again["status"]), (200, &json!(true), &json!("needs_attention")));
    let (status, refused) = operate(&stack, &placed, "retry", "shipping", false).await?;
    assert_eq!((status, &refused["code"]), (409, &json!("saga.not_waiting")));
    let acts = stack.database.value("select jsonb_agg(verb order by id) from orders.operator_actions").await?;
    assert_eq!(acts, json!(["settle"]));
    comes_to(&stack, &placed, "needs_attention").await.map(drop)
}

#[tokio::test]
async fn a_refused_recall_is_retried_after_its_cause_is_lifted_and_ends_as_cancelled() -> anyhow::Result<()> {
    let stack = Stack::start(impatient()).await?;
    switch(&stack, "recall_refused", 1.0).await?;
    let placed = place(&stack, &order("MOUSE", 1, "pm_ok", "timeout_created")).await?;
    let waiting = comes_to(&stack, &placed, "needs_attention").await?;
    assert!(step(&waiting, "payment", "undo").is_null(), "while a parcel may travel nothing is refunded");
    switch(&stack, "recall_refused", 0.0).await?;
    let (status, _) = operate(&stack, &placed, "retry", "shipping", false).await?;
    assert_eq!(status, 200);
    comes_to(&stack, &placed, "cancelled").await?;
    books_balance(&stack).await
}

#[tokio::test]
async fn a_customer_cancels_while_a_step_is_under_way() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    stack.payment().pause()?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    let path = format!("/orders/{}/cancel", placed.order);
    for _ in 0..2 {
        let answer = stack.order().post(&path, &json!({}), "k").await?;
        assert_eq!((answer.status, &answer.body["status"]), (202, &json!("cancelling")), "{}", answer.text);
    }
    stack.payment().resume()?;
    let cancelled = comes_to(&stack, &placed, "cancelled").await?;
    assert_eq!(cancelled["reason"], json!({"code": "customer", "errorType": "Business"}));
    books_balance(&stack).await?;

    let shipped = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &shipped, "completed").await?;
    let answer = stack.order().post(&format!("/orders/{}/cancel", shipped.order), &json!({}), "k").await?;
    assert_eq!((answer.status, &answer.body["code"]), (409, &json!("order.already_shipped")));
    books_balance(&stack).await
}
