//! Messages that nobody can read, or that somebody made to do harm.

use e2e::{Servers, Settings, Stack, State, eventually};
use lapin::BasicProperties;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::shop::{SOON, books_balance_with, comes_to, order, place, queue_is_empty};
use crate::stranger::Stranger;

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
        queue_is_empty(&stack, queue).await?;
        let kept = format!(
            "select count(*) from {schema}.inbox where consumer = '{queue}' and status = 'parked'
             and error_class = 'Permanent' and error_code is not null and last_error is not null and body is not null"
        );
        assert_eq!(stack.database.value(&kept).await?, json!(7), "{queue}");
        let bytes = format!(
            "select count(*) from {schema}.inbox where consumer = '{queue}' and body in ('\\xfffe00', 'not json')"
        );
        assert_eq!(stack.database.value(&bytes).await?, json!(2), "{queue}: the original bytes");
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
        let parked = stack.database.value(parked).await?;
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
    let (good, state) = ("0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=value,".repeat(200));
    let texts = [state.as_str(), &format!("cc-{good}-and-more"), &format!("00-{}", good.to_uppercase())];
    let values = texts.map(|text| AMQPValue::LongString(text.into())).into_iter().chain([
        AMQPValue::LongString("".into()),
        AMQPValue::LongString(long.as_str().into()),
        AMQPValue::LongString("00-00000000000000000000000000000000-0000000000000000-01".into()),
        AMQPValue::LongLongInt(7),
        AMQPValue::ByteArray(vec![0, 255].into()),
        AMQPValue::FieldTable(FieldTable::default()),
    ]);
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
        let done =
            stack.database.value("select count(*) from inventory.reservations where status = 'released'").await?;
        Ok(if done == json!(9) { State::Reached(()) } else { State::pending(done) })
    })
    .await?;
    let longest = "select coalesce(max(length(headers::text)), 0) from inventory.outbox_log";
    let longest = stack.database.value(longest).await?.as_i64().unwrap_or_default();
    assert!(longest < 1_000, "a row's headers grew to {longest} bytes");
    Ok(())
}
