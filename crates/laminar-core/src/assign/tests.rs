//! Behaviour of the assigner on cases small or plain enough to state by hand.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::error::{AffinityReason, Constraint, ConstraintReason, ErrorKind, InvalidError};
use crate::ids::{Epoch, NodeId};
use crate::node::NodeState;

fn partitions(count: u32) -> Vec<PartitionId> {
    (0..count).map(PartitionId).collect()
}

fn nodes(count: u64) -> Vec<NodeInfo> {
    (1..=count).map(|id| NodeInfo::new(NodeId(id), 8)).collect()
}

fn in_domain(id: u64, domain: &str) -> NodeInfo {
    NodeInfo { failure_domain: Some(domain.to_owned()), ..NodeInfo::new(NodeId(id), 8) }
}

fn group(name: &str, ids: &[u32]) -> AntiAffinityGroup {
    AntiAffinityGroup { name: name.to_owned(), partition_ids: ids.iter().copied().map(PartitionId).collect() }
}

fn hint(name: &str, ids: &[u32], strength: f64) -> AffinityHint {
    AffinityHint {
        name: name.to_owned(),
        partition_ids: ids.iter().copied().map(PartitionId).collect(),
        strength,
    }
}

fn none() -> AssignmentConstraints {
    AssignmentConstraints::default()
}

fn initial(count: u32, nodes: &[NodeInfo], constraints: &AssignmentConstraints) -> AssignmentPlan {
    try_initial(count, nodes, constraints).unwrap()
}

fn try_initial(
    count: u32,
    nodes: &[NodeInfo],
    constraints: &AssignmentConstraints,
) -> Result<AssignmentPlan, AssignmentError> {
    let assigner = ConsistentHashAssigner::new();
    let plan = assigner.initial_assignment(&partitions(count), nodes, constraints)?;
    assigner.validate_plan(&plan, nodes, constraints).unwrap();
    Ok(plan)
}

fn rebalance(
    before: &AssignmentPlan,
    nodes: &[NodeInfo],
    change: &TopologyChange,
    constraints: &AssignmentConstraints,
) -> AssignmentPlan {
    let assigner = ConsistentHashAssigner::new();
    let plan = assigner.rebalance(&owners(before), nodes, change, constraints).unwrap();
    assigner.validate_plan(&plan, &change.apply(nodes), constraints).unwrap();
    plan
}

fn owners(plan: &AssignmentPlan) -> BTreeMap<PartitionId, OwnerEpoch> {
    let owner = |assignment: &PartitionAssignment| OwnerEpoch {
        node_id: assignment.node_id,
        epoch: assignment.epoch,
    };
    plan.assignments.iter().map(|(id, assignment)| (*id, owner(assignment))).collect()
}

/// `current` from pairs of node and epoch, for partitions 0, 1, 2, ...
fn current(owners: &[(u64, u64)]) -> BTreeMap<PartitionId, OwnerEpoch> {
    let owner =
        |&(node, epoch): &(u64, u64)| OwnerEpoch { node_id: NodeId(node), epoch: Epoch::new(epoch).unwrap() };
    (0..).map(PartitionId).zip(owners.iter().map(owner)).collect()
}

fn node_of(plan: &AssignmentPlan, partition: u32) -> NodeId {
    plan.assignments[&PartitionId(partition)].node_id
}

fn nodes_of(plan: &AssignmentPlan, partitions: &[u32]) -> BTreeSet<NodeId> {
    partitions.iter().map(|partition| node_of(plan, *partition)).collect()
}

mod golden {
    use super::*;

    /// These values are what makes plans the same on every platform and in every release. They must never change.
    #[test]
    fn ring_positions_never_change() {
        let vnodes = [(1, 0), (1, 1), (2, 0), (u64::MAX, u32::MAX)];
        assert_eq!(
            vnodes.map(|(node, index)| hash_vnode(NodeId(node), index)),
            [10081121414048567803, 14320476316980904250, 6443609973785787300, 8173820434434168514]
        );
        assert_eq!(
            [0, 1, 42, u32::MAX].map(|id| hash_partition(PartitionId(id))),
            [7185268526139162326, 14584431380443165642, 5038772526938507301, 11669695220121367829]
        );
    }

    #[test]
    fn a_plan_never_changes() {
        let nodes = [NodeInfo::new(NodeId(1), 4), NodeInfo::new(NodeId(2), 8), NodeInfo::new(NodeId(7), 4)];
        let plan = initial(16, &nodes, &none());
        let owners: Vec<u64> = plan.assignments.values().map(|assignment| assignment.node_id.0).collect();
        assert_eq!(owners, [1, 7, 2, 2, 2, 7, 2, 2, 2, 2, 2, 1, 7, 7, 1, 1]);
        let joined =
            rebalance(&plan, &nodes, &TopologyChange::NodeJoined(NodeInfo::new(NodeId(3), 4)), &none());
        let moved: Vec<(u32, u64)> =
            joined.moves.iter().map(|step| (step.partition_id.0, step.to_node.0)).collect();
        assert_eq!(moved, [(0, 3), (8, 3), (13, 3)]);
    }
}

mod planted;

mod initial_assignment {
    use super::*;

    #[test]
    fn every_partition_is_assigned_at_the_first_epoch() {
        let plan = initial(1000, &nodes(10), &none());
        assert_eq!(plan.assignments.keys().copied().collect::<Vec<_>>(), partitions(1000));
        assert!(plan.assignments.values().all(|assignment| assignment.epoch == Epoch::FIRST));
        assert!(plan.moves.is_empty());
        assert_eq!((plan.stats.total_partitions, plan.stats.partitions_moved), (1000, 0));
        assert!(plan.stats.constraints_satisfied);
    }

    #[test]
    fn every_node_has_its_share_rounded_down_or_up() {
        for (count, node_count) in [(1000, 10), (1003, 10), (7, 3), (2, 5), (10_000, 50)] {
            let plan = initial(count, &nodes(node_count), &none());
            let floor = count / node_count as u32;
            for (node, held) in &plan.stats.distribution {
                let ceil = count.div_ceil(node_count as u32);
                assert!((floor..=ceil).contains(held), "{count}x{node_count}: node {node} has {held}");
            }
        }
    }

    #[test]
    fn the_same_input_in_any_order_gives_the_same_plan() {
        let assigner = ConsistentHashAssigner::new();
        let (mut ids, mut all) = (partitions(300), nodes(7));
        let plan = assigner.initial_assignment(&ids, &all, &none()).unwrap();
        ids.reverse();
        all.reverse();
        let again = assigner.initial_assignment(&ids, &all, &none()).unwrap();
        assert_eq!(plan.to_json(), again.to_json());
    }

    #[test]
    fn a_single_node_gets_all_partitions() {
        let plan = initial(100, &nodes(1), &none());
        assert_eq!(plan.stats.distribution, BTreeMap::from([(NodeId(1), 100)]));
    }

    #[test]
    fn most_partitions_are_where_the_ring_prefers_them() {
        let (nodes, constraints) = (nodes(10), none());
        let plan = initial(1000, &nodes, &constraints);
        let ring = ConsistentHashAssigner::new().ring(&nodes, &constraints).unwrap();
        let preferred = |(id, assignment): &(&PartitionId, &PartitionAssignment)| {
            ring.lookup(hash_partition(**id)) == Some(assignment.node_id)
        };
        let count = plan.assignments.iter().filter(preferred).count();
        assert!(count > 800, "{count} of 1000");
    }

    #[test]
    fn shares_follow_cores_and_weights() {
        let all = [NodeInfo::new(NodeId(1), 4), NodeInfo::new(NodeId(2), 8), NodeInfo::new(NodeId(3), 4)];
        let plan = initial(400, &all, &none());
        assert_eq!(plan.stats.distribution.values().copied().collect::<Vec<_>>(), [100, 200, 100]);
        let weighted = AssignmentConstraints { node_weights: BTreeMap::from([(NodeId(3), 2.5)]), ..none() };
        let plan = initial(440, &all, &weighted);
        assert_eq!(plan.stats.distribution.values().copied().collect::<Vec<_>>(), [80, 160, 200]);
    }

    #[test]
    fn nodes_without_cores_without_weight_or_not_active_get_nothing() {
        let mut all = nodes(6);
        all[1].cores = 0;
        all[2].state = NodeState::Draining;
        all[3].state = NodeState::Joining;
        let weighted = AssignmentConstraints { node_weights: BTreeMap::from([(NodeId(5), 0.0)]), ..none() };
        let plan = initial(10, &all, &weighted);
        assert_eq!(plan.stats.distribution, BTreeMap::from([(NodeId(1), 5), (NodeId(6), 5)]));
    }

    #[test]
    fn no_partitions_give_an_empty_plan_even_without_nodes() {
        let assigner = ConsistentHashAssigner::new();
        let plan = assigner.initial_assignment(&[], &nodes(2), &none()).unwrap();
        assert!(plan.assignments.is_empty() && plan.moves.is_empty() && plan.stats.constraints_satisfied);
        assert_eq!(plan.stats.distribution, BTreeMap::from([(NodeId(1), 0), (NodeId(2), 0)]));
        assert!(assigner.initial_assignment(&[], &[], &none()).unwrap().assignments.is_empty());
        let change = TopologyChange::ManualRebalance;
        assert!(assigner.rebalance(&BTreeMap::new(), &[], &change, &none()).unwrap().assignments.is_empty());
        assert_eq!(
            assigner.validate_plan(&plan, &nodes(2), &none()),
            Err(AssignmentError::EmptyPartitionList)
        );
    }

    #[test]
    fn no_active_node_is_an_error() {
        let mut all = nodes(3);
        all[0].state = NodeState::Failed;
        all[1].state = NodeState::Draining;
        all[2].cores = 0;
        assert_eq!(try_initial(1, &all, &none()), Err(AssignmentError::NoActiveNodes { nodes: 3 }));
        assert_eq!(try_initial(1, &[], &none()), Err(AssignmentError::NoActiveNodes { nodes: 0 }));
    }

    #[test]
    fn sparse_and_extreme_ids_are_fine() {
        let ids = [PartitionId(0), PartitionId(7), PartitionId(4_000_000_000), PartitionId(u32::MAX)];
        let all = [NodeInfo::new(NodeId(u64::MAX), u32::MAX), NodeInfo::new(NodeId(1), u32::MAX)];
        let heaviest = NODE_WEIGHT_MAX;
        let weights = BTreeMap::from([(NodeId(1), heaviest), (NodeId(u64::MAX), heaviest)]);
        let constraints = AssignmentConstraints { node_weights: weights, ..none() };
        let plan = ConsistentHashAssigner::with_virtual_nodes(10_000)
            .unwrap()
            .initial_assignment(&ids, &all, &constraints)
            .unwrap();
        assert!(plan.stats.distribution.values().all(|held| *held == 2));
    }
}

mod bands {
    use super::*;

    fn bands(count: u32, nodes: &[NodeInfo], constraints: &AssignmentConstraints) -> Vec<(u32, u32, u32)> {
        let bands = ConsistentHashAssigner::new().bands(count, nodes, constraints).unwrap();
        bands.values().map(|band| (band.low, band.high, band.cap)).collect()
    }

    #[test]
    fn the_band_is_ten_percent_and_always_holds_the_floor_and_the_ceiling() {
        assert_eq!(bands(1000, &nodes(10), &none())[0], (90, 110, 150));
        assert_eq!(bands(1000, &nodes(13), &none())[0], (70, 84, 116));
        // A share of 2.5: 10 % is less than rounding.
        assert_eq!(bands(10, &nodes(4), &none())[0], (2, 3, 4));
        // A share of exactly 1 may not leave a node empty.
        assert_eq!(bands(4, &nodes(4), &none())[0], (1, 1, 2));
        assert_eq!(bands(1, &nodes(4), &none())[0], (0, 1, 1));
        assert_eq!(bands(0, &nodes(1), &none())[0], (0, 0, 0));
    }

    #[test]
    fn a_cap_below_a_share_hands_the_rest_to_the_others() {
        let all = [NodeInfo::new(NodeId(1), 80), NodeInfo::new(NodeId(2), 10), NodeInfo::new(NodeId(3), 10)];
        let capped = AssignmentConstraints { max_partitions_per_node: Some(40), ..none() };
        assert_eq!(bands(100, &all, &capped), [(36, 40, 40), (27, 33, 40), (27, 33, 40)]);
        assert_eq!(initial(100, &all, &capped).stats.distribution[&NodeId(1)], 40);
    }

    #[test]
    fn shares_are_shown_and_add_up() {
        let all = [NodeInfo::new(NodeId(1), 1), NodeInfo::new(NodeId(2), 2)];
        let bands = ConsistentHashAssigner::new().bands(10, &all, &none()).unwrap();
        assert!((bands.values().map(|band| band.share).sum::<f64>() - 10.0).abs() < 1e-9);
        assert!(ConsistentHashAssigner::new().bands(u32::MAX, &all, &none()).is_ok());
    }
}

mod rebalancing {
    use super::*;

    #[test]
    fn a_join_moves_only_what_the_new_node_lacks_and_less_than_its_share() {
        let all = nodes(10);
        let before = initial(1000, &all, &none());
        let after =
            rebalance(&before, &all, &TopologyChange::NodeJoined(NodeInfo::new(NodeId(11), 8)), &none());
        // The share is 90.9, so the band starts at 82.
        assert_eq!(after.stats.partitions_moved, 82);
        assert!(after.stats.partitions_moved < 1000 / 11);
        assert!(after.moves.iter().all(|step| step.to_node == NodeId(11)));
        assert_eq!(after.stats.distribution[&NodeId(11)], 82);
    }

    #[test]
    fn a_leave_reassigns_exactly_what_the_node_had() {
        let all = nodes(10);
        let before = initial(1000, &all, &none());
        let after = rebalance(&before, &all, &TopologyChange::NodeLeft(NodeId(4)), &none());
        assert_eq!(after.stats.partitions_moved, before.stats.distribution[&NodeId(4)]);
        assert!(after.moves.iter().all(|step| step.from_node == NodeId(4)));
        assert!(!after.stats.distribution.contains_key(&NodeId(4)));
        assert_eq!(after.assignments.len(), 1000);
    }

    #[test]
    fn moved_partitions_get_the_next_epoch_and_kept_ones_keep_theirs() {
        let assigner = ConsistentHashAssigner::new();
        let before = current(&[(1, 5), (2, 9), (1, 1), (2, 2)]);
        let change = TopologyChange::NodeLeft(NodeId(2));
        let plan = assigner.rebalance(&before, &nodes(2), &change, &none()).unwrap();
        let epochs: Vec<u64> = plan.assignments.values().map(|assignment| assignment.epoch.get()).collect();
        assert_eq!(epochs, [5, 10, 1, 3]);
        let step = plan.moves[0];
        assert_eq!((step.partition_id, step.from_node, step.to_node), (PartitionId(1), NodeId(2), NodeId(1)));
        assert_eq!((step.old_epoch.get(), step.new_epoch.get()), (9, 10));
    }

    #[test]
    fn unassigned_partitions_are_placed_and_count_as_moves() {
        let before = current(&[(0, 3), (1, 1), (2, 1), (0, 1)]);
        let assigner = ConsistentHashAssigner::new();
        let plan = assigner.rebalance(&before, &nodes(2), &TopologyChange::ManualRebalance, &none()).unwrap();
        assert_eq!(plan.stats.partitions_moved, 2);
        assert_eq!(plan.moves[0].from_node, NodeId::UNASSIGNED);
        assert_eq!(plan.moves[0].new_epoch.get(), 4);
        assert_eq!(plan.stats.distribution, BTreeMap::from([(NodeId(1), 2), (NodeId(2), 2)]));
    }

    #[test]
    fn a_partition_at_its_last_epoch_cannot_move() {
        let before = current(&[(2, u64::MAX)]);
        let assigner = ConsistentHashAssigner::new();
        let result = assigner.rebalance(&before, &nodes(2), &TopologyChange::NodeLeft(NodeId(2)), &none());
        assert_eq!(result, Err(AssignmentError::Invalid(InvalidError::EpochExhausted)));
    }

    #[test]
    fn nothing_moves_when_nothing_changed() {
        let all = nodes(7);
        let before = initial(100, &all, &none());
        let after = rebalance(&before, &all, &TopologyChange::ManualRebalance, &none());
        assert!(after.moves.is_empty());
        assert_eq!(after.assignments, before.assignments);
    }

    #[test]
    fn the_list_from_before_and_from_after_the_change_give_the_same_plan() {
        let (few, many) = (nodes(4), nodes(5));
        let before = initial(50, &few, &none());
        let joined = TopologyChange::NodeJoined(many[4].clone());
        assert_eq!(rebalance(&before, &few, &joined, &none()), rebalance(&before, &many, &joined, &none()));
        let before = initial(50, &many, &none());
        let left = TopologyChange::NodeLeft(NodeId(5));
        assert_eq!(rebalance(&before, &few, &left, &none()), rebalance(&before, &many, &left, &none()));
    }

    #[test]
    fn a_node_that_grows_takes_more_and_one_that_drains_gives_all_away() {
        let all = nodes(4);
        let before = initial(400, &all, &none());
        let larger = TopologyChange::NodeUpdated(NodeInfo::new(NodeId(2), 16));
        let after = rebalance(&before, &all, &larger, &none());
        // Its share is now 160, so it is given 44 to reach 144; the others' band ends at 88, so each gives 12.
        assert_eq!(after.stats.partitions_moved, 44);
        assert_eq!(after.stats.distribution[&NodeId(2)], 144);
        let draining = NodeInfo { state: NodeState::Draining, ..NodeInfo::new(NodeId(2), 8) };
        let after = rebalance(&before, &all, &TopologyChange::NodeUpdated(draining), &none());
        assert_eq!(after.stats.partitions_moved, 100);
        assert!(after.moves.iter().all(|step| step.from_node == NodeId(2)));
    }

    /// Nodes leave and come back one at a time; each restart moves one node's partitions away and about as many back,
    /// and never anything between the others.
    #[test]
    fn a_rolling_restart_moves_little_and_ends_balanced() {
        let all = nodes(6);
        let mut plan = initial(600, &all, &none());
        for node in &all {
            let held = plan.stats.distribution[&node.id];
            let down = rebalance(&plan, &all, &TopologyChange::NodeLeft(node.id), &none());
            assert_eq!(down.stats.partitions_moved, held);
            let others: Vec<NodeInfo> = all.iter().filter(|other| other.id != node.id).cloned().collect();
            plan = rebalance(&down, &others, &TopologyChange::NodeJoined(node.clone()), &none());
            assert!(plan.moves.iter().all(|step| step.to_node == node.id));
            assert!(plan.stats.partitions_moved <= 100);
        }
        assert!(plan.stats.distribution.values().all(|held| (90..=110).contains(held)));
    }
}

mod hard_constraints {
    use super::*;

    #[test]
    fn the_cap_is_kept_up_to_the_last_place() {
        let capped = |max| AssignmentConstraints { max_partitions_per_node: Some(max), ..none() };
        let plan = initial(30, &nodes(3), &capped(10));
        assert!(plan.stats.distribution.values().all(|held| *held == 10));
        assert_eq!(
            try_initial(31, &nodes(3), &capped(10)),
            Err(AssignmentError::MaxPartitionsExceeded { node: None, partitions: 31, nodes: 3, max: 30 })
        );
        let none_allowed = try_initial(1, &nodes(1), &capped(0)).unwrap_err();
        assert_eq!(none_allowed.kind(), ErrorKind::Overloaded);
    }

    #[test]
    fn partitions_are_spread_over_the_failure_domains_asked_for() {
        // The second domain has so little weight that only the constraint brings a partition there.
        let all = [in_domain(1, "a"), in_domain(2, "a"), in_domain(3, "b")];
        let wanted = |domains| AssignmentConstraints {
            min_failure_domains: Some(domains),
            node_weights: BTreeMap::from([(NodeId(3), 0.01)]),
            ..none()
        };
        assert_eq!(initial(4, &all, &wanted(1)).stats.failure_domains_used, 1);
        assert_eq!(initial(4, &all, &wanted(2)).stats.failure_domains_used, 2);
        assert_eq!(
            try_initial(4, &all, &wanted(3)),
            Err(AssignmentError::ConstraintViolation {
                constraint: Constraint::FailureDomains,
                reason: ConstraintReason::TooFewDomains { required: 3, found: 2 },
            })
        );
        let too_few_partitions = try_initial(1, &all, &wanted(2)).unwrap_err();
        assert_eq!(too_few_partitions.kind(), ErrorKind::Invalid);
    }

    /// Three zones of three nodes: a group of three can be spread so that no zone's loss takes more than its part.
    #[test]
    fn three_zones_of_three_nodes_all_carry_a_third() {
        let all: Vec<NodeInfo> = (1..=9).map(|id| in_domain(id, ["a", "b", "c"][id as usize % 3])).collect();
        let constraints = AssignmentConstraints {
            min_failure_domains: Some(3),
            anti_affinity_groups: vec![group("g", &[0, 1, 2, 3, 4, 5, 6, 7, 8])],
            ..none()
        };
        let plan = initial(90, &all, &constraints);
        assert_eq!(plan.stats.failure_domains_used, 3);
        for zone in 0..3 {
            let held: u32 =
                (1..=9).filter(|id| id % 3 == zone).map(|id| plan.stats.distribution[&NodeId(id)]).sum();
            assert!((27..=33).contains(&held), "zone {zone} has {held}");
        }
        assert_eq!(nodes_of(&plan, &[0, 1, 2, 3, 4, 5, 6, 7, 8]).len(), 9);
        let after = rebalance(&plan, &all, &TopologyChange::ManualRebalance, &constraints);
        assert!(after.moves.is_empty());
    }

    #[test]
    fn partitions_of_a_group_are_apart_up_to_the_number_of_nodes() {
        let grouped =
            |ids: &[u32]| AssignmentConstraints { anti_affinity_groups: vec![group("g", ids)], ..none() };
        let plan = initial(20, &nodes(4), &grouped(&[3, 7, 11, 15]));
        assert_eq!(nodes_of(&plan, &[3, 7, 11, 15]).len(), 4);
        assert_eq!(
            try_initial(20, &nodes(4), &grouped(&[3, 7, 11, 15, 19])),
            Err(AssignmentError::ConstraintViolation {
                constraint: Constraint::AntiAffinity("g".to_owned()),
                reason: ConstraintReason::GroupTooLarge { partitions: 5, nodes: 4 },
            })
        );
        // Partitions that are not in the plan do not count, nor does naming one twice.
        let plan = initial(16, &nodes(4), &grouped(&[3, 3, 7, 11, 15, 19, 99]));
        assert_eq!(nodes_of(&plan, &[3, 7, 11, 15]).len(), 4);
    }

    #[test]
    fn groups_that_overlap_are_all_kept() {
        let groups = (0..12).map(|start| group("g", &[start, (start + 1) % 12, (start + 5) % 12])).collect();
        let constraints = AssignmentConstraints { anti_affinity_groups: groups, ..none() };
        initial(12, &nodes(4), &constraints);
    }

    /// Tables and tenants: every partition is in one group of each family, and both are as large as the cluster.
    #[test]
    fn two_families_of_groups_as_large_as_the_cluster_are_kept() {
        let rows = (0..20u32).map(|row| (0..20).map(|place| row * 20 + place).collect::<Vec<_>>());
        let columns = (0..20u32).map(|column| (0..20).map(|place| place * 20 + column).collect::<Vec<_>>());
        let groups = rows.chain(columns).map(|ids| group("g", &ids)).collect();
        let constraints = AssignmentConstraints { anti_affinity_groups: groups, ..none() };
        let plan = initial(400, &nodes(20), &constraints);
        assert!(plan.stats.constraints_satisfied, "{:?}", plan.stats.violations);
    }

    #[test]
    fn a_leave_with_a_group_moves_only_what_must() {
        let constraints =
            AssignmentConstraints { anti_affinity_groups: vec![group("g", &[0, 1, 2])], ..none() };
        let all = nodes(4);
        let before = initial(40, &all, &constraints);
        for id in 1..=4 {
            let after = rebalance(&before, &all, &TopologyChange::NodeLeft(NodeId(id)), &constraints);
            assert_eq!(after.stats.partitions_moved, before.stats.distribution[&NodeId(id)]);
        }
    }

    #[test]
    fn memory_is_kept_to_the_byte() {
        let constraints = |limit, each| AssignmentConstraints {
            max_memory_per_node: Some(limit),
            partition_memory_bytes: PartitionMemory::One(each),
            ..none()
        };
        initial(10, &nodes(2), &constraints(50, 10));
        assert_eq!(
            try_initial(10, &nodes(2), &constraints(49, 10)),
            Err(AssignmentError::InsufficientCapacity {
                node: None,
                partition: None,
                needed_bytes: 100,
                available_bytes: 98,
            })
        );
        assert_eq!(
            try_initial(1, &nodes(2), &constraints(9, 10)),
            Err(AssignmentError::InsufficientCapacity {
                node: None,
                partition: Some(PartitionId(0)),
                needed_bytes: 10,
                available_bytes: 9,
            })
        );
    }

    #[test]
    fn a_node_with_little_memory_has_a_smaller_share_and_the_others_a_larger() {
        let mut all = nodes(2);
        all[0].memory_bytes = 30;
        let constraints = AssignmentConstraints {
            max_memory_per_node: Some(1000),
            partition_memory_bytes: PartitionMemory::One(10),
            ..none()
        };
        let plan = initial(10, &all, &constraints);
        assert_eq!(plan.stats.distribution, BTreeMap::from([(NodeId(1), 3), (NodeId(2), 7)]));
        assert!(plan.stats.constraints_satisfied);

        // Far below: 1.5 times the share by cores would not do for the others.
        all[0].memory_bytes = 10;
        assert_eq!(
            initial(100, &all, &constraints).stats.distribution,
            BTreeMap::from([(NodeId(1), 1), (NodeId(2), 99)])
        );
        let bands = ConsistentHashAssigner::new().bands(100, &all, &constraints).unwrap();
        assert_eq!((bands[&NodeId(1)].low, bands[&NodeId(1)].high), (1, 1));
        assert_eq!((bands[&NodeId(2)].high, bands[&NodeId(2)].cap), (100, 149));
    }

    #[test]
    fn memory_by_partition_may_force_a_node_out_of_its_band() {
        let mut all = nodes(2);
        all[0].memory_bytes = 30;
        let sizes = BTreeMap::from([(0, 25), (1, 25), (2, 25), (3, 25), (4, 5), (5, 5)]);
        let constraints = AssignmentConstraints {
            anti_affinity_groups: vec![group("g", &[4, 5])],
            partition_memory_bytes: PartitionMemory::Map(
                sizes.into_iter().map(|(id, bytes)| (PartitionId(id), bytes)).collect(),
            ),
            ..none()
        };
        // Two or three small ones would fit, but of those there are two and they must be apart.
        let plan = initial(6, &all, &constraints);
        assert_eq!(plan.stats.distribution, BTreeMap::from([(NodeId(1), 2), (NodeId(2), 4)]));
        let short = AssignmentConstraints { max_partitions_per_node: Some(3), ..constraints };
        let error = try_initial(6, &all, &short).unwrap_err();
        assert!(error.to_string().contains("raise max_partitions_per_node"), "{error}");
    }

    #[test]
    fn memory_by_partition_is_packed() {
        let sizes = [60, 50, 40, 40, 30, 30, 20, 20, 10];
        let map = (0..).map(PartitionId).zip(sizes).collect();
        let constraints = AssignmentConstraints {
            max_memory_per_node: Some(100),
            partition_memory_bytes: PartitionMemory::Map(map),
            ..none()
        };
        // Three nodes have exactly what is needed.
        initial(9, &nodes(3), &constraints);
    }

    /// The nodes have half a percent more than is needed, so every one has to be filled.
    #[test]
    fn scarce_memory_is_filled_evenly_and_inside_the_bands() {
        let sizes: BTreeMap<PartitionId, u64> =
            (0..500).map(|id| (PartitionId(id), u64::from(id * 7919 % 101))).collect();
        let needed: u64 = sizes.values().sum();
        let constraints = AssignmentConstraints {
            max_memory_per_node: Some(needed / 10 + needed / 2000),
            partition_memory_bytes: PartitionMemory::Map(sizes),
            ..none()
        };
        let plan = initial(500, &nodes(10), &constraints);
        assert!(plan.stats.constraints_satisfied, "{:?}", plan.stats.violations);
    }

    #[test]
    fn memory_without_a_limit_or_without_sizes_is_ignored() {
        let sized =
            AssignmentConstraints { partition_memory_bytes: PartitionMemory::One(u64::MAX), ..none() };
        initial(10, &nodes(2), &sized);
        let limited = AssignmentConstraints { max_memory_per_node: Some(1), ..none() };
        initial(10, &nodes(2), &limited);
    }

    #[test]
    fn hard_hints_are_together_also_when_they_overlap() {
        let constraints = AssignmentConstraints {
            affinity_hints: vec![hint("a", &[0, 1], 1.0), hint("b", &[1, 2], 1.0), hint("c", &[5, 6], 1.0)],
            ..none()
        };
        let plan = initial(20, &nodes(4), &constraints);
        assert_eq!(nodes_of(&plan, &[0, 1, 2]).len(), 1);
        assert_eq!(nodes_of(&plan, &[5, 6]).len(), 1);
    }

    #[test]
    fn a_hard_hint_against_another_hard_constraint_is_a_conflict() {
        let conflict = |constraints: AssignmentConstraints| match try_initial(8, &nodes(4), &constraints) {
            Err(AssignmentError::AffinityConflict { hint, reason }) => (hint, reason),
            other => panic!("{other:?}"),
        };
        let hints = vec![hint("pair", &[0, 1], 1.0)];
        let apart = AssignmentConstraints {
            anti_affinity_groups: vec![group("g", &[0, 1])],
            affinity_hints: hints.clone(),
            ..none()
        };
        let reason = AffinityReason::SameGroup {
            first: PartitionId(0),
            second: PartitionId(1),
            group: "g".to_owned(),
        };
        assert_eq!(conflict(apart), ("pair".to_owned(), reason));

        let many = AssignmentConstraints { affinity_hints: vec![hint("four", &[0, 1, 2, 3], 1.0)], ..none() };
        assert_eq!(conflict(many), ("four".to_owned(), AffinityReason::TooMany { partitions: 4, max: 3 }));

        let large = AssignmentConstraints {
            affinity_hints: hints.clone(),
            max_memory_per_node: Some(19),
            partition_memory_bytes: PartitionMemory::Map(BTreeMap::from([
                (PartitionId(0), 10),
                (PartitionId(1), 10),
            ])),
            ..none()
        };
        let reason = AffinityReason::TooMuchMemory { needed_bytes: 20, max_bytes: 19 };
        assert_eq!(conflict(large), ("pair".to_owned(), reason));

        // Five pairs cannot be placed on four nodes of two, although each alone could.
        let pairs: Vec<AffinityHint> =
            [[0, 1], [2, 3], [4, 5], [6, 7]].iter().map(|ids| hint("p", ids, 1.0)).collect();
        let capped =
            AssignmentConstraints { affinity_hints: pairs, max_partitions_per_node: Some(3), ..none() };
        assert_eq!(
            ConsistentHashAssigner::new().initial_assignment(&partitions(9), &nodes(3), &capped),
            Err(AssignmentError::AffinityConflict {
                hint: "p".to_owned(),
                reason: AffinityReason::NoPlanFound
            })
        );
    }
}

mod soft_hints {
    use super::*;

    #[test]
    fn partitions_of_a_hint_are_together_within_the_band() {
        let constraints =
            AssignmentConstraints { affinity_hints: vec![hint("h", &[0, 1, 2, 3], 0.5)], ..none() };
        let plan = initial(40, &nodes(4), &constraints);
        assert_eq!(nodes_of(&plan, &[0, 1, 2, 3]).len(), 1);
        assert!(plan.stats.distribution.values().all(|held| (9..=11).contains(held)));
        assert!(plan.stats.constraints_satisfied);
    }

    #[test]
    fn a_hint_larger_than_the_band_is_met_up_to_the_cap_and_dropped_above() {
        let constraints =
            |ids: &[u32]| AssignmentConstraints { affinity_hints: vec![hint("h", ids, 0.5)], ..none() };
        let plan = initial(12, &nodes(3), &constraints(&[0, 1, 2, 3, 4, 5]));
        assert_eq!(nodes_of(&plan, &[0, 1, 2, 3, 4, 5]).len(), 1);
        assert!(!plan.stats.constraints_satisfied);
        let plan = initial(12, &nodes(3), &constraints(&[0, 1, 2, 3, 4, 5, 6]));
        assert!(plan.stats.distribution.values().all(|held| *held == 4));
        assert_eq!(
            plan.stats.violations,
            [
                "affinity hint \"h\" (strength 0.5) is not met: 7 partitions would be together and no node may have \
              more than 6"
            ]
        );
    }

    #[test]
    fn anti_affinity_wins_over_a_soft_hint_and_the_plan_says_so() {
        let constraints = AssignmentConstraints {
            anti_affinity_groups: vec![group("g", &[0, 1])],
            affinity_hints: vec![hint("h", &[0, 1], 0.99)],
            ..none()
        };
        let plan = initial(8, &nodes(4), &constraints);
        assert_eq!(nodes_of(&plan, &[0, 1]).len(), 2);
        assert_eq!(
            plan.stats.violations,
            [
                "affinity hint \"h\" (strength 0.99) is not met: partitions 0 and 1 must be apart by anti-affinity \
              group \"g\""
            ]
        );
    }

    #[test]
    fn the_stronger_of_two_hints_that_exclude_each_other_is_met() {
        for (first, second) in [(0.3, 0.6), (0.6, 0.3), (0.5, 0.5)] {
            let constraints = AssignmentConstraints {
                anti_affinity_groups: vec![group("g", &[0, 2])],
                affinity_hints: vec![hint("first", &[0, 1], first), hint("second", &[1, 2], second)],
                ..none()
            };
            let plan = initial(12, &nodes(3), &constraints);
            let stronger: &[u32] = if second > first { &[1, 2] } else { &[0, 1] };
            assert_eq!(nodes_of(&plan, stronger).len(), 1, "{first} and {second}");
            assert_eq!(plan.stats.violations.len(), 1);
        }
    }

    #[test]
    fn a_hint_of_strength_zero_is_ignored() {
        let ids: Vec<u32> = (0..20).collect();
        let constraints = AssignmentConstraints { affinity_hints: vec![hint("h", &ids, 0.0)], ..none() };
        assert_eq!(initial(20, &nodes(4), &constraints), initial(20, &nodes(4), &none()));
    }

    #[test]
    fn only_as_many_hints_as_fit_are_met_and_the_weakest_is_dropped() {
        // Three nodes of at most five take three of these four threes.
        let hints = vec![
            hint("weak", &[0, 1, 2], 0.2),
            hint("a", &[3, 4, 5], 0.8),
            hint("b", &[6, 7, 8], 0.7),
            hint("c", &[9, 10, 11], 0.9),
        ];
        let constraints =
            AssignmentConstraints { affinity_hints: hints, max_partitions_per_node: Some(5), ..none() };
        let plan = initial(12, &nodes(3), &constraints);
        for met in [[3, 4, 5], [6, 7, 8], [9, 10, 11]] {
            assert_eq!(nodes_of(&plan, &met).len(), 1);
        }
        assert_eq!(plan.stats.violations.len(), 1);
        assert!(plan.stats.violations[0].starts_with("affinity hint \"weak\" (strength 0.2) is not met"));
    }

    /// Each hint takes more than half of a node's cap, so a node takes one: seen without placing any.
    #[test]
    fn of_many_large_hints_the_strongest_are_met() {
        let ids = |index: u32| (index * 160..(index + 1) * 160).collect::<Vec<u32>>();
        let strength = |index: u32| 0.9 - f64::from(index) / 100.0;
        let hints: Vec<AffinityHint> =
            (0..60).map(|index| hint(&format!("h{index}"), &ids(index), strength(index))).collect();
        let constraints = AssignmentConstraints { affinity_hints: hints, ..none() };
        let plan = initial(10_000, &nodes(50), &constraints);
        for index in 0..60 {
            assert_eq!(nodes_of(&plan, &ids(index)).len() == 1, index < 50, "hint {index}");
        }
    }

    #[test]
    fn a_change_of_nodes_moves_nothing_for_a_soft_hint_but_a_manual_rebalance_does() {
        let before = current(&[(1, 1), (2, 1), (3, 1), (1, 1), (2, 1), (3, 1)]);
        let constraints = AssignmentConstraints { affinity_hints: vec![hint("h", &[0, 1], 0.5)], ..none() };
        let assigner = ConsistentHashAssigner::new();
        let plan = |change| assigner.rebalance(&before, &nodes(3), &change, &constraints).unwrap();

        let updated = plan(TopologyChange::NodeUpdated(NodeInfo::new(NodeId(1), 8)));
        assert!(updated.moves.is_empty());
        assert!(
            updated.stats.violations[0].contains("a manual rebalance may"),
            "{:?}",
            updated.stats.violations
        );
        let manual = plan(TopologyChange::ManualRebalance);
        assert_eq!(nodes_of(&manual, &[0, 1]).len(), 1);
        assert_eq!(manual.stats.partitions_moved, 2);
        assert!(manual.stats.constraints_satisfied);
    }

    #[test]
    fn a_soft_hint_steers_what_has_to_move_anyway() {
        // Partition 0 loses its owner; its mate is on node 3.
        let before = current(&[(9, 1), (1, 1), (2, 1), (3, 1)]);
        let change = TopologyChange::NodeLeft(NodeId(9));
        let assigner = ConsistentHashAssigner::new();
        for mate in 1..4 {
            let constraints =
                AssignmentConstraints { affinity_hints: vec![hint("h", &[0, mate], 0.1)], ..none() };
            let plan = assigner.rebalance(&before, &nodes(3), &change, &constraints).unwrap();
            assert_eq!(nodes_of(&plan, &[0, mate]).len(), 1);
            assert_eq!(plan.stats.partitions_moved, 1);
        }
    }
}

mod validation {
    use super::*;

    fn check(plan: &AssignmentPlan, constraints: &AssignmentConstraints) -> Result<(), AssignmentError> {
        ConsistentHashAssigner::new().validate_plan(plan, &nodes(3), constraints)
    }

    fn constraint_of(result: Result<(), AssignmentError>) -> Constraint {
        match result {
            Err(AssignmentError::ConstraintViolation { constraint, .. }) => constraint,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_broken_constraint_is_found() {
        let plan = initial(6, &nodes(3), &none());
        let together = plan
            .assignments
            .values()
            .find(|other| other.partition_id != PartitionId(0) && other.node_id == node_of(&plan, 0));
        let together = together.unwrap().partition_id.0;
        let elsewhere = (1..6).find(|other| node_of(&plan, *other) != node_of(&plan, 0)).unwrap();
        assert_eq!(check(&plan, &none()), Ok(()));

        let capped = AssignmentConstraints { max_partitions_per_node: Some(2), ..none() };
        assert_eq!(check(&plan, &capped), Ok(()));
        let capped = AssignmentConstraints { max_partitions_per_node: Some(1), ..none() };
        assert!(matches!(check(&plan, &capped), Err(AssignmentError::MaxPartitionsExceeded { .. })));

        let grouped =
            |ids: &[u32]| AssignmentConstraints { anti_affinity_groups: vec![group("g", ids)], ..none() };
        assert_eq!(check(&plan, &grouped(&[0, elsewhere])), Ok(()));
        let broken = check(&plan, &grouped(&[0, together]));
        assert_eq!(constraint_of(broken), Constraint::AntiAffinity("g".to_owned()));

        let hinted = |ids: &[u32], strength| AssignmentConstraints {
            affinity_hints: vec![hint("h", ids, strength)],
            ..none()
        };
        assert_eq!(check(&plan, &hinted(&[0, together], 1.0)), Ok(()));
        assert_eq!(check(&plan, &hinted(&[0, elsewhere], 0.9)), Ok(()));
        assert!(matches!(
            check(&plan, &hinted(&[0, elsewhere], 1.0)),
            Err(AssignmentError::AffinityConflict { reason: AffinityReason::Apart { .. }, .. })
        ));

        let memory = |limit| AssignmentConstraints {
            max_memory_per_node: Some(limit),
            partition_memory_bytes: PartitionMemory::One(5),
            ..none()
        };
        assert_eq!(check(&plan, &memory(10)), Ok(()));
        assert!(matches!(check(&plan, &memory(9)), Err(AssignmentError::InsufficientCapacity { .. })));

        let domains = AssignmentConstraints { min_failure_domains: Some(1), ..none() };
        assert_eq!(constraint_of(check(&plan, &domains)), Constraint::FailureDomains);
    }

    #[test]
    fn an_owner_that_is_not_eligible_is_found() {
        let mut plan = initial(6, &nodes(3), &none());
        plan.assignments.get_mut(&PartitionId(2)).unwrap().node_id = NodeId(77);
        assert_eq!(
            check(&plan, &none()),
            Err(AssignmentError::ConstraintViolation {
                constraint: Constraint::Owner,
                reason: ConstraintReason::OwnerNotEligible { partition: PartitionId(2), node: NodeId(77) },
            })
        );
        let mut misfiled = initial(6, &nodes(3), &none());
        misfiled.assignments.get_mut(&PartitionId(2)).unwrap().partition_id = PartitionId(3);
        assert_eq!(constraint_of(check(&misfiled, &none())), Constraint::Owner);
    }

    #[test]
    fn moves_that_do_not_agree_with_the_assignments_are_found() {
        let before = initial(9, &nodes(3), &none());
        let plan = rebalance(&before, &nodes(3), &TopologyChange::NodeLeft(NodeId(3)), &none());
        let two = nodes(2);
        let breaks: [fn(&mut AssignmentPlan); 4] = [
            |plan| plan.moves[0].new_epoch = plan.moves[0].new_epoch.next().unwrap(),
            |plan| plan.moves[0].to_node = NodeId(99),
            |plan| plan.moves[0].from_node = plan.moves[0].to_node,
            |plan| plan.moves[1] = plan.moves[0],
        ];
        for break_it in breaks {
            let mut broken = plan.clone();
            break_it(&mut broken);
            let result = ConsistentHashAssigner::new().validate_plan(&broken, &two, &none());
            assert_eq!(constraint_of(result), Constraint::Moves);
        }
    }

    #[test]
    fn numbers_that_do_not_agree_with_the_assignments_are_found() {
        let plan = initial(6, &nodes(3), &none());
        let breaks: [fn(&mut AssignmentStats); 4] = [
            |stats| stats.total_partitions += 1,
            |stats| stats.partitions_moved += 1,
            |stats| stats.failure_domains_used += 1,
            |stats| *stats.distribution.get_mut(&NodeId(1)).unwrap() += 1,
        ];
        for break_it in breaks {
            let mut broken = plan.clone();
            break_it(&mut broken.stats);
            assert_eq!(constraint_of(check(&broken, &none())), Constraint::Stats);
        }
    }
}

mod bad_input {
    use super::*;

    fn refused(nodes: &[NodeInfo], constraints: &AssignmentConstraints) -> InvalidError {
        match try_initial(4, nodes, constraints) {
            Err(AssignmentError::Invalid(error)) => error,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn duplicates_and_node_zero_are_refused() {
        let twice = [NodeInfo::new(NodeId(3), 1), NodeInfo::new(NodeId(3), 2)];
        assert_eq!(refused(&twice, &none()), InvalidError::NodeDuplicate { node: NodeId(3) });
        assert_eq!(refused(&[NodeInfo::new(NodeId(0), 1)], &none()), InvalidError::NodeUnassigned);
        let ids = [PartitionId(5), PartitionId(5)];
        assert_eq!(
            ConsistentHashAssigner::new().initial_assignment(&ids, &nodes(1), &none()),
            Err(AssignmentError::Invalid(InvalidError::PartitionDuplicate { partition: PartitionId(5) }))
        );
    }

    #[test]
    fn weights_are_numbers_from_zero_to_a_million() {
        let weighted =
            |weight| AssignmentConstraints { node_weights: BTreeMap::from([(NodeId(1), weight)]), ..none() };
        for good in [0.0, 1e-9, 0.5, 1_000_000.0] {
            initial(4, &nodes(2), &weighted(good));
        }
        for bad in [-1.0, -1e-12, 1_000_000.1, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            let error = refused(&nodes(2), &weighted(bad));
            assert!(
                matches!(error, InvalidError::NodeWeightOutOfRange { node: NodeId(1), .. }),
                "{bad}: {error}"
            );
        }
    }

    #[test]
    fn strengths_are_numbers_from_zero_to_one() {
        let hinted =
            |strength| AssignmentConstraints { affinity_hints: vec![hint("h", &[0, 1], strength)], ..none() };
        for good in [0.0, 1e-12, 0.999_999_999, 1.0] {
            initial(4, &nodes(2), &hinted(good));
        }
        for bad in [-0.1, 1.000_001, f64::NAN, f64::INFINITY] {
            let error = refused(&nodes(2), &hinted(bad));
            assert!(matches!(error, InvalidError::HintStrengthOutOfRange { .. }), "{bad}: {error}");
        }
    }

    #[test]
    fn virtual_nodes_are_from_one_to_ten_thousand() {
        for good in [1, 10_000] {
            assert!(ConsistentHashAssigner::with_virtual_nodes(good).is_ok());
        }
        for given in [0, 10_001, u32::MAX] {
            let refused = ConsistentHashAssigner::with_virtual_nodes(given);
            assert_eq!(refused, Err(InvalidError::VirtualNodesOutOfRange { given }));
        }
    }
}

#[test]
fn a_plan_survives_json() {
    let all = nodes(3);
    let constraints = AssignmentConstraints { affinity_hints: vec![hint("h", &[0, 1], 0.5)], ..none() };
    let plan =
        rebalance(&initial(20, &all, &constraints), &all, &TopologyChange::NodeLeft(NodeId(2)), &constraints);
    assert_eq!(AssignmentPlan::from_json(&plan.to_json()).unwrap(), plan);
    assert!(AssignmentPlan::from_json("{}").is_err());
    assert!(AssignmentPlan::from_json("[").is_err());
}
