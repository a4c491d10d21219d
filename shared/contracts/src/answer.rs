//! Answers: what a participant says about a command. They are events, so anybody may listen.

use messaging::{Aggregate, Cause, Decode, Envelope, Failure, Message};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::step::{Outcome, Step, meaning};
use crate::topology;

/// The longest code or reference, in bytes: it is kept, shown, and told on in events.
pub const LONGEST_TEXT: usize = 255;

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
    /// The third party's name for the effect, where there is one; at most [`LONGEST_TEXT`] bytes.
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
                if envelope.routing_key != topology::event_key(step.aggregate(), &envelope.event_type) {
                    let context = format!("{} came as {:.300}", envelope.event_type, envelope.routing_key);
                    return Err(Failure::permanent("message.wrong_sender", context));
                }
                let details: Details = envelope.payload()?;
                let texts = [details.code.as_deref(), details.reference.as_deref()];
                if texts.into_iter().flatten().any(|text| text.len() > LONGEST_TEXT) {
                    let context = format!("a text of {} is longer than {LONGEST_TEXT} bytes", envelope.event_type);
                    return Err(Failure::permanent("message.payload", context));
                }
                Ok(Answer { step, outcome, details })
            }
            _ => Err(messaging::unknown_type(envelope)),
        }
    }
}
