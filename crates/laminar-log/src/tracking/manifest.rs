//! How far one partition is, in its own log indices.

use laminar_core::ids::{LogIndex, PartitionId};

use crate::log_id::PartitionLogIndex;

/// How far one partition is. Memory only: it is rebuilt from the logs.
///
/// LOG-1: `snapshot <= applied <= durable <= highest`, always. A step that would break it panics, because going on
/// would purge or acknowledge what is not there.
///
/// ```text
///   1 ......... snapshot ......... applied ......... durable ......... highest
///               state kept apart   machine has it    on this disk      accepted by `apply`
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionManifest {
    partition: PartitionId,
    snapshot: PartitionLogIndex,
    applied: PartitionLogIndex,
    durable: PartitionLogIndex,
    highest: PartitionLogIndex,
    applied_global: LogIndex,
}

impl PartitionManifest {
    /// A partition without records.
    pub fn new(partition: PartitionId) -> Self {
        Self::restored(partition, PartitionLogIndex::NONE, LogIndex::NONE)
    }

    /// A partition as a snapshot left it: everything up to `index`, which came from `global`, is applied and on disk.
    pub fn restored(partition: PartitionId, index: PartitionLogIndex, global: LogIndex) -> Self {
        Self {
            partition,
            snapshot: index,
            applied: index,
            durable: index,
            highest: index,
            applied_global: global,
        }
    }

    /// Which partition.
    pub fn partition(&self) -> PartitionId {
        self.partition
    }

    /// The last record whose effect a snapshot holds.
    pub fn snapshot(&self) -> PartitionLogIndex {
        self.snapshot
    }

    /// The last record that the partition's machine has applied.
    pub fn applied(&self) -> PartitionLogIndex {
        self.applied
    }

    /// The last record that is on this disk: in the partition's own log, or in the segmented log it would be redone
    /// from.
    pub fn durable(&self) -> PartitionLogIndex {
        self.durable
    }

    /// The last record that `apply` accepted.
    pub fn highest(&self) -> PartitionLogIndex {
        self.highest
    }

    /// The raft index of the last applied record. It moves with `applied` only.
    pub fn applied_global(&self) -> LogIndex {
        self.applied_global
    }

    /// How many accepted records are not applied.
    pub fn lag(&self) -> u64 {
        self.highest.0 - self.applied.0
    }

    /// `apply` accepted the records up to `index`.
    ///
    /// # Panics
    /// `index` is not behind the last: places are given out once (LOG-2).
    pub fn update_highest(&mut self, index: PartitionLogIndex) {
        assert!(
            index > self.highest,
            "LOG-2: partition {}: record {index} accepted behind record {}",
            self.partition,
            self.highest
        );
        self.highest = index;
        self.check();
    }

    /// Records up to `index` are on this disk. Two logs tell of this, so an index that is known already is no news.
    ///
    /// # Panics
    /// LOG-1: `index` was not accepted.
    pub fn update_durable(&mut self, index: PartitionLogIndex) {
        assert!(
            index <= self.highest,
            "LOG-1: partition {}: record {index} durable, and {} is the highest",
            self.partition,
            self.highest
        );
        self.durable = self.durable.max(index);
        self.check();
    }

    /// The machine has applied the records up to `index`, which came from entry `global`.
    ///
    /// # Panics
    /// LOG-1: `index` is not durable; or it, or `global`, goes back.
    pub fn update_applied(&mut self, index: PartitionLogIndex, global: LogIndex) {
        assert!(
            index >= self.applied && index <= self.durable,
            "LOG-1: partition {}: record {index} applied, after {} and with {} durable",
            self.partition,
            self.applied,
            self.durable
        );
        assert!(
            global >= self.applied_global,
            "APPLY-1: partition {}: entry {global} applied after entry {}",
            self.partition,
            self.applied_global
        );
        self.applied = index;
        self.applied_global = global;
        self.check();
    }

    /// A snapshot holds the effect of the records up to `index`. An older one that ends later is no news.
    ///
    /// # Panics
    /// LOG-1: `index` is not applied.
    pub fn set_snapshot(&mut self, index: PartitionLogIndex) {
        assert!(
            index <= self.applied,
            "LOG-1: partition {}: snapshot at record {index}, and {} is applied",
            self.partition,
            self.applied
        );
        self.snapshot = self.snapshot.max(index);
        self.check();
    }

    /// Whether LOG-1 holds.
    pub fn holds(&self) -> bool {
        self.snapshot <= self.applied && self.applied <= self.durable && self.durable <= self.highest
    }

    fn check(&self) {
        assert!(self.holds(), "LOG-1 does not hold: {self:?}");
    }
}
