//! The queue `inventory.events`: the end of a reservation, when its order has been shipped.

use contracts::order::OrderShipped;
use messaging::{Delivery, Failure, Handler, Ready, RetryPolicy};
use sqlx::PgConnection;

use crate::domain::Request;
use crate::reserving::{self, Asked};

/// Handles `OrderShipped`.
#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) retry: RetryPolicy,
}

impl Handler for Events {
    type Message = OrderShipped;
    type Prepared = ();
    const PREPARES: bool = false;

    async fn prepare(&self, _delivery: &Delivery<OrderShipped>) -> Result<(), Failure> {
        Ok(())
    }

    async fn apply(&self, transaction: &mut PgConnection, batch: &[Ready<OrderShipped, ()>]) -> Result<(), Failure> {
        let asked = batch
            .iter()
            .map(|ready| {
                let order_id = ready.delivery.message.0.order_id;
                ready.delivery.describe("order.id", &order_id);
                Ok(Asked { saga_id: ready.delivery.saga_id()?, order_id, request: Request::Shipped, lines: &[] })
            })
            .collect::<Result<Vec<_>, Failure>>()?;
        reserving::apply(transaction, &asked).await.map(drop)
    }

    fn retry_policy(&self, _event: &OrderShipped) -> RetryPolicy {
        self.retry
    }
}
