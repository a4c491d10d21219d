//! The carrier: create and cancel, under one key per saga. A cancel is by that key and final, so that a request which
//! is still on its way can no longer take effect.

use chassis::ThirdParty;
use contracts::answer::LONGEST_TEXT;
use contracts::command::{Address, CreateShipment, Line};
use messaging::Failure;
use messaging::participant::Reply;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What the carrier said.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) reply: Reply,
    /// Its name for the parcel.
    pub(crate) reference: Option<String>,
}

impl Said {
    /// Nothing that we know of.
    pub(crate) fn nothing() -> Said {
        Said { reply: Reply::Silence, reference: None }
    }
}

/// The carrier's HTTP interface.
#[derive(Clone, Debug)]
pub(crate) struct Carrier(pub(crate) ThirdParty);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CreateRequest<'a> {
    key: String,
    order_id: Uuid,
    service: &'a str,
    address: &'a Address,
    lines: &'a [Line],
}

#[derive(Serialize)]
struct CancelRequest {
    key: String,
}

#[derive(Deserialize)]
struct Created {
    status: CreateStatus,
    reference: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum CreateStatus {
    Created,
    Rejected,
    Cancelled,
}

#[derive(Deserialize)]
struct Cancelled {
    status: CancelStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum CancelStatus {
    Recalled,
    Cancelled,
    Refused,
}

impl Carrier {
    pub(crate) async fn create(
        &self,
        saga_id: Uuid,
        create: &CreateShipment,
        correlation_id: &str,
    ) -> Result<Said, Failure> {
        let CreateShipment { order_id, service, address, lines } = create;
        let request = CreateRequest { key: key(saga_id), order_id: *order_id, service, address, lines };
        let answer: Created = self.0.post("/carrier/shipments", correlation_id, &request).await?;
        let reply = match answer.status {
            CreateStatus::Created => Reply::Took,
            CreateStatus::Rejected => Reply::Declined,
            CreateStatus::Cancelled => Reply::Cancelled,
        };
        Ok(Said { reply, reference: answer.reference.filter(|it| it.len() <= LONGEST_TEXT) })
    }

    pub(crate) async fn cancel(&self, saga_id: Uuid, correlation_id: &str) -> Result<Said, Failure> {
        let request = CancelRequest { key: key(saga_id) };
        let answer: Cancelled = self.0.post("/carrier/cancellations", correlation_id, &request).await?;
        let reply = match answer.status {
            CancelStatus::Recalled | CancelStatus::Cancelled => Reply::GaveBack,
            CancelStatus::Refused => Reply::CannotGiveBack,
        };
        Ok(Said { reply, reference: None })
    }
}

/// The same for every attempt, and for do and undo.
fn key(saga_id: Uuid) -> String {
    format!("{saga_id}:shipping")
}
