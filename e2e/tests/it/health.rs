//! Health turns when something breaks, and back when it is whole again, within what is promised.

use std::time::Duration;

use e2e::{Action, Servers, Service, Settings, Stack, State, eventually};
use reqwest::Method;

use crate::shop::{SOON, comes_to, order, place};

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
    let message = serde_json::json!({"routing_key": "payment", "payload": "nobody can read this", "payload_encoding": "string",
                                     "properties": {"message_id": "unreadable-1"}});
    stack.vhost.call(Method::POST, &exchange, Some(message)).await?;
    eventually(SOON, "it is parked", async || {
        let parked = stack.database.value("select count(*) from payments.inbox where status = 'parked'").await?;
        Ok(if parked == 1 { State::Reached(()) } else { State::pending(parked) })
    })
    .await?;
    turns(&stack, Service::Payment, "ready").await
}
