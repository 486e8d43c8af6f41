//! Ownership that moved on.

use thiserror::Error;

use super::ErrorKind;
use crate::ids::{Epoch, NodeId, PartitionId};

/// A guard or a storage refused a write because ownership moved on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EpochError {
    /// The guard's epoch is over.
    #[error(
        "partition {partition}: write refused, guard holds epoch {local_epoch} and epoch {current_epoch} is current \
         ({}this is node {node}); refresh the guard",
        current_owner.map_or(String::new(), |owner| owner_name(owner) + ", ")
    )]
    StaleEpoch {
        /// The guarded partition.
        partition: PartitionId,
        /// The node the guard was made for.
        node: NodeId,
        /// The epoch the guard holds.
        local_epoch: Epoch,
        /// The newest epoch seen.
        current_epoch: Epoch,
        /// The owner at that epoch, where the check had metadata to ask.
        current_owner: Option<NodeId>,
    },
    /// The metadata does not have the partition: it was dropped, or never created.
    #[error(
        "partition {partition}: write refused, the metadata does not have this partition; it was dropped or never created"
    )]
    UnknownPartition {
        /// The partition asked for.
        partition: PartitionId,
    },
    /// The node does not own the partition.
    #[error(
        "partition {partition}: write refused, node {node} does not own it{}; send the write to its owner or claim the \
         partition",
        owner.map_or(String::new(), |owner| format!(" ({})", owner_name(owner)))
    )]
    NotOwned {
        /// The partition asked for.
        partition: PartitionId,
        /// The node that asked.
        node: NodeId,
        /// The owner, where the check had metadata to ask.
        owner: Option<NodeId>,
    },
    /// The object store has a manifest of a later epoch.
    #[error(
        "partition {partition}: checkpoint refused by the object store, it was written at epoch {expected_epoch} and epoch \
         {actual_epoch} is there; discard the checkpoint, the new owner writes its own"
    )]
    ConditionalPutFailed {
        /// The partition of the checkpoint.
        partition: PartitionId,
        /// The epoch the writer holds.
        expected_epoch: Epoch,
        /// The epoch found in the store.
        actual_epoch: Epoch,
    },
}

impl EpochError {
    /// Always [`ErrorKind::Stale`].
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Stale
    }

    /// The partition the error is about.
    pub fn partition(&self) -> PartitionId {
        match self {
            EpochError::StaleEpoch { partition, .. }
            | EpochError::UnknownPartition { partition }
            | EpochError::NotOwned { partition, .. }
            | EpochError::ConditionalPutFailed { partition, .. } => *partition,
        }
    }
}

fn owner_name(owner: NodeId) -> String {
    if owner.is_assigned() { format!("owner node {owner}") } else { "no owner".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(value: u64) -> Epoch {
        Epoch::new(value).unwrap()
    }

    /// Pins the wording that users search for.
    #[test]
    fn epoch_errors_read_as_documented() {
        let partition = PartitionId(42);
        let stale = |current_owner| EpochError::StaleEpoch {
            partition,
            node: NodeId(1),
            local_epoch: epoch(7),
            current_epoch: epoch(9),
            current_owner,
        };
        assert_eq!(
            stale(Some(NodeId(3))).to_string(),
            "partition 42: write refused, guard holds epoch 7 and epoch 9 is current (owner node 3, this is node 1); \
             refresh the guard"
        );
        assert_eq!(
            stale(None).to_string(),
            "partition 42: write refused, guard holds epoch 7 and epoch 9 is current (this is node 1); refresh the guard"
        );
        assert_eq!(
            stale(Some(NodeId::UNASSIGNED)).to_string(),
            "partition 42: write refused, guard holds epoch 7 and epoch 9 is current (no owner, this is node 1); \
             refresh the guard"
        );
        assert_eq!(
            EpochError::UnknownPartition { partition }.to_string(),
            "partition 42: write refused, the metadata does not have this partition; it was dropped or never created"
        );
        assert_eq!(
            EpochError::NotOwned { partition, node: NodeId(1), owner: Some(NodeId(3)) }.to_string(),
            "partition 42: write refused, node 1 does not own it (owner node 3); send the write to its owner or claim \
             the partition"
        );
        let put =
            EpochError::ConditionalPutFailed { partition, expected_epoch: epoch(7), actual_epoch: epoch(9) };
        assert_eq!(
            put.to_string(),
            "partition 42: checkpoint refused by the object store, it was written at epoch 7 and epoch 9 is there; \
             discard the checkpoint, the new owner writes its own"
        );
        assert_eq!((put.kind(), put.partition()), (ErrorKind::Stale, partition));
    }
}
