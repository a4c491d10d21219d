//! The payment provider: capture and cancel, under one key per saga. A cancel is by that key and final, so that a
//! capture which is still on its way can no longer take effect.

use chassis::ThirdParty;
use contracts::answer::LONGEST_TEXT;
use contracts::command::CapturePayment;
use messaging::Failure;
use messaging::participant::Reply;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What the provider said.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) reply: Reply,
    /// Its name for the payment.
    pub(crate) reference: Option<String>,
    /// To a cancel: money had been taken, and went back.
    pub(crate) has_moved: bool,
}

impl Said {
    /// Nothing that we know of.
    pub(crate) fn nothing() -> Said {
        Said { reply: Reply::Silence, reference: None, has_moved: false }
    }
}

/// The provider's HTTP interface.
#[derive(Clone, Debug)]
pub(crate) struct Provider(pub(crate) ThirdParty);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CaptureRequest<'a> {
    key: String,
    order_id: Uuid,
    amount: i64,
    currency: &'a str,
    method: &'a str,
}

#[derive(Serialize)]
struct CancelRequest {
    key: String,
}

#[derive(Deserialize)]
struct Captured {
    status: CaptureStatus,
    reference: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum CaptureStatus {
    Captured,
    Declined,
    Cancelled,
}

#[derive(Deserialize)]
struct Cancelled {
    status: CancelStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum CancelStatus {
    Refunded,
    Voided,
    Refused,
}

impl Provider {
    pub(crate) async fn capture(
        &self,
        saga_id: Uuid,
        capture: &CapturePayment,
        correlation_id: &str,
    ) -> Result<Said, Failure> {
        let request = CaptureRequest {
            key: key(saga_id),
            order_id: capture.order_id,
            amount: capture.total.amount,
            currency: &capture.total.currency,
            method: &capture.payment_method,
        };
        let answer: Captured = self.0.post("/provider/captures", correlation_id, &request).await?;
        let reply = match answer.status {
            CaptureStatus::Captured => Reply::Took,
            CaptureStatus::Declined => Reply::Declined,
            CaptureStatus::Cancelled => Reply::Cancelled,
        };
        Ok(Said { reply, reference: answer.reference.filter(|it| it.len() <= LONGEST_TEXT), has_moved: false })
    }

    pub(crate) async fn cancel(&self, saga_id: Uuid, correlation_id: &str) -> Result<Said, Failure> {
        let request = CancelRequest { key: key(saga_id) };
        let answer: Cancelled = self.0.post("/provider/cancellations", correlation_id, &request).await?;
        let (reply, has_moved) = match answer.status {
            CancelStatus::Refunded => (Reply::GaveBack, true),
            CancelStatus::Voided => (Reply::GaveBack, false),
            CancelStatus::Refused => (Reply::CannotGiveBack, false),
        };
        Ok(Said { reply, reference: None, has_moved })
    }
}

/// The same for every attempt, and for do and undo.
fn key(saga_id: Uuid) -> String {
    format!("{saga_id}:payment")
}
