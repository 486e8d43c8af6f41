//! The numbers everything else is keyed by, each a type of its own so that they cannot be swapped.

use std::fmt;
use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

use crate::error::InvalidError;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A partition, unique in the cluster and never reused after a drop.
    PartitionId(u32)
}
id! {
    /// A process that can own partitions: a server, or a worker (one run of a writer).
    NodeId(u64)
}
id! {
    /// A stream of the catalogue. Dropping and re-creating a path gives a new one.
    StreamId(u64)
}
id! {
    /// A Raft group that holds the data of some partitions.
    DataGroupId(u32)
}
id! {
    /// A checkpoint of a partition in the object store; grows with every checkpoint of that partition.
    CheckpointId(u64)
}
id! {
    /// A position in a Raft log. The first entry is 1; 0 means that nothing has been applied.
    LogIndex(u64)
}
id! {
    /// Chosen by the caller of a metadata change, so that a retry is recognised (OWN-2).
    RequestId(u128)
}

impl NodeId {
    /// Nobody: the owner of a partition that waits for one.
    pub const UNASSIGNED: NodeId = NodeId(0);

    /// The first id given out to a worker. Servers are configured or minted below it, so neither kind of id can
    /// ever be taken for the other.
    pub const WORKER_MIN: NodeId = NodeId(1 << 32);

    /// True for every id but [`NodeId::UNASSIGNED`].
    pub fn is_assigned(self) -> bool {
        self != Self::UNASSIGNED
    }

    /// True for an id that belongs to a worker: one run of a writer, which owns by claim only.
    pub fn is_worker(self) -> bool {
        self >= Self::WORKER_MIN
    }
}

impl LogIndex {
    /// Before the first entry.
    pub const NONE: LogIndex = LogIndex(0);
}

impl Default for LogIndex {
    fn default() -> Self {
        Self::NONE
    }
}

impl RequestId {
    /// No id: the change is applied as often as it arrives, and only what it expects protects it.
    pub const NONE: RequestId = RequestId(0);
}

/// The number of an ownership of a partition: 1 or more, one more on every change of owner (EPOCH-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Epoch(NonZeroU64);

impl Epoch {
    /// The epoch of a partition's first ownership.
    pub const FIRST: Epoch = Epoch(NonZeroU64::MIN);

    /// # Errors
    /// Invalid: `value` is 0, which is reserved.
    pub fn new(value: u64) -> Result<Self, InvalidError> {
        NonZeroU64::new(value).map(Epoch).ok_or(InvalidError::EpochZero)
    }

    /// The number itself.
    pub fn get(self) -> u64 {
        self.0.get()
    }

    /// The epoch of the next owner.
    ///
    /// # Errors
    /// Invalid: this is the last epoch there is.
    pub fn next(self) -> Result<Self, InvalidError> {
        self.0.checked_add(1).map(Epoch).ok_or(InvalidError::EpochExhausted)
    }
}

impl TryFrom<u64> for Epoch {
    type Error = InvalidError;

    fn try_from(value: u64) -> Result<Self, InvalidError> {
        Epoch::new(value)
    }
}

impl From<Epoch> for u64 {
    fn from(epoch: Epoch) -> u64 {
        epoch.get()
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who owns a partition, and since which epoch: what a change expects to find, and what an assignment gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerEpoch {
    /// The owner; [`NodeId::UNASSIGNED`] if the partition waits for one.
    pub node_id: NodeId,
    /// The epoch of that ownership.
    pub epoch: Epoch,
}

impl fmt::Display for OwnerEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} at epoch {}", self.node_id, self.epoch)
    }
}

/// Neighbouring partition ids, both ends included. Never empty, and it can hold the last id there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionRange {
    first: PartitionId,
    last: PartitionId,
}

impl PartitionRange {
    /// From `first` to `last`, or `None` if `last` lies before `first`.
    pub fn new(first: PartitionId, last: PartitionId) -> Option<Self> {
        (first <= last).then_some(PartitionRange { first, last })
    }

    /// The lowest id.
    pub fn first(self) -> PartitionId {
        self.first
    }

    /// The highest id.
    pub fn last(self) -> PartitionId {
        self.last
    }

    /// How many ids it holds: 1 or more.
    pub fn count(self) -> u64 {
        u64::from(self.last.0) - u64::from(self.first.0) + 1
    }

    /// True if `partition_id` lies between the ends.
    pub fn contains(self, partition_id: PartitionId) -> bool {
        (self.first..=self.last).contains(&partition_id)
    }

    /// Every id, lowest first.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = PartitionId> {
        (self.first.0..=self.last.0).map(PartitionId)
    }
}

impl fmt::Display for PartitionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..={}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoch_zero_is_refused_and_the_last_epoch_has_no_successor() {
        assert_eq!(Epoch::new(0), Err(InvalidError::EpochZero));
        assert_eq!(Epoch::new(1), Ok(Epoch::FIRST));
        assert_eq!(Epoch::FIRST.next().map(Epoch::get), Ok(2));
        assert_eq!(Epoch::new(u64::MAX).and_then(Epoch::next), Err(InvalidError::EpochExhausted));
    }

    #[test]
    fn only_node_zero_is_nobody() {
        assert!(!NodeId(0).is_assigned());
        assert!(NodeId(1).is_assigned());
    }

    #[test]
    fn worker_ids_start_where_server_ids_end() {
        assert!(!NodeId(NodeId::WORKER_MIN.0 - 1).is_worker());
        assert!(NodeId::WORKER_MIN.is_worker());
    }

    #[test]
    fn a_partition_range_holds_both_its_ends() {
        let range = PartitionRange::new(PartitionId(u32::MAX - 1), PartitionId(u32::MAX)).unwrap();
        assert_eq!((range.count(), range.iter().count()), (2, 2));
        assert!(range.contains(PartitionId(u32::MAX)) && !range.contains(PartitionId(u32::MAX - 2)));
        assert_eq!(PartitionRange::new(PartitionId(1), PartitionId(0)), None);
        assert_eq!(PartitionRange::new(PartitionId(0), PartitionId(u32::MAX)).unwrap().count(), 1 << 32);
    }
}
