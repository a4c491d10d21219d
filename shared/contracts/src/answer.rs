//! Answers: what a participant says about a command. They are events, so anybody may listen.

use messaging::{Aggregate, Cause, Decode, Envelope, Failure, Message};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::step::{Outcome, Step, meaning};
use crate::topology;

/// What every answer says besides its type.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// The order.
    pub order_id: Uuid,
    /// Which run of the command gave it, counted from 1.
    pub attempts: u32,
    /// Why not, where it is a no: stable, `inventory.out_of_stock`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<String>,
    /// The third party's name for the effect, where there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reference: Option<String>,
}

/// An answer to a command of the saga.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The step it is about.
    pub step: Step,
    /// What came of it.
    pub outcome: Outcome,
    /// The rest.
    pub details: Details,
}

impl Answer {
    /// The answer as a message. `cause` is the command's: its id is what tells an answer from an earlier one.
    ///
    /// # Errors
    /// Permanent, if the step never gives this answer.
    pub fn into_message(self, cause: Cause) -> Result<Message, Failure> {
        let Some(message_type) = self.step.answer(self.outcome) else {
            let context = format!("{} never answers {:?}", self.step.name(), self.outcome);
            return Err(Failure::permanent("contract.no_such_answer", context));
        };
        let aggregate = Aggregate { kind: self.step.aggregate().into(), id: self.details.order_id.to_string() };
        let route = topology::event_route(self.step.aggregate(), message_type, true);
        Message::new(message_type, aggregate, route, &self.details, cause)
    }
}

impl Decode for Answer {
    fn decode(envelope: &Envelope) -> Result<Self, Failure> {
        match meaning(&envelope.event_type) {
            Some((step, outcome)) if envelope.schema_version == 1 => {
                Ok(Answer { step, outcome, details: envelope.payload()? })
            }
            _ => Err(messaging::unknown_type(envelope)),
        }
    }
}
