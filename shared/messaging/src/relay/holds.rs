//! Keeps the order within an aggregate when one of its rows cannot be published: the later rows wait behind it, at
//! its time, and nobody else's do. (A later row that was already on the wire may overtake; `sequence` tells.)

use std::collections::{HashMap, HashSet};

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::rows::{self, Failed, Row};
use crate::error::Failure;

/// The failed row at the head of each held aggregate, and when it is tried again.
pub(super) struct Holds(HashMap<(String, String), Head>);

struct Head {
    id: i64,
    until: OffsetDateTime,
}

/// What to do with a batch of rows.
pub(super) struct Sorted {
    pub(super) publish: Vec<Row>,
    pub(super) put_off: Vec<(i64, OffsetDateTime)>,
}

impl Holds {
    /// What an earlier relay has left.
    pub(super) async fn load(connection: &mut PgConnection) -> Result<Holds, Failure> {
        let held = rows::held(connection).await?;
        Ok(Holds(held.into_iter().map(|(id, kind, key, until)| ((kind, key), Head { id, until })).collect()))
    }

    /// Rows behind a failed one of their aggregate are put off or left; everything else is published.
    pub(super) fn sort(&mut self, rows: Vec<Row>) -> Sorted {
        let mut sorted = Sorted { publish: Vec::with_capacity(rows.len()), put_off: Vec::new() };
        let read: HashSet<i64> = rows.iter().map(|row| row.id).collect();
        for row in rows {
            let aggregate = key(&row);
            match self.0.get(&aggregate) {
                Some(head) if head.id == row.id => sorted.publish.push(row),
                Some(head) if row.is_fresh => sorted.put_off.push((row.id, head.until)),
                // Its head comes before it in every read. Where it does not, somebody has taken it away.
                Some(head) if !read.contains(&head.id) => {
                    self.0.remove(&aggregate);
                    sorted.publish.push(row);
                }
                Some(_) => {}
                None => sorted.publish.push(row),
            }
        }
        sorted
    }

    /// A row was published: what waited behind it may go.
    pub(super) fn forget(&mut self, row: &Row) {
        if !self.0.is_empty() && self.0.get(&key(row)).is_some_and(|head| head.id == row.id) {
            self.0.remove(&key(row));
        }
    }

    /// Of each aggregate the first row that failed: the others failed behind it and count no attempt.
    pub(super) fn first_failures(&self, published: &[Row], refused: &HashMap<i64, String>) -> Vec<Failed> {
        let mut seen = HashSet::new();
        let mut in_order: Vec<&Row> = published.iter().filter(|row| refused.contains_key(&row.id)).collect();
        in_order.sort_unstable_by_key(|row| row.id);
        in_order
            .into_iter()
            .filter(|row| seen.insert(key(row)))
            .map(|row| Failed { id: row.id, attempts: row.attempts.unsigned_abs(), reason: refused[&row.id].clone() })
            .collect()
    }

    /// These rows failed; what comes after them in their aggregates waits until then.
    pub(super) fn remember(&mut self, published: &[Row], until: &[(i64, OffsetDateTime)]) {
        for (id, until) in until {
            if let Some(row) = published.iter().find(|row| row.id == *id) {
                self.0.insert(key(row), Head { id: *id, until: *until });
            }
        }
    }
}

fn key(row: &Row) -> (String, String) {
    (row.aggregate_type.clone(), row.aggregate_id.clone())
}
