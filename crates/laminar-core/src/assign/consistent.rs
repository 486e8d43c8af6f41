//! The assigner: checks what it is given, has it solved and writes the plan.

use std::collections::BTreeMap;

use super::PartitionAssigner;
use super::balance::Problem;
use super::cluster::Cluster;
use super::constraints::AssignmentConstraints;
use super::hash::hash_partition;
use super::memory::Sizes;
use super::plan::{AssignmentPlan, AssignmentStats, PartitionAssignment, PartitionMove};
use super::ring::HashRing;
use super::rules::Rules;
use super::shares::Band;
use super::solve::{SoftHints, Solution, solve};
use super::topology::TopologyChange;
use super::validate::validate;
use crate::error::{AssignmentError, InvalidError};
use crate::ids::{Epoch, NodeId, OwnerEpoch, PartitionId};
use crate::node::NodeInfo;

/// Points on the ring for each core of a node of weight 1, if not stated otherwise.
pub const VIRTUAL_NODES_PER_CORE: u32 = 150;

/// The most points on the ring for each core.
pub const VIRTUAL_NODES_PER_CORE_MAX: u32 = 10_000;

/// Assigns by consistent hashing for preference and by bands for balance.
///
/// The same nodes, partitions, owners and constraints give the same plan, whatever order they are given in, on every
/// platform.
///
/// ```
/// use laminar_core::assign::{AssignmentConstraints, ConsistentHashAssigner, PartitionAssigner};
/// use laminar_core::ids::{NodeId, PartitionId};
/// use laminar_core::node::NodeInfo;
///
/// let nodes: Vec<NodeInfo> = (1..=3).map(|id| NodeInfo::new(NodeId(id), 8)).collect();
/// let partitions: Vec<PartitionId> = (0..12).map(PartitionId).collect();
/// let assigner = ConsistentHashAssigner::new();
/// let plan = assigner.initial_assignment(&partitions, &nodes, &AssignmentConstraints::default())?;
/// assert!(plan.stats.distribution.values().all(|count| *count == 4));
/// # Ok::<(), laminar_core::error::AssignmentError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsistentHashAssigner {
    virtual_nodes_per_core: u32,
}

impl Default for ConsistentHashAssigner {
    fn default() -> Self {
        Self::new()
    }
}

impl ConsistentHashAssigner {
    /// An assigner with [`VIRTUAL_NODES_PER_CORE`].
    pub fn new() -> Self {
        ConsistentHashAssigner { virtual_nodes_per_core: VIRTUAL_NODES_PER_CORE }
    }

    /// An assigner with more or fewer points on the ring. All nodes that plan for a cluster must use the same number.
    ///
    /// # Errors
    /// Invalid: not from 1 to [`VIRTUAL_NODES_PER_CORE_MAX`].
    pub fn with_virtual_nodes(virtual_nodes_per_core: u32) -> Result<Self, InvalidError> {
        match virtual_nodes_per_core {
            1..=VIRTUAL_NODES_PER_CORE_MAX => Ok(ConsistentHashAssigner { virtual_nodes_per_core }),
            given => Err(InvalidError::VirtualNodesOutOfRange { given }),
        }
    }

    /// Points on the ring for each core of a node of weight 1.
    pub fn virtual_nodes_per_core(&self) -> u32 {
        self.virtual_nodes_per_core
    }

    /// The ring of the eligible nodes: active, with cores and a weight.
    ///
    /// # Errors
    /// Invalid: node 0, a node given twice, or a number of the constraints out of its range.
    pub fn ring(
        &self,
        nodes: &[NodeInfo],
        constraints: &AssignmentConstraints,
    ) -> Result<HashRing, InvalidError> {
        Ok(Cluster::new(nodes, constraints)?.ring(self.virtual_nodes_per_core))
    }

    /// How many of `partition_count` partitions each eligible node should have, and may have. A plan has the same bands
    /// if the memory map, where there is one, names no partition that is not in the plan.
    ///
    /// # Errors
    /// Unavailable: no eligible node. Overloaded: the cap leaves no room for all. Invalid: as for [`Self::ring`].
    pub fn bands(
        &self,
        partition_count: u32,
        nodes: &[NodeInfo],
        constraints: &AssignmentConstraints,
    ) -> Result<BTreeMap<NodeId, Band>, AssignmentError> {
        let cluster = Cluster::new(nodes, constraints)?;
        let sizes = Sizes::of_count(&constraints.partition_memory_bytes, partition_count);
        let quotas = cluster.quotas(partition_count, constraints.max_partitions_per_node, &sizes)?;
        Ok(cluster.nodes.iter().map(|node| node.id).zip(quotas.iter().map(|quota| quota.band())).collect())
    }

    /// The new owners of `current`, where a partition that never had an owner is `None`.
    fn plan(
        &self,
        current: &BTreeMap<PartitionId, Option<OwnerEpoch>>,
        cluster: &Cluster,
        constraints: &AssignmentConstraints,
        soft: SoftHints,
    ) -> Result<AssignmentPlan, AssignmentError> {
        if current.is_empty() {
            let distribution = cluster.nodes.iter().map(|node| (node.id, 0)).collect();
            let stats =
                AssignmentStats { distribution, constraints_satisfied: true, ..AssignmentStats::default() };
            return Ok(AssignmentPlan { stats, ..AssignmentPlan::default() });
        }
        let partitions: Vec<PartitionId> = current.keys().copied().collect();
        let sizes = Sizes::of(&constraints.partition_memory_bytes, &partitions);
        let quotas = cluster.quotas(partitions.len() as u32, constraints.max_partitions_per_node, &sizes)?;
        let rules = Rules::new(&partitions, cluster, &quotas, constraints);
        let hashes: Vec<u64> = partitions.iter().map(|partition| hash_partition(*partition)).collect();
        let eligible = |owner: &OwnerEpoch| cluster.index(owner.node_id).map(|index| index as u32);
        let owners: Vec<Option<u32>> =
            current.values().map(|owner| owner.as_ref().and_then(eligible)).collect();
        let ring = cluster.ring(self.virtual_nodes_per_core);
        let problem = Problem { ring: &ring, quotas: &quotas, hashes: &hashes, owners: &owners };
        let solution = solve(cluster, &problem, &rules, soft)?;
        write_plan(current, cluster, &rules, &solution)
    }
}

impl PartitionAssigner for ConsistentHashAssigner {
    fn initial_assignment(
        &self,
        partitions: &[PartitionId],
        nodes: &[NodeInfo],
        constraints: &AssignmentConstraints,
    ) -> Result<AssignmentPlan, AssignmentError> {
        let cluster = Cluster::new(nodes, constraints)?;
        let mut current = BTreeMap::new();
        for &partition in partitions {
            if current.insert(partition, None).is_some() {
                return Err(InvalidError::PartitionDuplicate { partition }.into());
            }
        }
        self.plan(&current, &cluster, constraints, SoftHints::Honour)
    }

    fn rebalance(
        &self,
        current: &BTreeMap<PartitionId, OwnerEpoch>,
        nodes: &[NodeInfo],
        change: &TopologyChange,
        constraints: &AssignmentConstraints,
    ) -> Result<AssignmentPlan, AssignmentError> {
        let soft = match change {
            TopologyChange::ManualRebalance => SoftHints::Honour,
            _ => SoftHints::Steer,
        };
        let cluster = Cluster::new(&change.apply(nodes), constraints)?;
        let current = current.iter().map(|(partition, owner)| (*partition, Some(*owner))).collect();
        self.plan(&current, &cluster, constraints, soft)
    }

    fn validate_plan(
        &self,
        plan: &AssignmentPlan,
        nodes: &[NodeInfo],
        constraints: &AssignmentConstraints,
    ) -> Result<(), AssignmentError> {
        validate(plan, &Cluster::new(nodes, constraints)?, constraints)
    }
}

fn write_plan(
    current: &BTreeMap<PartitionId, Option<OwnerEpoch>>,
    cluster: &Cluster,
    rules: &Rules<'_>,
    solution: &Solution,
) -> Result<AssignmentPlan, AssignmentError> {
    let mut counts = vec![0u32; cluster.len()];
    let mut moves = Vec::new();
    let mut assign = |((&partition_id, before), &owner): ((&PartitionId, &Option<OwnerEpoch>), &u32)| {
        counts[owner as usize] += 1;
        let node_id = cluster.nodes[owner as usize].id;
        let epoch = match before {
            None => Epoch::FIRST,
            Some(before) if before.node_id == node_id => before.epoch,
            Some(before) => {
                let new_epoch = before.epoch.next()?;
                moves.push(PartitionMove {
                    partition_id,
                    from_node: before.node_id,
                    to_node: node_id,
                    old_epoch: before.epoch,
                    new_epoch,
                });
                new_epoch
            }
        };
        Ok((partition_id, PartitionAssignment { partition_id, node_id, epoch }))
    };
    let assignments: BTreeMap<_, _> =
        current.iter().zip(&solution.owners).map(&mut assign).collect::<Result<_, InvalidError>>()?;
    let violations = violations(cluster, rules, solution, &counts);
    let stats = AssignmentStats {
        total_partitions: assignments.len() as u32,
        partitions_moved: moves.len() as u32,
        distribution: cluster.nodes.iter().map(|node| node.id).zip(counts).collect(),
        failure_domains_used: rules.domains_used(&solution.owners),
        constraints_satisfied: violations.is_empty(),
        violations,
    };
    Ok(AssignmentPlan { assignments, moves, stats })
}

/// What the plan could not have, in sentences for people.
fn violations(cluster: &Cluster, rules: &Rules<'_>, solution: &Solution, counts: &[u32]) -> Vec<String> {
    let hints = solution.unmet.iter().map(|(index, reason)| {
        let hint = &rules.soft_hints[*index];
        format!("affinity hint {:?} (strength {}) is not met: {reason}", hint.name, hint.strength)
    });
    let nodes = cluster.nodes.iter().zip(rules.quotas).zip(counts);
    let outside = nodes.filter(|((_, quota), count)| quota.violation(**count) > 0);
    let outside = outside.map(|((node, quota), count)| {
        format!(
            "node {} has {count} partitions, outside its band of {} to {}: \
             no closer plan was found under the constraints and the hints that are met",
            node.id, quota.low, quota.high
        )
    });
    hints.chain(outside).collect()
}
