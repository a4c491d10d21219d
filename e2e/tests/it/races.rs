//! Many at once: the last piece, deadlines that meet answers.

use std::time::Duration;

use e2e::{Action, Service, Stack, State, eventually};
use futures::future::try_join_all;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::shop::{SOON, books_balance, comes_to, order, patient, place};
use crate::stranger::Stranger;

async fn states(stack: &Stack) -> anyhow::Result<Value> {
    stack
        .database
        .value(
            "select coalesce(jsonb_object_agg(state, n), '{}') from
                (select state, count(*) as n from orders.sagas group by state) s",
        )
        .await
}

/// Waits until no saga is under way any more.
pub(crate) async fn all_end(stack: &Stack) -> anyhow::Result<Value> {
    eventually(Duration::from_secs(60), "every saga has ended", async || {
        let states = states(stack).await?;
        let open = ["running", "compensating"].iter().any(|state| states.get(state).is_some());
        Ok(if open { State::pending(states) } else { State::Reached(states) })
    })
    .await
}

#[tokio::test]
async fn the_last_piece_is_sold_once_to_fifty_customers() -> anyhow::Result<()> {
    let stack = Stack::start(patient()).await?;
    try_join_all((0..50).map(|_| async { place(&stack, &order("LAST_ONE", 1, "pm_ok", "standard")).await })).await?;
    assert_eq!(all_end(&stack).await?, json!({"completed": 1, "cancelled": 49}));
    books_balance(&stack).await?;
    let stock = stack.inventory().get("/stock/LAST_ONE").await?;
    assert_eq!((stock.body["available"].as_i64(), stock.body["shipped"].as_i64()), (Some(0), Some(1)));
    Ok(())
}

#[tokio::test]
async fn ten_pieces_are_never_oversold_by_crosswise_orders() -> anyhow::Result<()> {
    let stack = Stack::start(patient()).await?;
    stack.inventory().post("/stock/UNICORN/receipts", &json!({"quantity": 10}), "r").await?;
    stack.inventory().post("/stock/LAST_ONE/receipts", &json!({"quantity": 9}), "s").await?;
    let another = stack.another(Service::Inventory).await?;
    let bodies = (0..100).map(|n| {
        let (first, second) = if n % 2 == 0 { ("UNICORN", "LAST_ONE") } else { ("LAST_ONE", "UNICORN") };
        let mut body = order(first, n % 3 + 1, "pm_ok", "standard");
        body["items"] = json!([{"sku": first, "quantity": n % 3 + 1}, {"sku": second, "quantity": 1}]);
        body
    });
    try_join_all(bodies.map(|body| {
        let stack = &stack;
        async move { place(stack, &body).await }
    }))
    .await?;
    all_end(&stack).await?;
    books_balance(&stack).await?;
    for sku in ["UNICORN", "LAST_ONE"] {
        let stock = stack.inventory().get(&format!("/stock/{sku}")).await?;
        assert!(stock.body["available"].as_i64() >= Some(0), "{}", stock.text);
        assert_eq!(stock.body["received"], 10);
    }
    drop(another);
    Ok(())
}

#[tokio::test]
async fn a_do_and_an_undo_that_meet_in_two_copies_of_a_service_agree() -> anyhow::Result<()> {
    let stack = Stack::start(patient()).await?;
    let another = stack.another(Service::Payment).await?;
    // The first copy has charged, and its transaction is open, when the other is asked to undo.
    stack.payment().holds().arm("consumer.before_commit", Action::Hold)?;
    let held = loop {
        // The broker deals them out in turn.
        let placed = place(&stack, &order("MOUSE", 1, "pm_ok", "standard")).await?;
        let reached = stack.payment().holds().wait_reached("consumer.before_commit");
        if tokio::time::timeout(Duration::from_secs(2), reached).await.is_ok() {
            break placed;
        }
    };
    stack.order().post(&format!("/orders/{}/cancel", held.order), &json!({}), "k").await?;
    let stranger = Stranger::at(&stack).await?;
    let waiting = "select count(*) from pg_stat_activity where datname = current_database()
                   and wait_event_type = 'Lock' and query like '%insert into payments%'";
    eventually(SOON, "an undo meets a do", async || {
        let waiting = stack.database.value(waiting).await?;
        if waiting == json!(1) {
            return Ok(State::Reached(()));
        }
        // If it was the first copy's turn: the same once more, for the other.
        let again = json!({
            "eventId": Uuid::now_v7(), "eventType": "RefundPayment", "schemaVersion": 1, "aggregateType": "Order",
            "aggregateId": held.order, "correlationId": held.correlation, "sagaId": held.saga,
            "occurredAt": "2026-01-01T00:00:00Z", "payload": {"orderId": held.order},
        });
        stranger.send_envelope("payment.commands", &again).await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        Ok(State::pending(waiting))
    })
    .await?;
    stack.payment().holds().release("consumer.before_commit")?;
    all_end(&stack).await?;
    books_balance(&stack).await?;
    drop(another);
    Ok(())
}

/// Waits until somebody waits for a lock with a statement like this.
async fn waits_for_a_lock(stack: &Stack, statement: &str) -> anyhow::Result<()> {
    let waiting = format!(
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
         and query ilike '%{statement}%'"
    );
    eventually(SOON, &format!("somebody waits for a lock: {statement}"), async || {
        let waiting = stack.database.value(&waiting).await?;
        Ok(if waiting == json!(0) { State::pending(waiting) } else { State::Reached(()) })
    })
    .await
}

#[tokio::test]
async fn an_answer_that_meets_its_deadline_waits_for_the_saga_and_is_late() -> anyhow::Result<()> {
    let stack = Stack::start(patient().set(Service::Order, "STEP_DEADLINE_MS", "2000")).await?;
    stack.payment().pause()?;
    stack.order().holds().arm("deadline.locked", Action::Hold)?;
    let placed = place(&stack, &order("MOUSE", 1, "pm_ok", "standard")).await?;
    // The deadline is acted on, and not committed, when the answer comes.
    stack.order().holds().wait_reached("deadline.locked").await?;
    stack.payment().resume()?;
    waits_for_a_lock(&stack, "sagas").await?;
    stack.order().holds().release("deadline.locked")?;
    let cancelled = comes_to(&stack, &placed, "cancelled").await?;
    assert_eq!(cancelled["steps"][0]["ignored"]["kind"], "late", "{cancelled:#}");
    books_balance(&stack).await
}

#[tokio::test]
async fn the_last_piece_that_two_copies_want_at_once_is_sold_once() -> anyhow::Result<()> {
    let stack = Stack::start(patient()).await?;
    let another = stack.another(Service::Inventory).await?;
    stack.inventory().holds().arm("consumer.before_commit", Action::Hold)?;
    let mut orders = Vec::new();
    // The broker deals them out in turn: one copy is about to sell it when the other is asked.
    for _ in 0..6 {
        orders.push(place(&stack, &order("LAST_ONE", 1, "pm_ok", "standard")).await?);
    }
    stack.inventory().holds().wait_reached("consumer.before_commit").await?;
    waits_for_a_lock(&stack, "stock").await?;
    stack.inventory().holds().release("consumer.before_commit")?;
    let ends = all_end(&stack).await?;
    assert_eq!(ends, json!({"completed": 1, "cancelled": 5}));
    books_balance(&stack).await?;
    drop(another);
    Ok(())
}

#[tokio::test]
async fn a_deadline_that_meets_its_answer_has_one_legal_end() -> anyhow::Result<()> {
    // About as long as a step takes, so that either may come first.
    let stack = Stack::start(patient().set(Service::Order, "STEP_DEADLINE_MS", "25")).await?;
    // A thousand deadlines, three in each order.
    for _ in 0..17 {
        try_join_all((0..20).map(|_| async { place(&stack, &order("MOUSE", 1, "pm_ok", "standard")).await })).await?;
    }
    let ends = all_end(&stack).await?;
    books_balance(&stack).await?;
    let cancelled = ends["cancelled"].as_i64().unwrap_or_default();
    assert!(cancelled > 0, "no deadline was met: {ends}");
    let late = "select coalesce(sum(ignored_count), 0) from orders.saga_steps where ignored_kind = 'late'";
    assert!(stack.database.value(late).await?.as_f64() > Some(0.0), "no answer came late: {ends}");
    Ok(())
}

#[tokio::test]
async fn a_deadline_long_after_the_end_changes_nothing() -> anyhow::Result<()> {
    let stack = Stack::start(patient()).await?;
    let placed = place(&stack, &order("MOUSE", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &placed, "completed").await?;
    stack.database.execute("update orders.saga_steps set deadline = now() - interval '1 hour'").await?;
    let second = place(&stack, &order("MOUSE", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &second, "completed").await?;
    comes_to(&stack, &placed, "completed").await?;
    books_balance(&stack).await
}
