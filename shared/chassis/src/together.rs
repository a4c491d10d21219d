//! Work of one kind that comes at the same time is done together: one transaction, and one wait for the disk, in place
//! of many. Nobody waits for company: who comes while nothing runs is done at once and alone, who comes while
//! something runs is done next, with all who came meanwhile.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use messaging::Failure;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

/// How long one waits for a turn: as long as for a connection of the pool, then the caller is told to come again.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where the work meets.
#[derive(Debug)]
pub struct Together<T, R> {
    waiting: Mutex<Waiting<T, R>>,
    turns: Semaphore,
    most: usize,
    patience: Duration,
}

/// Who is in no group yet, in the order of arrival.
#[derive(Debug)]
struct Waiting<T, R> {
    arrived: u64,
    line: BTreeMap<u64, (T, oneshot::Sender<R>)>,
}

impl<T, R> Together<T, R> {
    /// `at_once` groups run beside each other, with at most `most` members each.
    pub fn new(at_once: usize, most: usize) -> Together<T, R> {
        let waiting = Mutex::new(Waiting { arrived: 0, line: BTreeMap::new() });
        Together { waiting, turns: Semaphore::new(at_once), most, patience: PATIENCE }
    }

    /// Has one piece of work done, by itself or with others, and returns its result. `work` gets a group and returns a
    /// result for each member, in their order; the task that is here first runs it for all of them, so nobody may
    /// cancel it.
    ///
    /// # Errors
    /// Unavailable, if what came before takes too long: nothing was done. Transient, if whoever ran the group has ended
    /// without a result: what became of the work is unknown.
    pub async fn run<F>(&self, item: T, work: impl Fn(Vec<T>) -> F) -> Result<R, Failure>
    where
        F: Future<Output = Vec<R>>,
    {
        let (result, mut arrived) = oneshot::channel();
        let number = self.waiting().enter(item, result);
        loop {
            // Fair: whoever came first goes first.
            let _turn = match timeout(self.patience, self.turns.acquire()).await {
                Ok(turn) => turn.ok(),
                Err(_) if self.waiting().line.remove(&number).is_some() => {
                    return Err(Failure::unavailable("together.busy", "what came before takes too long"));
                }
                // A group has it.
                Err(_) => break,
            };
            match arrived.try_recv() {
                Ok(result) => return Ok(result),
                Err(TryRecvError::Closed) => return Err(ended()),
                Err(TryRecvError::Empty) => {}
            }
            let (items, results) = self.waiting().leave(self.most);
            if items.is_empty() {
                break;
            }
            for (result, done) in results.into_iter().zip(work(items).await) {
                // Who does not wait any more has ended with the process.
                let _: Result<(), R> = result.send(done);
            }
        }
        arrived.await.map_err(|_| ended())
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<T, R>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ended() -> Failure {
    Failure::transient("together.ended", "whoever did it has ended without a result")
}

impl<T, R> Waiting<T, R> {
    fn enter(&mut self, item: T, result: oneshot::Sender<R>) -> u64 {
        self.arrived += 1;
        self.line.insert(self.arrived, (item, result));
        self.arrived
    }

    /// The first ones.
    fn leave(&mut self, most: usize) -> (Vec<T>, Vec<oneshot::Sender<R>>) {
        std::iter::from_fn(|| self.line.pop_first()).take(most).map(|(_, member)| member).unzip()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::future::join_all;
    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn who_comes_while_something_runs_is_done_next_with_all_others() {
        let together = Together::new(1, 3);
        let groups = Mutex::new(Vec::new());
        let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let work = |items: Vec<u32>| {
            groups.lock().unwrap().push(items.clone());
            let (begun, go) = (begun.clone(), go.clone());
            async move {
                if items == [0] {
                    begun.notify_one();
                    go.notified().await;
                }
                items.into_iter().map(|item| item * 10).collect()
            }
        };
        let first = together.run(0, work);
        let others = async {
            begun.notified().await;
            let mut others = join_all((1..=5).map(|item| together.run(item, work)));
            assert!(futures::poll!(&mut others).is_pending());
            go.notify_one();
            others.await
        };
        let (first, others) = tokio::join!(first, others);
        assert_eq!(first.unwrap(), 0);
        assert_eq!(others.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [10, 20, 30, 40, 50]);
        assert_eq!(*groups.lock().unwrap(), [vec![0], vec![1, 2, 3], vec![4, 5]]);
    }

    #[tokio::test]
    async fn who_waited_for_somebody_that_ended_is_told_so() {
        let together = Arc::new(Together::<u32, u32>::new(1, 10));
        let busy = together.turns.acquire().await.unwrap();
        let start = |item| {
            let together = together.clone();
            tokio::spawn(async move { together.run(item, async |_| std::future::pending().await).await })
        };
        let (leader, follower) = (start(1), start(2));
        tokio::task::yield_now().await;
        drop(busy);
        tokio::task::yield_now().await;
        leader.abort();
        assert_eq!(follower.await.unwrap().unwrap_err().code(), "together.ended");
    }
    #[tokio::test]
    async fn who_waits_too_long_for_a_turn_leaves_with_nothing_done() {
        let together = Together::<u32, u32> { patience: Duration::from_millis(1), ..Together::new(1, 10) };
        let busy = together.turns.acquire().await.unwrap();
        let failure = together.run(1, async |items| items).await.unwrap_err();
        assert_eq!((failure.class(), failure.code()), (messaging::Class::Unavailable, "together.busy"));
        drop(busy);
        assert_eq!(together.run(2, async |items| items).await.unwrap(), 2);
    }
}
