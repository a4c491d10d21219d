//! Acknowledgements: one with `multiple` as far as everything below is settled, single ones for the rest.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::try_join_all;
use lapin::Channel;
use lapin::options::BasicAckOptions;

use crate::error::Failure;
use crate::hold;

/// Writing an acknowledgement only takes longer when the connection does not move any more.
const DEADLINE: Duration = Duration::from_secs(5);

/// The delivery tags of one channel.
#[derive(Default)]
pub(super) struct Acks {
    outstanding: BTreeSet<u64>,
    settled: Vec<u64>,
}

impl Acks {
    /// A message was delivered.
    pub(super) fn arrived(&mut self, tag: u64) {
        self.outstanding.insert(tag);
    }

    /// Its effect, or the message itself, is committed.
    pub(super) fn settle(&mut self, tag: u64) {
        if self.outstanding.remove(&tag) {
            self.settled.push(tag);
        }
    }

    /// Tells the broker what was settled since the last time.
    pub(super) async fn flush(&mut self, channel: &Channel) -> Result<(), Failure> {
        let (upto, single) = self.plan();
        let multiple = upto.map(|tag| (tag, true));
        let all = multiple.into_iter().chain(single.into_iter().map(|tag| (tag, false)));
        let writing = try_join_all(all.map(|(tag, multiple)| channel.basic_ack(tag, BasicAckOptions { multiple })));
        match tokio::time::timeout(DEADLINE, writing).await {
            Ok(written) => {
                if !written?.is_empty() {
                    hold::point("consumer.acked").await;
                }
                Ok(())
            }
            Err(_) => Err(Failure::unavailable("broker.ack_timeout", "the broker does not take acknowledgements")),
        }
    }

    /// The highest settled tag with nothing outstanding below it, and the settled tags above that.
    fn plan(&mut self) -> (Option<u64>, Vec<u64>) {
        let floor = self.outstanding.first().copied().unwrap_or(u64::MAX);
        let (below, above): (Vec<u64>, Vec<u64>) = self.settled.drain(..).partition(|tag| *tag < floor);
        (below.into_iter().max(), above)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_settled_below_everything_outstanding_is_acknowledged_at_once() {
        let mut acks = Acks::default();
        (1..=6).for_each(|tag| acks.arrived(tag));
        [1, 2, 4, 6].into_iter().for_each(|tag| acks.settle(tag));
        assert_eq!(acks.plan(), (Some(2), vec![4, 6]));
        assert_eq!(acks.plan(), (None, vec![]));
        [3, 5].into_iter().for_each(|tag| acks.settle(tag));
        assert_eq!(acks.plan(), (Some(5), vec![]));
    }
}
