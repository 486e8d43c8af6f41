//! The nodes that can own partitions, and how many each should have.

use std::collections::BTreeMap;

use super::constraints::AssignmentConstraints;
use super::memory::Sizes;
use super::ring::{HashRing, RingNode};
use super::shares::{Quota, quotas};
use crate::error::{AssignmentError, InvalidError};
use crate::ids::NodeId;
use crate::node::{NodeInfo, NodeState};

/// A weight of 1.0 in millionths.
const WEIGHT_ONE: u128 = 1_000_000;

/// The eligible nodes, by id: active, with cores and a weight. Elsewhere a node is its index here.
pub(super) struct Cluster {
    pub(super) nodes: Vec<NodeInfo>,
    /// Cores times weight in millionths, for each node.
    capacities: Vec<u128>,
    /// What the partitions of each node may take; `u64::MAX` for one without a limit.
    pub(super) memory_limits: Vec<u64>,
    nodes_given: u32,
}

impl Cluster {
    pub(super) fn new(nodes: &[NodeInfo], constraints: &AssignmentConstraints) -> Result<Self, InvalidError> {
        constraints.check()?;
        let nodes_given = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        let mut by_id = BTreeMap::new();
        for node in nodes {
            if !node.id.is_assigned() {
                return Err(InvalidError::NodeUnassigned);
            }
            if by_id.insert(node.id, node).is_some() {
                return Err(InvalidError::NodeDuplicate { node: node.id });
            }
        }
        let capacity =
            |node: &NodeInfo| u128::from(node.cores) * u128::from(constraints.weight_micro(node.id));
        let (nodes, capacities): (Vec<NodeInfo>, Vec<u128>) = by_id
            .into_values()
            .map(|node| (node.clone(), capacity(node)))
            .filter(|(node, capacity)| node.state == NodeState::Active && *capacity > 0)
            .unzip();
        let stated = |bytes: u64| if bytes == 0 { u64::MAX } else { bytes };
        let ceiling = constraints.max_memory_per_node.unwrap_or(u64::MAX);
        let memory_limits = nodes.iter().map(|node| stated(node.memory_bytes).min(ceiling)).collect();
        Ok(Cluster { nodes, capacities, memory_limits, nodes_given })
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The index of a node, if it is eligible.
    pub(super) fn index(&self, id: NodeId) -> Option<usize> {
        self.nodes.binary_search_by_key(&id, |node| node.id).ok()
    }

    /// The quota of each node. Memory that cannot hold all partitions is left out, for
    /// [`Rules::check_possible`](super::rules::Rules::check_possible) to say what is missing.
    pub(super) fn quotas(
        &self,
        partitions: u32,
        cap: Option<u32>,
        sizes: &Sizes,
    ) -> Result<Vec<Quota>, AssignmentError> {
        if self.nodes.is_empty() {
            return Err(AssignmentError::NoActiveNodes { nodes: self.nodes_given });
        }
        let fitting: Vec<u32> = self.memory_limits.iter().map(|limit| sizes.fitting(*limit)).collect();
        let without_memory = || quotas(partitions, &self.capacities, cap, &vec![u32::MAX; self.len()]);
        let found = quotas(partitions, &self.capacities, cap, &fitting).or_else(without_memory);
        found.ok_or_else(|| AssignmentError::MaxPartitionsExceeded {
            node: None,
            partitions,
            nodes: self.len() as u32,
            max: u64::from(cap.unwrap_or(u32::MAX)) * self.len() as u64,
        })
    }

    /// The ring of these nodes, with points in proportion to capacity. Its node indices are those of this cluster.
    pub(super) fn ring(&self, virtual_nodes_per_core: u32) -> HashRing {
        let points = |capacity: u128| {
            let rounded = (capacity * u128::from(virtual_nodes_per_core) + WEIGHT_ONE / 2) / WEIGHT_ONE;
            u32::try_from(rounded.max(1)).unwrap_or(u32::MAX)
        };
        let node = |(node, capacity): (&NodeInfo, &u128)| RingNode {
            id: node.id,
            failure_domain: node.failure_domain.clone(),
            points: points(*capacity),
        };
        HashRing::build(self.nodes.iter().zip(&self.capacities).map(node).collect())
    }
}
