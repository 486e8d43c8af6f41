//! How a checkpoint is labelled with the ownership it was written under.

use crate::ids::{Epoch, NodeId, PartitionId};

/// Who writes a checkpoint, and at which epoch.
///
/// These are labels for people and tools that look at objects. What refuses a stale checkpoint is the create-only
/// manifest chain, because a client cannot choose an object's ETag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConditionalPut {
    /// The partition of the checkpoint.
    pub partition_id: PartitionId,
    /// The epoch it is written at.
    pub epoch: Epoch,
    /// The node that writes it.
    pub node_id: NodeId,
}

impl ConditionalPut {
    /// Metadata pairs for the object.
    pub fn as_metadata(&self) -> Vec<(String, String)> {
        vec![
            ("x-laminar-partition".to_owned(), self.partition_id.to_string()),
            ("x-laminar-epoch".to_owned(), self.epoch.to_string()),
            ("x-laminar-node".to_owned(), self.node_id.to_string()),
        ]
    }

    /// One line that names the ownership. A label only: no store compares it.
    pub fn s3_condition(&self) -> String {
        format!("epoch-{}-partition-{}", self.epoch, self.partition_id)
    }
}
