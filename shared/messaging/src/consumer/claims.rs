//! Kept messages that this process has claimed and not finished, with the attempt that it counted for each. They
//! outlive a generation: what an outage of the database interrupted is given back when the database is there again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sqlx::PgConnection;

use crate::error::Failure;
use crate::inbox::claims;

#[derive(Clone, Debug, Default)]
pub(super) struct Claims(Arc<Mutex<HashMap<String, u32>>>);

impl Claims {
    pub(super) fn insert(&self, message_id: &str, attempts: u32) {
        self.lock().insert(message_id.to_owned(), attempts);
    }

    pub(super) fn remove(&self, message_id: &str) {
        self.lock().remove(message_id);
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Takes back the attempts of those that were not run to an end: no fault of theirs.
    pub(super) async fn give_back(&self, database: &mut PgConnection, consumer: &str) -> Result<(), Failure> {
        let open: Vec<(String, u32)> = self.lock().iter().map(|(id, attempts)| (id.clone(), *attempts)).collect();
        if !open.is_empty() {
            claims::give_back(database, consumer, &open).await?;
            self.lock().clear();
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
