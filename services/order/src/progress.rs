//! Moves sagas on: decides events by the pure transition and writes state, steps and messages. Every way into a saga
//! goes through here: answers, deadlines, the customer's cancel, an operator's verbs. The caller holds the sagas' row
//! locks and commits.

use contracts::order::OrderDetails as OrderFacts;
use contracts::step::{Direction, Step};
use messaging::{Cause, Failure, Message, outbox};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::definition::{self, Deadlines};
use crate::domain::{self, Event, Ignored, Transition};
use crate::figures;
use crate::store::moves::{self, Ask, Change, Marked, Moves, Start};
use crate::store::sagas::{Locked, OrderDetails};
use crate::store::steps::{self, IgnoredAnswer, StepRow};

/// Something that happened to a saga.
pub(crate) struct Happening<'a> {
    pub(crate) saga: &'a Locked,
    pub(crate) event: Event,
    pub(crate) cause: Cause,
    pub(crate) answer: Option<Answered>,
}

/// What an answer says besides its event.
pub(crate) struct Answered {
    pub(crate) message_type: String,
    pub(crate) direction: Direction,
    pub(crate) step: Step,
    pub(crate) claimed: domain::Status,
    pub(crate) code: Option<String>,
    pub(crate) handler_attempts: i32,
}

/// What became of a happening.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Became {
    Moved(Transition),
    Ignored(Ignored),
    Nothing,
}

/// What is to be written, statement by statement.
#[derive(Default)]
struct Writes {
    moves: Moves,
    ignored: Vec<IgnoredAnswer>,
    messages: Vec<Message>,
}

/// Decides each happening and writes all of them together. `rows` are the sagas' steps, read under
/// the lock.
pub(crate) async fn advance(
    connection: &mut PgConnection,
    deadlines: &Deadlines,
    rows: &[StepRow],
    happenings: Vec<Happening<'_>>,
) -> Result<Vec<Became>, Failure> {
    let mut writes = Writes::default();
    let mut became = Vec::with_capacity(happenings.len());
    let begun: Vec<_> = happenings.iter().map(|happening| happening.saga.created_at).collect();
    for happening in happenings {
        let locked = happening.saga;
        became.push(match domain::transition(locked.saga, happening.event) {
            Some(transition) => {
                writes.change(locked, &happening, transition);
                let reason = reason_of(locked, &happening);
                writes.follow(deadlines, locked.id, &locked.order, transition, reason, happening.cause)?;
                Became::Moved(transition)
            }
            None => writes.record_ignored(rows, &happening),
        });
    }
    moves::save(connection, &writes.moves).await?;
    steps::ignore(connection, &writes.ignored).await?;
    outbox::append(connection, &writes.messages).await?;
    for (created_at, moved) in begun.into_iter().zip(&became) {
        if let Became::Moved(transition) = moved {
            figures::record(transition.saga.state, created_at);
        }
    }
    Ok(became)
}

/// Writes new orders and their sagas, with the first command and event of each.
pub(crate) async fn start(
    connection: &mut PgConnection,
    deadlines: &Deadlines,
    starts: &[Start<'_>],
) -> Result<(), Failure> {
    let transition = domain::start();
    let mut writes = Writes::default();
    for Start { saga_id, order, cause, .. } in starts {
        writes.follow(deadlines, *saga_id, order, transition, None, cause.clone())?;
    }
    if writes.moves.asks.len() != starts.len() {
        return Err(Failure::permanent("saga.start", "a saga begins with one command"));
    }
    moves::begin(connection, starts, transition.saga, &writes.moves.asks).await?;
    outbox::append(connection, &writes.messages).await
}

impl Writes {
    fn change(&mut self, locked: &Locked, happening: &Happening<'_>, transition: Transition) {
        let answer = happening.answer.as_ref();
        let code = answer.and_then(|answer| answer.code.clone());
        let reason = domain::reason(happening.event, code.as_deref());
        self.moves.changes.push(Change { id: locked.id, saga: transition.saga, reason });
        if let Some((step, direction, status)) = transition.mark {
            self.moves.marks.push(Marked {
                saga_id: locked.id,
                step,
                direction,
                status,
                is_answered: answer.is_some(),
                code,
                handler_attempts: answer.map(|answer| answer.handler_attempts),
            });
        }
    }

    fn follow(
        &mut self,
        deadlines: &Deadlines,
        saga_id: Uuid,
        order: &OrderDetails,
        transition: Transition,
        reason: Option<String>,
        cause: Cause,
    ) -> Result<(), Failure> {
        if let Some((step, direction)) = transition.command {
            let message = definition::command(step, direction, saga_id, order, cause.clone())?;
            let time = deadlines.of(direction);
            self.moves.asks.push(Ask { saga_id, step, direction, command_id: message.id, time });
            self.messages.push(message);
        }
        if let Some(event) = transition.event {
            let facts = OrderFacts { order_id: order.id, reason };
            self.messages.push(event.into_message(&facts, cause)?);
        }
        Ok(())
    }

    fn record_ignored(&mut self, rows: &[StepRow], happening: &Happening<'_>) -> Became {
        let Some(answer) = &happening.answer else { return Became::Nothing };
        let saga_id = happening.saga.id;
        let row = rows
            .iter()
            .find(|row| row.saga_id == saga_id && row.step == answer.step && row.direction == answer.direction);
        let Some(row) = row else { return Became::Nothing };
        let (step, direction) = (answer.step, answer.direction);
        let kind = domain::ignored(happening.event, answer.claimed, row.status);
        let answer_type = answer.message_type.clone();
        self.ignored.push(IgnoredAnswer { saga_id, step, direction, answer: answer_type, kind });
        if let Some((step, direction, status)) = domain::shown(happening.saga.saga, happening.event, row.status) {
            self.moves.marks.push(Marked {
                saga_id,
                step,
                direction,
                status,
                is_answered: true,
                code: answer.code.clone(),
                handler_attempts: Some(answer.handler_attempts),
            });
        }
        metrics::counter!("saga_answers_ignored_total", "kind" => kind.name()).increment(1);
        Became::Ignored(kind)
    }
}

/// The saga's reason: the one it has, else the one that it gets now.
fn reason_of(locked: &Locked, happening: &Happening<'_>) -> Option<String> {
    let code = happening.answer.as_ref().and_then(|answer| answer.code.as_deref());
    locked.reason_code.clone().or_else(|| domain::reason(happening.event, code).map(|(code, _)| code))
}
