//! What the assigner answers: who should own what, which partitions move, and what could not be had.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, NodeId, PartitionId};

/// A complete mapping of partitions to nodes, and the moves that lead to it. Nothing changes until it is committed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AssignmentPlan {
    /// Every partition with its owner and the epoch of that ownership.
    pub assignments: BTreeMap<PartitionId, PartitionAssignment>,
    /// The partitions that change their owner, by partition. An initial assignment has none.
    pub moves: Vec<PartitionMove>,
    /// The plan in numbers.
    pub stats: AssignmentStats,
}

impl AssignmentPlan {
    /// The plan as JSON, for people and tools.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a plan has only numbers and strings, which always encode")
    }

    /// Reads what [`AssignmentPlan::to_json`] wrote.
    ///
    /// # Errors
    /// Invalid: the text is not JSON, or not a plan.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

/// Who owns one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionAssignment {
    /// The partition.
    pub partition_id: PartitionId,
    /// Its owner.
    pub node_id: NodeId,
    /// The epoch of that ownership: 1 for a new partition, one more than before for a moved one.
    pub epoch: Epoch,
}

/// One change of owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionMove {
    /// The partition.
    pub partition_id: PartitionId,
    /// The owner until now; [`NodeId::UNASSIGNED`] if it had none.
    pub from_node: NodeId,
    /// The owner from now on.
    pub to_node: NodeId,
    /// The epoch until now.
    pub old_epoch: Epoch,
    /// Always one more than `old_epoch` (EPOCH-1).
    pub new_epoch: Epoch,
}

/// A plan in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AssignmentStats {
    /// How many partitions the plan has.
    pub total_partitions: u32,
    /// How many of them change their owner.
    pub partitions_moved: u32,
    /// How many partitions each eligible node has, also those that have none.
    pub distribution: BTreeMap<NodeId, u32>,
    /// In how many failure domains partitions are.
    pub failure_domains_used: u32,
    /// True if `violations` is empty.
    pub constraints_satisfied: bool,
    /// What could not be had: hints that were dropped and nodes outside their band, each with the reason.
    pub violations: Vec<String>,
}
