//! Acts on messages that a consumer keeps in its inbox. The consumer looks once a second, so what is taken up again
//! runs soon. A message that runs just now is left alone: its run decides.

use std::collections::HashMap;

use sqlx::PgConnection;
use uuid::Uuid;

use super::look::{Kept, list_kept};
use super::{Act, Left, Outcome, Touched, link, record};
use crate::consumer::raw::origin;
use crate::error::Failure;

/// What to do with a kept message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Run it now. What was parked, skipped or discarded is taken up again, with all its attempts before it.
    Retry,
    /// Set it aside: it holds the later ones of its key no more, and can be taken up again.
    Skip,
    /// Throw it away: it is purged by age.
    Discard,
}

impl Verb {
    /// Its name in `operator_actions`.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Retry => "retry message",
            Verb::Skip => "skip message",
            Verb::Discard => "discard message",
        }
    }
}

/// What a verb means for a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Decision {
    Becomes(&'static str),
    Already(&'static str),
    Impossible(&'static str),
}

fn decide(verb: Verb, status: &str, is_running: bool) -> Decision {
    use Decision::{Already, Becomes, Impossible};
    match (verb, status) {
        (_, "done") => Impossible("it is done: its effect is there"),
        (Verb::Retry, "retrying") if is_running => Already("it runs just now"),
        (_, "retrying") if is_running => Impossible("it runs just now: ask again when that run has ended"),
        (Verb::Retry, "waiting") => Impossible("it waits behind an earlier one: act on that one"),
        (Verb::Retry, _) => Becomes("retrying"),
        (Verb::Skip, "skipped") => Already("it is skipped"),
        (Verb::Skip, "discarded") => Impossible("it is discarded and holds nobody: retry takes it up again"),
        (Verb::Skip, _) => Becomes("skipped"),
        (Verb::Discard, "discarded") => Already("it is discarded"),
        (Verb::Discard, _) => Becomes("discarded"),
    }
}

/// Does this to every message that is meant, [`MOST`](super::MOST) at most.
///
/// # Errors
/// As the database says; then nothing is done.
pub async fn act(
    transaction: &mut PgConnection,
    verb: Verb,
    which: &Kept,
    act: &Act,
    limit: i64,
) -> Result<Outcome, Failure> {
    let meant = list_kept(transaction, which, limit).await?;
    let (consumers, ids): (Vec<String>, Vec<String>) =
        meant.iter().map(|line| (line.consumer.clone(), line.message_id.clone())).unzip();
    let was: HashMap<_, _> =
        meant.iter().map(|line| ((line.consumer.as_str(), line.message_id.as_str()), line.status.as_str())).collect();
    // Once more, under the lock: what is decided on is what is changed.
    let locked = sqlx::query!(
        r#"select i.consumer, i.message_id, i.message_type, i.key, i.status,
                  i.status = 'retrying' and i.unfinished > 0 and i.next_attempt_at > now() as "is_running!",
                  i.properties
           from inbox i join unnest($1::text[], $2::text[]) as m(consumer, message_id) using (consumer, message_id)
           order by i.message_id for update of i"#,
        &consumers,
        &ids
    )
    .fetch_all(&mut *transaction)
    .await?;
    let mut outcome = Outcome::of(act, limit, meant.len());
    let mut origins = Vec::new();
    for row in locked {
        if was.get(&(row.consumer.as_str(), row.message_id.as_str())) != Some(&row.status.as_str()) {
            let why = format!("it has become {} meanwhile: ask again", row.status);
            outcome.unchanged.push(Left { message_id: row.message_id, why, already: false });
            continue;
        }
        match decide(verb, &row.status, row.is_running) {
            Decision::Becomes(now) => {
                origins.extend(row.properties.as_ref().map(origin));
                outcome.changed.push(Touched {
                    message_id: row.message_id,
                    message_type: row.message_type,
                    place: row.consumer,
                    saga_id: Uuid::parse_str(&row.key).ok(),
                    was: row.status,
                    now: now.to_owned(),
                });
            }
            Decision::Already(why) => {
                outcome.unchanged.push(Left { message_id: row.message_id, why: why.to_owned(), already: true });
            }
            Decision::Impossible(why) => {
                outcome.unchanged.push(Left { message_id: row.message_id, why: why.to_owned(), already: false });
            }
        }
    }
    if act.is_dry_run || outcome.changed.is_empty() {
        return Ok(outcome);
    }
    sqlx::query!(
        r#"update inbox i
           set status = m.status,
               attempts = case when m.status = 'retrying' and i.status <> 'retrying' then 0 else i.attempts end,
               unfinished = case when m.status = 'retrying' and i.status = 'retrying' then i.unfinished else 0 end,
               next_attempt_at = case when m.status = 'retrying' then now() end,
               finished_at = case when m.status = 'discarded' then now() end
           from unnest($1::text[], $2::text[], $3::text[]) as m(consumer, message_id, status)
           where i.consumer = m.consumer and i.message_id = m.message_id"#,
        &outcome.changed.iter().map(|touched| touched.place.clone()).collect::<Vec<_>>(),
        &outcome.changed.iter().map(|touched| touched.message_id.clone()).collect::<Vec<_>>(),
        &outcome.changed.iter().map(|touched| touched.now.clone()).collect::<Vec<_>>()
    )
    .execute(&mut *transaction)
    .await?;
    link(origins.into_iter());
    record(transaction, verb.name(), act, &outcome.entries()).await?;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verb_is_possible_where_it_means_something_and_does_nothing_twice() {
        use Decision::{Already, Becomes, Impossible};
        let expected = |verb: Verb, status: &str, is_running: bool| match (verb, status) {
            (Verb::Retry, "parked" | "skipped" | "discarded") => Becomes("retrying"),
            (Verb::Retry, "retrying") if !is_running => Becomes("retrying"),
            (Verb::Skip, "waiting" | "parked") | (Verb::Skip, "retrying") if !is_running => Becomes("skipped"),
            (Verb::Discard, "waiting" | "parked" | "skipped") => Becomes("discarded"),
            (Verb::Discard, "retrying") if !is_running => Becomes("discarded"),
            (Verb::Retry, "retrying") | (Verb::Skip, "skipped") | (Verb::Discard, "discarded") => Already(""),
            _ => Impossible(""),
        };
        for verb in [Verb::Retry, Verb::Skip, Verb::Discard] {
            for status in ["done", "waiting", "retrying", "parked", "skipped", "discarded"] {
                for is_running in [false, true] {
                    if is_running && status != "retrying" {
                        continue;
                    }
                    let without_words = match decide(verb, status, is_running) {
                        Already(_) => Already(""),
                        Impossible(_) => Impossible(""),
                        becomes @ Becomes(_) => becomes,
                    };
                    assert_eq!(without_words, expected(verb, status, is_running), "{verb:?} {status} {is_running}");
                }
            }
        }
    }
}
