//! Messages as strangers and accidents make them: twice, under another id or key, too early, too late.

use e2e::{Settings, Stack, State, eventually};
use lapin::BasicProperties;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::shop::{SOON, books_balance, books_balance_with, comes_to, order, place, queue_is_empty};
use crate::stranger::Stranger;

/// The messages of a schema's history, as they were published.
pub(crate) async fn published(stack: &Stack, schema: &str) -> anyhow::Result<Vec<Value>> {
    let sql = format!(
        "select json_build_object('eventId', event_id, 'eventType', event_type, 'schemaVersion', schema_version,
                'aggregateType', aggregate_type, 'aggregateId', aggregate_id, 'correlationId', correlation_id,
                'causationId', headers ->> 'causation-id', 'sagaId', saga_id,
                'occurredAt', to_char(created_at at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'),
                'payload', payload) as message
         from {schema}.outbox_history order by id"
    );
    let rows = stack.database.rows(&sql).await?;
    Ok(rows.into_iter().map(|row| row["message"].clone()).collect())
}

#[tokio::test]
async fn a_message_that_comes_twice_has_one_effect() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &placed, "completed").await?;
    books_balance(&stack).await?;
    let written = "select (select count(*) from orders.outbox_log) + (select count(*) from payments.outbox_log)
                        + (select count(*) from inventory.outbox_log) + (select count(*) from shipping.outbox_log)";
    let before = stack.database.value(written).await?;
    let stranger = Stranger::at(&stack).await?;
    for command in published(&stack, "orders").await? {
        let queue = match command["eventType"].as_str() {
            Some("CapturePayment") => "payment.commands",
            Some("ReserveStock") => "inventory.commands",
            Some("CreateShipment") => "shipping.commands",
            Some("OrderShipped") => "inventory.events",
            _ => continue,
        };
        stranger.send_envelope(queue, &command).await?;
    }
    for schema in ["payments", "inventory", "shipping"] {
        for answer in published(&stack, schema).await? {
            stranger.send_envelope("order.replies", &answer).await?;
        }
    }
    for queue in ["payment.commands", "inventory.commands", "shipping.commands", "inventory.events", "order.replies"] {
        queue_is_empty(&stack, queue).await?;
    }
    books_balance(&stack).await?;
    assert_eq!(stack.database.value(written).await?, before, "a message that is known says nothing again");
    Ok(())
}

#[tokio::test]
async fn the_same_intent_under_another_id_has_no_second_effect() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let shipped = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    let cancelled = place(&stack, &order("UNICORN", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &shipped, "completed").await?;
    comes_to(&stack, &cancelled, "cancelled").await?;
    books_balance(&stack).await?;
    let ledger = "select count(*) from sandbox.ledger";
    let before = stack.database.value(ledger).await?;
    let stranger = Stranger::at(&stack).await?;
    let mut sent = 0;
    for mut command in published(&stack, "orders").await? {
        let queue = match command["eventType"].as_str() {
            Some("CapturePayment" | "RefundPayment") => "payment.commands",
            Some("ReserveStock" | "ReleaseStock") => "inventory.commands",
            Some("CreateShipment" | "CancelShipment") => "shipping.commands",
            Some("OrderShipped") => "inventory.events",
            _ => continue,
        };
        command["eventId"] = json!(Uuid::now_v7());
        stranger.send_envelope(queue, &command).await?;
        sent += 1;
    }
    assert!(sent >= 6);
    // Every answer to them is ignored, in whatever state its saga is: none is an error.
    books_balance(&stack).await?;
    assert_eq!(stack.database.value(ledger).await?, before);
    comes_to(&stack, &shipped, "completed").await?;
    comes_to(&stack, &cancelled, "cancelled").await?;
    Ok(())
}

#[tokio::test]
async fn no_answer_is_an_error_in_a_saga_that_has_ended() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let shipped = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    let cancelled = place(&stack, &order("KEYBOARD", 1, "pm_ok", "rejected")).await?;
    comes_to(&stack, &shipped, "completed").await?;
    comes_to(&stack, &cancelled, "cancelled").await?;
    let stranger = Stranger::at(&stack).await?;
    for placed in [&shipped, &cancelled] {
        for (aggregate, answer) in [
            ("Payment", "PaymentCaptured"),
            ("Payment", "PaymentDeclined"),
            ("Payment", "PaymentFailed"),
            ("Payment", "PaymentRefunded"),
            ("Payment", "RefundFailed"),
            ("Inventory", "StockReserved"),
            ("Inventory", "StockRejected"),
            ("Inventory", "StockReleased"),
            ("Shipping", "ShipmentCreated"),
            ("Shipping", "ShipmentRejected"),
            ("Shipping", "ShipmentFailed"),
            ("Shipping", "ShipmentCancelled"),
            ("Shipping", "CancelShipmentFailed"),
        ] {
            let envelope = json!({
                "eventId": Uuid::now_v7(), "eventType": answer, "schemaVersion": 1, "aggregateType": aggregate,
                "aggregateId": placed.order, "correlationId": placed.correlation, "causationId": Uuid::now_v7(),
                "sagaId": placed.saga, "occurredAt": "2026-01-01T00:00:00Z", "extra": "accepted",
                "payload": {"orderId": placed.order, "attempts": 1, "code": "x.y"},
            });
            stranger.send_envelope("order.replies", &envelope).await?;
        }
    }
    queue_is_empty(&stack, "order.replies").await?;
    books_balance(&stack).await?;
    let shipped = comes_to(&stack, &shipped, "completed").await?;
    let ignored = &shipped["steps"][0]["ignored"];
    assert!(ignored["count"].as_i64() >= Some(2), "late and repeated answers are recorded: {shipped:#}");
    comes_to(&stack, &cancelled, "cancelled").await?;
    Ok(())
}

#[tokio::test]
async fn an_answer_under_the_key_of_another_service_is_parked_and_changes_nothing() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    stack.payment().pause()?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    let stranger = Stranger::at(&stack).await?;
    let id = Uuid::now_v7();
    let envelope = json!({
        "eventId": id, "eventType": "PaymentCaptured", "schemaVersion": 1, "aggregateType": "Payment",
        "aggregateId": placed.order, "correlationId": placed.correlation, "sagaId": placed.saga,
        "occurredAt": "2026-01-01T00:00:00Z", "payload": {"orderId": placed.order, "attempts": 1},
    });
    // Shipping's key: the broker would let shipping do this.
    let properties = BasicProperties::default().with_message_id(id.to_string().into());
    stranger.publish("saga.events", "Shipping.PaymentCaptured", envelope.to_string().as_bytes(), properties).await?;
    let parked = "select count(*) from orders.inbox where status = 'parked' and error_code = 'message.wrong_sender'";
    eventually(SOON, "it is parked", async || {
        let parked = stack.database.value(parked).await?;
        Ok(if parked == json!(1) { State::Reached(()) } else { State::pending(parked) })
    })
    .await?;
    stack.payment().resume()?;
    comes_to(&stack, &placed, "completed").await?;
    books_balance_with(&stack, 1).await
}

#[tokio::test]
async fn an_answer_that_is_faster_than_its_saga_is_tried_again_and_counts() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let stranger = Stranger::at(&stack).await?;
    let (order_id, saga_id, command_id) = (Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7());
    let envelope = json!({
        "eventId": Uuid::now_v7(), "eventType": "PaymentDeclined", "schemaVersion": 1, "aggregateType": "Payment",
        "aggregateId": order_id, "correlationId": "early", "causationId": command_id, "sagaId": saga_id,
        "occurredAt": "2026-01-01T00:00:00Z", "payload": {"orderId": order_id, "attempts": 1, "code": "payment.declined"},
    });
    stranger.send_envelope("order.replies", &envelope).await?;
    eventually(SOON, "the early answer waits in the inbox", async || {
        let rows = stack.database.rows("select status, error_code from orders.inbox where status = 'retrying'").await?;
        Ok(if rows.len() == 1 { State::Reached(()) } else { State::pending(rows) })
    })
    .await?;
    stack
        .database
        .execute(&format!(
            "insert into orders.orders (id, saga_id, customer_id, correlation_id, total_amount, currency,
                 payment_method, shipping, lines)
             values ('{order_id}', '{saga_id}', 'c-1', 'early', 100, 'EUR', 'pm_ok',
                 '{{\"service\": \"standard\", \"name\": \"a\", \"street\": \"a\", \"city\": \"a\", \"postalCode\": \"a\",
                    \"country\": \"DE\"}}', '[]');
             insert into orders.sagas (id, order_id, state, step) values ('{saga_id}', '{order_id}', 'running', 'payment');
             insert into orders.saga_steps (saga_id, step, direction, status, command_id, deadline)
             values ('{saga_id}', 'payment', 'do', 'asked', '{command_id}', now() + interval '1 minute')"
        ))
        .await?;
    eventually(SOON, "the early answer counts", async || {
        let rows = stack.database.rows("select state from orders.sagas where state = 'cancelled'").await?;
        Ok(if rows.len() == 1 { State::Reached(()) } else { State::pending(rows) })
    })
    .await
}
