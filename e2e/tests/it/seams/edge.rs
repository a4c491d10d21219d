//! Deaths between a request and its answer: whoever asked hears nothing, asks again, and it is done once.

use anyhow::ensure;
use e2e::{Action, Service, Stack};
use serde_json::{Value, json};

use super::death::{Death, arm, dies, rises};
use super::table::{How, SEAMS, Seam};
use crate::shop::{Placed, books_balance, comes_to, operate, order, place, place_under};

/// All of them.
pub(crate) async fn edges(stack: &Stack) -> anyhow::Result<Vec<Death>> {
    let mut deaths = Vec::new();
    for seam in SEAMS {
        let (service, recognised, end) = match seam.how {
            How::Placing => (Service::Order, placing(stack, seam).await?, "completed"),
            How::Cancelling => (Service::Order, cancelling(stack, seam).await?, "cancelled"),
            How::Settling => (Service::Order, settling(stack, seam).await?, "settled"),
            How::Receiving => (Service::Inventory, receiving(stack, seam).await?, "taken in once"),
            _ => continue,
        };
        let direction = seam.directions[0];
        deaths.push(Death { seam, direction, service: Some(service), deaths: 1, recognised, end });
        books_balance(stack).await?;
    }
    Ok(deaths)
}

/// Asks, and the service dies at the point before it answers.
async fn unanswered<T>(
    stack: &Stack,
    service: Service,
    seam: &Seam,
    asking: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<()> {
    arm(stack, service, seam.point, Action::Abort)?;
    let (answer, died) = tokio::join!(asking, dies(stack, service, seam.point));
    died?;
    ensure!(answer.is_err(), "{}: it answered before it died", seam.point);
    rises(stack, service).await
}

async fn count(stack: &Stack, sql: &str) -> anyhow::Result<i64> {
    Ok(stack.database.value(sql).await?.as_i64().unwrap_or_default())
}

async fn placing(stack: &Stack, seam: &Seam) -> anyhow::Result<i64> {
    let body = order("KEYBOARD", 1, "pm_ok", "standard");
    let orders = count(stack, "select count(*) from orders.orders").await?;
    unanswered(stack, Service::Order, seam, stack.order().post("/orders", &body, seam.point)).await?;
    // Order, saga, key and command are there, or none of them.
    let written = format!(
        "select count(*) from orders.idempotency_keys k
         join orders.sagas s on s.id::text = k.body ->> 'sagaId'
         join orders.orders o on o.id = s.order_id
         join orders.outbox_log c on c.saga_id = s.id and c.event_type = 'CapturePayment'
         where k.key = '{}'",
        seam.point
    );
    let recognised = count(stack, &written).await?;
    ensure!(count(stack, "select count(*) from orders.orders").await? == orders + recognised, "half an order");
    let placed = place_under(stack, &body, seam.point).await?;
    comes_to(stack, &placed, "completed").await?;
    ensure!(count(stack, "select count(*) from orders.orders").await? == orders + 1, "not one order");
    Ok(recognised)
}

async fn state(stack: &Stack, placed: &Placed) -> anyhow::Result<Value> {
    stack.database.value(&format!("select state from orders.sagas where id = '{}'", placed.saga)).await
}

async fn cancelling(stack: &Stack, seam: &Seam) -> anyhow::Result<i64> {
    stack.payment().pause()?;
    let placed = place(stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    let path = format!("/orders/{}/cancel", placed.order);
    unanswered(stack, Service::Order, seam, stack.order().post(&path, &json!({}), "k")).await?;
    let recognised = i64::from(state(stack, &placed).await? == "compensating");
    let again = stack.order().post(&path, &json!({}), "k").await?;
    ensure!(again.status == 202, "the repeated cancel is answered with {} {}", again.status, again.text);
    stack.payment().resume()?;
    comes_to(stack, &placed, "cancelled").await?;
    let asked = format!(
        "select count(*) from orders.outbox_log where saga_id = '{}' and event_type = 'RefundPayment'",
        placed.saga
    );
    ensure!(count(stack, &asked).await? == 1, "the undo is asked once");
    Ok(recognised)
}

async fn settling(stack: &Stack, seam: &Seam) -> anyhow::Result<i64> {
    let placed = place(stack, &order("UNICORN", 1, "pm_refund_fails", "standard")).await?;
    comes_to(stack, &placed, "needs_attention").await?;
    unanswered(stack, Service::Order, seam, operate(stack, &placed, "settle", "payment", false)).await?;
    let (status, again) = operate(stack, &placed, "settle", "payment", false).await?;
    ensure!(status == 200, "the repeated act is answered with {status} {again}");
    comes_to(stack, &placed, "settled").await?;
    let acts = format!("select count(*) from orders.operator_actions where target::text = '{}'", placed.saga);
    ensure!(count(stack, &acts).await? == 1, "the act is written down once");
    Ok(i64::from(again["already"] == true))
}

async fn receiving(stack: &Stack, seam: &Seam) -> anyhow::Result<i64> {
    let (path, body) = ("/stock/MOUSE/receipts", json!({"quantity": 3}));
    let received = "select received from inventory.stock where sku = 'MOUSE'";
    let before = count(stack, received).await?;
    unanswered(stack, Service::Inventory, seam, stack.inventory().post(path, &body, seam.point)).await?;
    let recognised = (count(stack, received).await? - before) / 3;
    let again = stack.inventory().post(path, &body, seam.point).await?;
    ensure!(again.status == 200, "the repeated receipt is answered with {} {}", again.status, again.text);
    ensure!(count(stack, received).await? == before + 3, "taken in once");
    Ok(recognised)
}
