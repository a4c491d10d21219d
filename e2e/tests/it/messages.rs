//! Messages as strangers and accidents make them: twice, under another id, too early, unreadable.

use e2e::{Servers, Settings, Stack, State, eventually};
use lapin::BasicProperties;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::shop::{SOON, books_balance, books_balance_with, comes_to, order, place};
use crate::stranger::Stranger;

/// The messages of a schema's history, as they were published.
async fn published(stack: &Stack, schema: &str) -> anyhow::Result<Vec<Value>> {
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

async fn count(stack: &Stack, sql: &str) -> anyhow::Result<Value> {
    stack.database.value(sql).await
}

#[tokio::test]
async fn a_message_that_comes_twice_has_one_effect() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &placed, "completed").await?;
    books_balance(&stack).await?;
    let written = "select (select count(*) from orders.outbox_log) + (select count(*) from payments.outbox_log)
                        + (select count(*) from inventory.outbox_log) + (select count(*) from shipping.outbox_log)";
    let before = count(&stack, written).await?;
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
        is_empty(&stack, queue).await?;
    }
    books_balance(&stack).await?;
    assert_eq!(count(&stack, written).await?, before, "a message that is known says nothing again");
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
    let before = count(&stack, ledger).await?;
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
    assert_eq!(count(&stack, ledger).await?, before);
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
    is_empty(&stack, "order.replies").await?;
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
        let parked = count(&stack, parked).await?;
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

#[tokio::test]
async fn what_nobody_can_read_is_parked_whole_and_the_queue_goes_on() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    let stranger = Stranger::at(&stack).await?;
    let id = || Uuid::now_v7().to_string();
    let envelope = |id: &str, kind: &str, version: i64| {
        json!({
            "eventId": id, "eventType": kind, "schemaVersion": version, "aggregateType": "Order", "aggregateId": "1",
            "correlationId": "poison", "sagaId": Uuid::now_v7(), "occurredAt": "2026-01-01T00:00:00Z",
            "payload": {"orderId": Uuid::now_v7()},
        })
        .to_string()
    };
    let queues = [
        ("payment.commands", "payments", "RefundPayment"),
        ("inventory.commands", "inventory", "ReleaseStock"),
        ("inventory.events", "inventory", "OrderShipped"),
        ("shipping.commands", "shipping", "CancelShipment"),
        ("order.replies", "orders", "PaymentCaptured"),
    ];
    let named = |id: &str| BasicProperties::default().with_message_id(id.into());
    for (queue, _, known) in queues {
        stranger.send(queue, b"not json", named(&id())).await?;
        stranger.send(queue, b"", BasicProperties::default()).await?;
        stranger.send(queue, &[0xff, 0xfe, 0x00], named(&id())).await?;
        stranger.send(queue, b"{}", named(&id())).await?;
        for (kind, version) in [("NobodyKnowsThis", 1), (known, 2)] {
            let id = id();
            stranger.send(queue, envelope(&id, kind, version).as_bytes(), named(&id)).await?;
        }
        // Without an id of its own: nobody could tell it from its copy.
        stranger.send(queue, envelope(&id(), known, 1).as_bytes(), BasicProperties::default()).await?;
    }
    let expected = 7 * queues.len();
    eventually(SOON, "all of them are parked", async || {
        let mut parked = 0;
        for schema in ["orders", "payments", "inventory", "shipping"] {
            let sql = format!("select count(*) from {schema}.inbox where status = 'parked'");
            parked += stack.database.value(&sql).await?.as_i64().unwrap_or_default();
        }
        Ok(if parked == expected as i64 { State::Reached(()) } else { State::pending(parked) })
    })
    .await?;
    for (queue, schema, _) in queues {
        is_empty(&stack, queue).await?;
        let kept = format!(
            "select count(*) from {schema}.inbox where consumer = '{queue}' and status = 'parked'
             and error_class = 'Permanent' and error_code is not null and last_error is not null and body is not null"
        );
        assert_eq!(count(&stack, &kept).await?, json!(7), "{queue}");
        let bytes = format!(
            "select count(*) from {schema}.inbox where consumer = '{queue}' and body in ('\\xfffe00', 'not json')"
        );
        assert_eq!(count(&stack, &bytes).await?, json!(2), "{queue}: the original bytes");
    }
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &placed, "completed").await?;
    books_balance_with(&stack, expected as i64).await
}

#[tokio::test]
async fn headers_that_are_nested_as_deep_as_a_frame_is_long_harm_nobody() -> anyhow::Result<()> {
    let stack = Stack::start(Settings::default()).await?;
    // Five bytes a level. Written by hand: to make it as a value would take as deep a stack here.
    let depth = 20_000;
    let deep = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let body = format!(
        r#"{{"routing_key": "Payment.PaymentCaptured", "payload": "{{}}", "payload_encoding": "string",
            "properties": {{"message_id": "deep", "headers": {{"deep": {deep}}}}}}}"#
    );
    let servers = Servers::of_this_run()?;
    let url = servers.management(&format!("exchanges/{}/saga.events/publish", stack.vhost.name()));
    let publish = reqwest::Client::new().post(url).basic_auth(&servers.broker.user, Some(&servers.broker.password));
    let published: Value = publish.body(body).send().await?.json().await?;
    assert_eq!(published, json!({"routed": true}));
    let parked = "select count(*) from orders.inbox where status = 'parked' and message_id = 'deep'";
    eventually(SOON, "it is parked", async || {
        let parked = count(&stack, parked).await?;
        Ok(if parked == json!(1) { State::Reached(()) } else { State::pending(parked) })
    })
    .await?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &placed, "completed").await?;
    books_balance_with(&stack, 1).await?;
    assert!(stack.order().terminate().await?.success(), "the process has lived until now");
    Ok(())
}

#[tokio::test]
async fn foreign_trace_headers_on_messages_harm_nobody() -> anyhow::Result<()> {
    use lapin::types::{AMQPValue, FieldTable};
    let stack = Stack::start(Settings::default()).await?;
    let stranger = Stranger::at(&stack).await?;
    let long = "x".repeat(10_000);
    let values = [
        AMQPValue::LongString("".into()),
        AMQPValue::LongString(long.as_str().into()),
        AMQPValue::LongString("00-00000000000000000000000000000000-0000000000000000-01".into()),
        AMQPValue::LongLongInt(7),
        AMQPValue::ByteArray(vec![0, 255].into()),
        AMQPValue::FieldTable(FieldTable::default()),
    ];
    for value in values {
        let id = Uuid::now_v7();
        let envelope = json!({
            "eventId": id, "eventType": "ReleaseStock", "schemaVersion": 1, "aggregateType": "Order",
            "aggregateId": "1", "correlationId": "foreign", "sagaId": Uuid::now_v7(),
            "occurredAt": "2026-01-01T00:00:00Z", "payload": {"orderId": Uuid::now_v7()},
        });
        let mut headers = FieldTable::default();
        for name in ["traceparent", "tracestate", "baggage"] {
            headers.insert(name.into(), value.clone());
        }
        let properties = BasicProperties::default().with_message_id(id.to_string().into()).with_headers(headers);
        stranger.send("inventory.commands", envelope.to_string().as_bytes(), properties).await?;
    }
    eventually(SOON, "each of them is done", async || {
        let done = count(&stack, "select count(*) from inventory.reservations where status = 'released'").await?;
        Ok(if done == json!(6) { State::Reached(()) } else { State::pending(done) })
    })
    .await?;
    let longest = "select coalesce(max(length(headers::text)), 0) from inventory.outbox_log";
    let longest = count(&stack, longest).await?.as_i64().unwrap_or_default();
    assert!(longest < 1_000, "a row's headers grew to {longest} bytes");
    Ok(())
}

async fn is_empty(stack: &Stack, queue: &str) -> anyhow::Result<()> {
    let path = format!("queues/{}/{queue}", stack.vhost.name());
    eventually(SOON, &format!("{queue} is empty"), async || {
        // The management API counts with a delay: what it has never counted is not known to be empty.
        let seen = stack.vhost.call(reqwest::Method::GET, &path, None).await?;
        let waiting = seen["messages"].as_i64();
        Ok(if waiting == Some(0) { State::Reached(()) } else { State::pending(seen["messages"].clone()) })
    })
    .await
}
