//! What the metadata keeps of one partition: its owner, its newest checkpoint, and how its owner left it.

use std::collections::BTreeMap;

use crate::ids::{CheckpointId, Epoch, LogIndex, NodeId, OwnerEpoch, PartitionId};

/// Positions in the sources a partition reads from: source name, source partition, next offset to read.
pub type SourceOffsets = BTreeMap<String, BTreeMap<u32, u64>>;

/// Who owns a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionOwnership {
    /// The owner; [`NodeId::UNASSIGNED`] if the partition waits for one.
    pub node_id: NodeId,
    /// The epoch of this ownership.
    pub epoch: Epoch,
    /// Time of the entry that assigned it, in milliseconds since the Unix epoch.
    pub assigned_at_ms: i64,
}

impl PartitionOwnership {
    /// Owner and epoch alone: what a change names as expected.
    pub fn owner_epoch(&self) -> OwnerEpoch {
        OwnerEpoch { node_id: self.node_id, epoch: self.epoch }
    }
}

/// A checkpoint in the object store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRef {
    /// Grows with every checkpoint of the partition.
    pub checkpoint_id: CheckpointId,
    /// The partition it was taken of.
    pub partition_id: PartitionId,
    /// The epoch it was taken in.
    pub epoch: Epoch,
    /// Where it stands in the object store.
    pub storage_path: String,
    /// Where replay from the sources goes on.
    pub source_offsets: SourceOffsets,
    /// Size of the state.
    pub size_bytes: u64,
    /// When it was taken, in milliseconds since the Unix epoch.
    pub created_at_ms: i64,
}

/// How an owner left a partition: what the next owner must find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// The last entry of the data group's log that the owner wrote into the partition.
    pub final_index: LogIndex,
    /// Hash of the partition's state at that index; the next owner compares it with its own.
    pub state_hash: u64,
    /// Offset of the next row of the partition.
    pub next_offset: u64,
    /// The checkpoint to start from, if one was taken.
    pub checkpoint_id: Option<CheckpointId>,
    /// Where replay from the sources goes on.
    pub source_offsets: SourceOffsets,
}

/// A release that no new owner has answered yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseInfo {
    /// The partition.
    pub partition_id: PartitionId,
    /// The owner that released it.
    pub node_id: NodeId,
    /// The epoch it was released at.
    pub epoch: Epoch,
    /// Time of the entry that released it, in milliseconds since the Unix epoch.
    pub released_at_ms: i64,
    /// How it was left.
    pub release: Release,
}
