//! Publishing a batch and learning what the broker did with each message. One task publishes on one channel, every
//! confirm is awaited, and returned messages are told by their id: the client attaches a return to whichever confirm
//! completes next, so a single confirm says nothing about its own message.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::{MaybeDone, join_all, maybe_done};
use lapin::message::BasicReturnMessage;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{Channel, Confirmation, Connection};
use tokio::time::timeout_at;

use super::rows::Row;
use super::span::{BatchSpan, PublishSpan};
use super::wire;
use crate::error::Failure;
use crate::hold;
use crate::topology::{Exchange, declare_exchange};

/// After so many batches in a row without all confirms in time somebody else shall try.
const PATIENCE: u32 = 2;

/// A channel in confirm mode, reopened when the broker closes it.
pub(super) struct Publisher<'a> {
    process: &'a str,
    connection: &'a Connection,
    exchanges: &'static [Exchange],
    confirm_deadline: Duration,
    channel: Channel,
    overdue: u32,
}

/// What the broker did with the rows of a batch. A row in neither is unknown and is sent again.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) taken: BTreeSet<i64>,
    pub(super) refused: HashMap<i64, String>,
    /// Some confirms did not come in time: write the others down, then [`Publisher::give_up_waiting`].
    pub(super) is_overdue: bool,
}

/// How publishing on one channel ended.
enum Ended {
    Well,
    /// The broker closed the channel: all that was in flight is unknown.
    Closed(String),
    /// Not all confirms came in time.
    Overdue,
}

impl<'a> Publisher<'a> {
    pub(super) async fn open(
        process: &'a str,
        connection: &'a Connection,
        exchanges: &'static [Exchange],
        confirm_deadline: Duration,
    ) -> Result<Publisher<'a>, Failure> {
        let channel = open_channel(connection, exchanges, confirm_deadline).await?;
        Ok(Publisher { process, connection, exchanges, confirm_deadline, channel, overdue: 0 })
    }

    /// Publishes all rows together. If the broker closes the channel over one of them, they are sent again one by
    /// one, and the row over which it closes again is the one that is refused. That may take many channels: what is
    /// not sent within the deadline of a batch is unknown, and comes again when the rest is written down. A longer
    /// pass would lose the database session to its idle time-out, every time.
    pub(super) async fn publish(&mut self, rows: &[Row]) -> Result<Outcome, Failure> {
        let mut outcome = Outcome::default();
        match self.publish_together(rows, &mut outcome).await? {
            Ended::Well => self.overdue = 0,
            Ended::Overdue => {
                outcome.is_overdue = true;
                let is_silent = outcome.taken.is_empty() && outcome.refused.is_empty();
                self.overdue = if is_silent { self.overdue + 1 } else { 0 };
            }
            Ended::Closed(_) => {
                let begun = Instant::now();
                self.reopen().await?;
                for row in rows.chunks(1) {
                    if outcome.refused.contains_key(&row[0].id) {
                        continue;
                    }
                    if begun.elapsed() > self.confirm_deadline {
                        break;
                    }
                    match self.publish_together(row, &mut outcome).await? {
                        Ended::Well => {}
                        Ended::Overdue => {
                            outcome.is_overdue = true;
                            break;
                        }
                        Ended::Closed(reason) => {
                            outcome.refused.insert(row[0].id, reason);
                            self.reopen().await?;
                        }
                    }
                }
            }
        }
        Ok(outcome)
    }

    async fn publish_together(&self, rows: &[Row], outcome: &mut Outcome) -> Result<Ended, Failure> {
        let batch = BatchSpan::start(rows);
        let mut spans: Vec<PublishSpan> = rows.iter().map(|row| batch.publish(row)).collect();
        let confirms = confirm_all(&self.channel, self.process, rows, &spans, self.confirm_deadline).await;
        let mut closed = None;
        let mut is_overdue = false;
        let mut acked = Vec::new();
        let mut returned = HashMap::new();
        for (confirm, (row, span)) in confirms.into_iter().zip(rows.iter().zip(&mut spans)) {
            let (is_acked, message) = match confirm {
                Confirm::InTime(confirm) => match confirm {
                    Ok(Confirmation::Ack(message)) => (Some(true), message),
                    Ok(Confirmation::Nack(message)) => (Some(false), message),
                    Ok(Confirmation::NotRequested) => {
                        return Err(Failure::permanent("relay.no_confirms", "the channel is not in confirm mode"));
                    }
                    Err(error) => {
                        span.fail("the channel was closed");
                        closed.get_or_insert(error);
                        continue;
                    }
                },
                Confirm::Late(message) => {
                    span.fail("no confirm in time");
                    is_overdue = true;
                    (None, message)
                }
            };
            if let Some(message) = message {
                let id = message.properties.message_id().as_ref().map(ToString::to_string).unwrap_or_default();
                returned.insert(id, format!("unroutable: {}", message.reply_text));
            }
            match is_acked {
                Some(true) => acked.push(row),
                Some(false) => {
                    span.fail("refused");
                    outcome.refused.insert(row.id, "the broker refused the message".to_owned());
                }
                None => {}
            }
        }
        if let Some(error) = closed {
            // A return that belongs to a confirmed message may have got lost with the channel: nothing is certain.
            return if self.connection.status().connected() {
                Ok(Ended::Closed(error.to_string()))
            } else {
                Err(Failure::from(error))
            };
        }
        let failed: HashSet<i64> = acked
            .iter()
            .filter_map(|row| {
                let reason = returned.remove(&row.event_id.to_string())?;
                outcome.refused.insert(row.id, reason);
                Some(row.id)
            })
            .collect();
        outcome.taken.extend(acked.iter().map(|row| row.id).filter(|id| !failed.contains(id)));
        for (row, span) in rows.iter().zip(&mut spans) {
            if let Some(reason) = outcome.refused.get(&row.id) {
                span.fail(reason);
            }
        }
        Ok(if is_overdue { Ended::Overdue } else { Ended::Well })
    }

    /// Late confirms must not meet new rows: the channel goes, and after two such batches without any confirm the
    /// relay steps down.
    pub(super) async fn give_up_waiting(&mut self) -> Result<(), Failure> {
        metrics::counter!("outbox_confirms_overdue_total").increment(1);
        if self.overdue >= PATIENCE {
            return Err(Failure::unavailable("broker.no_confirms", "the broker does not confirm in time"));
        }
        self.reopen().await
    }

    async fn reopen(&mut self) -> Result<(), Failure> {
        let closing = self.channel.close(200, "reopening".into());
        drop(tokio::time::timeout(Duration::from_millis(500), closing).await);
        self.channel = open_channel(self.connection, self.exchanges, self.confirm_deadline).await?;
        Ok(())
    }
}

/// Each call has the whole deadline: over a slow link they come one after another.
async fn open_channel(connection: &Connection, exchanges: &[Exchange], deadline: Duration) -> Result<Channel, Failure> {
    let channel = answered(deadline, connection.create_channel()).await?;
    answered(deadline, channel.confirm_select(ConfirmSelectOptions::default())).await?;
    for exchange in exchanges {
        answered(deadline, declare_exchange(&channel, *exchange)).await?;
    }
    Ok(channel)
}

async fn answered<T, E>(deadline: Duration, call: impl Future<Output = Result<T, E>>) -> Result<T, Failure>
where
    Failure: From<E>,
{
    match tokio::time::timeout(deadline, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Failure::unavailable("broker.channel_timeout", "the broker did not open a channel in time")),
    }
}

/// What came of one publish by the deadline.
enum Confirm {
    /// The broker answered, or the channel ended.
    InTime(Result<Confirmation, lapin::Error>),
    /// It had not. A returned message may be there all the same, of another row that was confirmed.
    Late(Option<BasicReturnMessage>),
}

/// Writes every frame before it waits for the first confirm; polled within this one task, so tags stay in order.
///
/// The client attaches a returned message to whichever confirm completes next, and the broker returns a message before
/// it confirms it. So when a row's confirm is there, its return is with a confirm that was complete by then. Those are
/// all read: first every confirm that is there by the deadline, then, for their returns only, what has come since.
async fn confirm_all(
    channel: &Channel,
    process: &str,
    rows: &[Row],
    spans: &[PublishSpan],
    within: Duration,
) -> Vec<Confirm> {
    let deadline = Instant::now() + within;
    let writing = join_all(rows.iter().zip(spans).map(|(row, span)| write(channel, process, row, span)));
    let Ok(written) = timeout_at(deadline.into(), writing).await else {
        return rows.iter().map(|_| Confirm::Late(None)).collect();
    };
    hold::point("relay.published").await;
    let confirmed = &AtomicUsize::new(0);
    let mut confirming: Vec<_> = written
        .into_iter()
        .map(|written| {
            Box::pin(maybe_done(async move {
                let confirm = written?.await;
                if confirmed.fetch_add(1, Ordering::Relaxed) + 1 < rows.len() {
                    hold::point("relay.some_confirmed").await;
                }
                confirm
            }))
        })
        .collect();
    let all = timeout_at(deadline.into(), join_all(confirming.iter_mut().map(|confirm| confirm.as_mut()))).await;
    if all.is_err() {
        poll_once(&mut confirming).await;
    }
    let in_time: Vec<_> = confirming.iter_mut().map(|confirm| confirm.as_mut().take_output()).collect();
    if all.is_err() {
        poll_once(&mut confirming).await;
    }
    let late = confirming.iter_mut().map(|confirm| match confirm.as_mut().take_output() {
        Some(Ok(Confirmation::Ack(message) | Confirmation::Nack(message))) => message,
        Some(Ok(Confirmation::NotRequested) | Err(_)) | None => None,
    });
    in_time.into_iter().zip(late).map(|(in_time, late)| in_time.map_or(Confirm::Late(late), Confirm::InTime)).collect()
}

/// Gives each that is not done one chance to be.
async fn poll_once<F: Future>(all: &mut [Pin<Box<MaybeDone<F>>>]) {
    for one in all.iter_mut().filter(|one| matches!(***one, MaybeDone::Future(_))) {
        let _ = futures::poll!(one.as_mut());
    }
}

async fn write(
    channel: &Channel,
    process: &str,
    row: &Row,
    span: &PublishSpan,
) -> Result<impl Future<Output = Result<Confirmation, lapin::Error>>, lapin::Error> {
    // Mandatory: what no queue takes comes back instead of being dropped.
    let options = BasicPublishOptions { mandatory: row.mandatory, ..BasicPublishOptions::default() };
    let exchange = row.exchange.as_str().into();
    let routing_key = row.routing_key.as_str().into();
    channel.basic_publish(exchange, routing_key, options, &wire::body(row), wire::properties(process, row, span)).await
}
