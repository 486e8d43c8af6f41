//! Checking a plan, whoever made it, from its assignments alone.

use std::collections::BTreeMap;

use super::cluster::Cluster;
use super::constraints::AssignmentConstraints;
use super::memory::Sizes;
use super::plan::AssignmentPlan;
use super::rules::Rules;
use crate::error::{AssignmentError, Constraint, ConstraintReason};
use crate::ids::{NodeId, PartitionId};

pub(super) fn validate(
    plan: &AssignmentPlan,
    cluster: &Cluster,
    constraints: &AssignmentConstraints,
) -> Result<(), AssignmentError> {
    if plan.assignments.is_empty() {
        return Err(AssignmentError::EmptyPartitionList);
    }
    let partitions: Vec<PartitionId> = plan.assignments.keys().copied().collect();
    let sizes = Sizes::of(&constraints.partition_memory_bytes, &partitions);
    let quotas = cluster.quotas(partitions.len() as u32, constraints.max_partitions_per_node, &sizes)?;
    let rules = Rules::new(&partitions, cluster, &quotas, constraints);
    let owners = owners(plan, cluster)?;
    rules.check(cluster, &owners)?;
    check_moves(plan)?;
    check_stats(plan, rules.domains_used(&owners))
}

fn violation(constraint: Constraint, reason: ConstraintReason) -> AssignmentError {
    AssignmentError::ConstraintViolation { constraint, reason }
}

fn owners(plan: &AssignmentPlan, cluster: &Cluster) -> Result<Vec<u32>, AssignmentError> {
    let owner = |(&partition, assignment): (&PartitionId, &super::plan::PartitionAssignment)| {
        if assignment.partition_id != partition {
            return Err(violation(Constraint::Owner, ConstraintReason::Inconsistent { partition }));
        }
        let node = assignment.node_id;
        let not_eligible =
            || violation(Constraint::Owner, ConstraintReason::OwnerNotEligible { partition, node });
        cluster.index(node).map(|index| index as u32).ok_or_else(not_eligible)
    };
    plan.assignments.iter().map(owner).collect()
}

/// A partition moves at most once, to where it is assigned, from another node, to the next epoch (EPOCH-1).
fn check_moves(plan: &AssignmentPlan) -> Result<(), AssignmentError> {
    let mut last = None;
    for step in &plan.moves {
        let partition = step.partition_id;
        let agrees = plan.assignments.get(&partition).is_some_and(|assignment| {
            assignment.node_id == step.to_node && assignment.epoch == step.new_epoch
        });
        let next = step.old_epoch.next().is_ok_and(|next| next == step.new_epoch);
        if !agrees || !next || step.from_node == step.to_node || last >= Some(partition) {
            return Err(violation(Constraint::Moves, ConstraintReason::Inconsistent { partition }));
        }
        last = Some(partition);
    }
    Ok(())
}

fn check_stats(plan: &AssignmentPlan, domains_used: u32) -> Result<(), AssignmentError> {
    let stats = &plan.stats;
    let check = |what, given, found| match given == found {
        true => Ok(()),
        false => Err(violation(Constraint::Stats, ConstraintReason::Miscounted { what, given, found })),
    };
    check("total_partitions", stats.total_partitions, plan.assignments.len() as u32)?;
    check("partitions_moved", stats.partitions_moved, plan.moves.len() as u32)?;
    check("failure_domains_used", stats.failure_domains_used, domains_used)?;
    let mut counts: BTreeMap<NodeId, u32> = stats.distribution.keys().map(|node| (*node, 0)).collect();
    for assignment in plan.assignments.values() {
        *counts.entry(assignment.node_id).or_insert(0) += 1;
    }
    for (node, found) in counts {
        check("distribution", stats.distribution.get(&node).copied().unwrap_or(0), found)?;
    }
    Ok(())
}
