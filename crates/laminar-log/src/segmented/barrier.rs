//! Barriers: waits until chosen partitions have applied everything up to a global index.

use std::collections::BTreeMap;
use std::time::Duration;

use laminar_core::error::ErrorKind;
use laminar_core::ids::{LogIndex, PartitionId};
use thiserror::Error;

use super::notice::Notice;
use crate::dispatcher::AdmissionRefusal;

/// Why a barrier was not waited for.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BarrierError {
    /// The partitions did not get there in time.
    #[error("barrier at index {index}: {} after {waited:?}; wait longer, or look why they lag", who(.behind, *.partitions))]
    TimedOut {
        /// The index.
        index: LogIndex,
        /// How many partitions were waited for.
        partitions: usize,
        /// Those that had not applied it; none if the log itself had not got there.
        behind: Vec<PartitionId>,
        /// How long it was waited.
        waited: Duration,
    },
    /// A client has too many waits, or all clients together have.
    #[error(transparent)]
    TooManyWaiters(#[from] AdmissionRefusal),
    /// A partition that does not exist.
    #[error("barrier refused, there is no partition {0}")]
    UnknownPartition(PartitionId),
}

/// Who had not got there.
fn who(behind: &[PartitionId], partitions: usize) -> String {
    match behind.first() {
        Some(first) => {
            format!(
                "{} of {partitions} partitions had not applied it, first partition {first},",
                behind.len()
            )
        }
        None => "the log had not got there".to_owned(),
    }
}

impl BarrierError {
    /// What the caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            BarrierError::TimedOut { .. } => ErrorKind::Unavailable,
            BarrierError::TooManyWaiters(refusal) => refusal.kind(),
            BarrierError::UnknownPartition(_) => ErrorKind::Invalid,
        }
    }
}

/// Waits at one place: for a partition to have applied up to an index, or for the log to have got there.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// By index, in order.
    waiting: BTreeMap<LogIndex, Vec<Notice<()>>>,
    count: usize,
    /// When so many wait, those that nobody waits for any more are let go.
    sweep_at: usize,
}

impl Waiters {
    pub(crate) fn add(&mut self, index: LogIndex) -> Notice<()> {
        if self.count >= self.sweep_at {
            self.waiting.values_mut().for_each(|notices| notices.retain(|notice| !notice.is_alone()));
            self.waiting.retain(|_, notices| !notices.is_empty());
            self.count = self.waiting.values().map(Vec::len).sum();
            self.sweep_at = self.count * 2 + 16;
        }
        let notice = Notice::default();
        self.waiting.entry(index).or_default().push(notice.clone());
        self.count += 1;
        notice
    }

    /// Everything up to `reached` has happened.
    pub(crate) fn reached(&mut self, reached: LogIndex) {
        while let Some(first) = self.waiting.first_entry()
            && *first.key() <= reached
        {
            let notices = first.remove();
            self.count -= notices.len();
            notices.into_iter().for_each(|notice| notice.set(()));
        }
    }

    /// Nobody gets there any more; whoever waits looks again.
    pub(crate) fn give_up(&mut self) {
        self.reached(LogIndex(u64::MAX));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_behind_are_told_and_the_log_itself() {
        let late = |behind: Vec<PartitionId>| BarrierError::TimedOut {
            index: LogIndex(9),
            partitions: 3,
            behind,
            waited: Duration::from_secs(2),
        };
        assert_eq!(
            late(vec![PartitionId(4), PartitionId(5)]).to_string(),
            "barrier at index 9: 2 of 3 partitions had not applied it, first partition 4, after 2s; wait longer, or look why \
             they lag"
        );
        assert_eq!(
            late(Vec::new()).to_string(),
            "barrier at index 9: the log had not got there after 2s; wait longer, or look why they lag"
        );
    }

    #[test]
    fn waits_that_nobody_waits_for_are_let_go() {
        let mut waiters = Waiters::default();
        let kept = waiters.add(LogIndex(7));
        (0..10_000).for_each(|_| drop(waiters.add(LogIndex(8))));
        assert!(waiters.count < 100);
        waiters.reached(LogIndex(7));
        assert!(kept.is_alone());
        waiters.give_up();
        assert_eq!((waiters.count, waiters.is_empty()), (0, true));
    }
}
