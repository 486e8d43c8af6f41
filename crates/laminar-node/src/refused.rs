//! Writes that were refused: counted, and the last few remembered, for `why`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use laminar_core::ids::PartitionId;
use laminar_rpc::proto;

/// Refused writes that are remembered of a partition.
const KEPT_PER_PARTITION: usize = 8;
/// Partitions of which refused writes are remembered; the counts of others are kept together.
const PARTITIONS_MAX: usize = 10_000;

/// Of one partition.
#[derive(Debug, Clone, Default)]
pub(crate) struct Refused {
    pub(crate) count: u64,
    pub(crate) last: VecDeque<proto::RefusedWrite>,
}

/// Of all partitions, since the node started.
#[derive(Debug)]
pub(crate) struct RefusedWrites {
    pub(crate) since_ms: u64,
    by_partition: Mutex<BTreeMap<PartitionId, Refused>>,
}

impl RefusedWrites {
    pub(crate) fn new(since_ms: u64) -> Self {
        Self { since_ms, by_partition: Mutex::default() }
    }

    pub(crate) fn add(&self, partition: PartitionId, write: proto::RefusedWrite) {
        let mut by_partition = self.by_partition.lock().unwrap_or_else(PoisonError::into_inner);
        if by_partition.len() >= PARTITIONS_MAX && !by_partition.contains_key(&partition) {
            return;
        }
        let refused = by_partition.entry(partition).or_default();
        refused.count += 1;
        if refused.last.len() == KEPT_PER_PARTITION {
            refused.last.pop_front();
        }
        refused.last.push_back(write);
    }

    pub(crate) fn of(&self, partition: PartitionId) -> Refused {
        let by_partition = self.by_partition.lock().unwrap_or_else(PoisonError::into_inner);
        by_partition.get(&partition).cloned().unwrap_or_default()
    }

    pub(crate) fn forget(&self, partition: PartitionId) {
        self.by_partition.lock().unwrap_or_else(PoisonError::into_inner).remove(&partition);
    }
}
