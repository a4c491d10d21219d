//! What is old is forgotten while the shop works; what can still be asked for is not.

use e2e::{Service, Settings, Stack, State, eventually};
use serde_json::json;

use crate::shop::{SOON, books_balance, comes_to, order, place, place_under};

#[tokio::test]
async fn what_is_old_is_purged_under_load_and_the_rest_stays() -> anyhow::Result<()> {
    let mut settings = Settings::default();
    for service in [Service::Order, Service::Payment, Service::Inventory, Service::Shipping] {
        settings = settings.set(service, "CLEAN_EVERY_S", "1");
    }
    let stack = Stack::start(settings).await?;
    let keyboard = order("KEYBOARD", 1, "pm_ok", "standard");
    let first = place_under(&stack, &keyboard, "kept").await?;
    comes_to(&stack, &first, "completed").await?;
    // Three days are there ahead, in every schema.
    for schema in ["orders", "payments", "inventory", "shipping"] {
        let days = format!("select count(*) from pg_inherits where inhparent = '{schema}.outbox_history'::regclass");
        assert_eq!(stack.database.value(&days).await?, json!(1 + 3), "{schema}");
    }
    stack
        .database
        .execute(
            "insert into payments.inbox (consumer, message_id, key, message_type, received_at)
             select 'payment.commands', 'old-' || n, 'k', 'CapturePayment', now() - interval '11 days'
             from generate_series(1, 20000) as n",
        )
        .await?;
    stack
        .database
        .execute(
            "insert into orders.idempotency_keys
             select (jsonb_populate_record(k, jsonb_build_object('key', 'old-' || n, 'created_at', now() - interval '3 days'))).*
             from orders.idempotency_keys k, generate_series(1, 3000) as n where k.key = 'kept'",
        )
        .await?;
    let mut placed = Vec::new();
    for _ in 0..20 {
        placed.push(place(&stack, &keyboard).await?);
    }
    for (what, sql) in [
        ("old messages", "select count(*) from payments.inbox where message_id like 'old-%'"),
        ("old keys", "select count(*) from orders.idempotency_keys where key like 'old-%'"),
    ] {
        eventually(SOON, &format!("no {what} are left"), async || {
            let left = stack.database.value(sql).await?;
            Ok(if left == 0 { State::Reached(()) } else { State::pending(left) })
        })
        .await?;
    }
    for placed in &placed {
        comes_to(&stack, placed, "completed").await?;
    }
    // A young key still gives the first answer.
    assert_eq!(place_under(&stack, &keyboard, "kept").await?.order, first.order);
    let purged = stack.payment().client()?.ops_get("/metrics").await?.text;
    assert!(purged.contains(r#"retention_purged_rows_total{service="payment",table="inbox"} 20000"#), "{purged}");
    books_balance(&stack).await
}

#[tokio::test]
async fn a_service_that_would_forget_what_can_be_replayed_does_not_start() -> anyhow::Result<()> {
    let settings = Settings::default().set(Service::Payment, "INBOX_DAYS", "7");
    let refused = Stack::start(settings).await;
    let said = refused.err().map(|error| format!("{error:#}")).unwrap_or_default();
    assert!(said.contains("INBOX_DAYS"), "{said}");
    Ok(())
}
