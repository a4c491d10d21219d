//! Follows a saga through all services: where each message of it is, what happened in which order, and why it is where
//! it is. Each service tells its own part over HTTP; nobody reads another one's tables.
//!
//! - here: who is asked, and what an id may be
//! - `messages`: where each message is now
//! - `timeline`: everything that happened, in order
//! - `why`: the one thing that the saga waits for

use std::sync::Arc;

use chassis::{LoopNow, Peer, Readiness};
use futures::future::{join, join_all};
use messaging::{Broker, Failure, Pulse, Story, story};
use sqlx::{PgConnection, PgPool};
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::store::orders::{self, Filter, OrderRow};

pub(crate) mod messages;
pub(crate) mod timeline;
pub(crate) mod why;

/// This service's name among those that tell.
pub(crate) const OURS: &str = "order";
/// Timelines that are told at once.
pub(crate) const TURNS: usize = 8;
/// Orders that one correlation id may name in an answer.
const MOST_ORDERS: i64 = 100;

/// Whom to ask.
#[derive(Clone)]
pub(crate) struct Follow {
    pub(crate) pool: PgPool,
    pub(crate) broker: Broker,
    pub(crate) peers: Arc<[Peer]>,
    /// Our own loops.
    pub(crate) pulses: Arc<[Pulse]>,
    /// Timelines that are told at once.
    pub(crate) turns: Arc<Semaphore>,
}

/// What one service tells, or why it does not.
pub(crate) struct Part {
    pub(crate) service: String,
    pub(crate) story: Result<Story, String>,
    pub(crate) readiness: Result<Readiness, String>,
}

impl Part {
    /// One of its loops.
    pub(crate) fn find_loop(&self, name: &str) -> Option<&LoopNow> {
        self.readiness.as_ref().ok()?.loops.iter().find(|one| one.name == name)
    }
}

impl Follow {
    /// Every service's part of a saga, ours first. A service that does not answer is part of the answer.
    pub(crate) async fn gather(&self, saga_id: Uuid) -> Result<Vec<Part>, Failure> {
        let asking = join_all(self.peers.iter().map(|peer| async move {
            let (told, readiness) = join(peer.story(saga_id), peer.readiness()).await;
            let silent = |failure: Failure| failure.to_string();
            let story = told.map(|told| told.story).map_err(silent);
            Part { service: peer.name().to_owned(), story, readiness: readiness.map_err(silent) }
        }));
        let others = asking.await;
        // After them: what they tell of may have come to us meanwhile, never the other way round.
        let own = story::read(&mut *self.pool.acquire().await?, saga_id).await?;
        let loops = self.pulses.iter().map(LoopNow::of).collect();
        // The database has just answered, else there is no answer at all.
        let readiness = Readiness { status: "ready".to_owned(), database: "up".to_owned(), loops, outbox: None };
        let ours = Part { service: OURS.to_owned(), story: Ok(own), readiness: Ok(readiness) };
        Ok(std::iter::once(ours).chain(others).collect())
    }

    /// The orders that an id means, the oldest first; of very many the newest ones: that of an order, of a saga, of a message, or a correlation id.
    pub(crate) async fn find(&self, id: &str) -> Result<Vec<OrderRow>, Failure> {
        let mut connection = self.pool.acquire().await?;
        if let Ok(id) = Uuid::parse_str(id) {
            for filter in [
                Filter { id: Some(id), limit: 1, ..Filter::default() },
                Filter { saga_id: Some(id), limit: 1, ..Filter::default() },
            ] {
                let found = orders::list(&mut connection, &filter).await?;
                if !found.is_empty() {
                    return Ok(found);
                }
            }
        }
        let filter =
            Filter { correlation_id: Some(id.to_owned()), newest_first: true, limit: MOST_ORDERS, ..Filter::default() };
        let mut found = orders::list(&mut connection, &filter).await?;
        found.reverse();
        if !found.is_empty() {
            return Ok(found);
        }
        match Uuid::parse_str(id) {
            Ok(event_id) => self.find_by_event(&mut connection, event_id).await,
            Err(_) => Ok(Vec::new()),
        }
    }

    /// Whoever wrote the message knows its saga.
    async fn find_by_event(&self, connection: &mut PgConnection, event_id: Uuid) -> Result<Vec<OrderRow>, Failure> {
        let saga_id = match story::find_saga(connection, event_id).await? {
            Some(saga_id) => Some(saga_id),
            None => {
                let told = join_all(self.peers.iter().map(|peer| peer.story_of_event(event_id))).await;
                told.into_iter().flatten().map(|told| told.saga_id).next()
            }
        };
        let Some(saga_id) = saga_id else { return Ok(Vec::new()) };
        orders::list(connection, &Filter { saga_id: Some(saga_id), limit: 1, ..Filter::default() }).await
    }
}
