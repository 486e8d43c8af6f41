//! What a plan must keep to, and what it should prefer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::InvalidError;
use crate::ids::{NodeId, PartitionId};

/// The largest weight a node may have.
pub const NODE_WEIGHT_MAX: f64 = 1_000_000.0;

/// Weights and strengths are compared as millionths, so that no decision depends on floating point.
pub(super) const MICRO: f64 = 1_000_000.0;

/// What a plan must keep to, and what it should prefer. The default asks for nothing but balance.
///
/// Groups, hints and the memory map may name partitions that are not in the plan; those are ignored.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AssignmentConstraints {
    /// The most partitions a node may have. Without it: 1.5 times the node's share, rounded up.
    pub max_partitions_per_node: Option<u32>,
    /// In how many failure domains the partitions must be, over all of them.
    pub min_failure_domains: Option<u32>,
    /// Partitions of one group are all on different nodes.
    pub anti_affinity_groups: Vec<AntiAffinityGroup>,
    /// Partitions that should be, or at strength 1.0 must be, on one node.
    pub affinity_hints: Vec<AffinityHint>,
    /// The most memory the partitions of a node may take. A node that states its own memory has the lesser of both.
    pub max_memory_per_node: Option<u64>,
    /// What a partition takes of that memory.
    pub partition_memory_bytes: PartitionMemory,
    /// How much more (or less) than its cores say a node gets: 1.0 if not given, 0 for nothing. Counted in
    /// millionths, so a weight below half a millionth is 0.
    pub node_weights: BTreeMap<NodeId, f64>,
}

impl AssignmentConstraints {
    /// Checks the numbers of the constraints by themselves, without nodes or partitions.
    ///
    /// # Errors
    /// Invalid: a weight or a strength is not a number in its range.
    pub fn check(&self) -> Result<(), InvalidError> {
        for (&node, &weight) in &self.node_weights {
            if !(0.0..=NODE_WEIGHT_MAX).contains(&weight) {
                return Err(InvalidError::NodeWeightOutOfRange { node, weight });
            }
        }
        for hint in &self.affinity_hints {
            hint.check()?;
        }
        Ok(())
    }

    /// The weight of a node in millionths. Call after [`AssignmentConstraints::check`].
    pub(super) fn weight_micro(&self, node: NodeId) -> u64 {
        let weight = self.node_weights.get(&node).copied().unwrap_or(1.0);
        (weight * MICRO).round() as u64
    }
}

/// Partitions that must be on different nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AntiAffinityGroup {
    /// For messages; need not be unique.
    pub name: String,
    /// The members.
    pub partition_ids: Vec<PartitionId>,
}

/// Partitions that should be on the same node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AffinityHint {
    /// For messages; need not be unique.
    pub name: String,
    /// The members.
    pub partition_ids: Vec<PartitionId>,
    /// From 0.0 (ignored) to 1.0 (must be together). Of two hints that exclude each other the stronger one wins.
    pub strength: f64,
}

impl AffinityHint {
    /// # Errors
    /// Invalid: the strength is not from 0 to 1.
    pub fn check(&self) -> Result<(), InvalidError> {
        if (0.0..=1.0).contains(&self.strength) {
            return Ok(());
        }
        Err(InvalidError::HintStrengthOutOfRange { hint: self.name.clone(), strength: self.strength })
    }
}

/// What partitions take of a node's memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartitionMemory {
    /// Not stated: memory sets no limit.
    #[default]
    None,
    /// The same for every partition.
    One(u64),
    /// By partition; one that is not in the map takes nothing.
    Map(BTreeMap<PartitionId, u64>),
}

impl PartitionMemory {
    /// What this partition takes.
    pub fn bytes(&self, partition: PartitionId) -> u64 {
        match self {
            PartitionMemory::None => 0,
            PartitionMemory::One(bytes) => *bytes,
            PartitionMemory::Map(map) => map.get(&partition).copied().unwrap_or(0),
        }
    }
}
