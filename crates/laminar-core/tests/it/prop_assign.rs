//! Plans over random clusters, against definitions written a second time here and, on small cases, every plan there is.

use std::collections::{BTreeMap, BTreeSet};

use laminar_core::assign::{
    AffinityHint, AntiAffinityGroup, AssignmentConstraints, AssignmentPlan, ConsistentHashAssigner,
    PartitionAssigner, PartitionMemory, TopologyChange,
};
use laminar_core::error::AssignmentError;
use laminar_core::ids::{Epoch, NodeId, OwnerEpoch, PartitionId};
use laminar_core::node::{NodeInfo, NodeState};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// A cluster, who owns what in it, and what its plans must keep to.
#[derive(Debug, Clone)]
struct Case {
    nodes: Vec<NodeInfo>,
    /// The owner of partition 0, 1, 2, ...; nobody, or a node that is gone, among them.
    owners: Vec<u64>,
    constraints: AssignmentConstraints,
}

impl Case {
    fn partitions(&self) -> Vec<PartitionId> {
        (0..self.owners.len() as u32).map(PartitionId).collect()
    }

    fn current(&self) -> BTreeMap<PartitionId, OwnerEpoch> {
        let owner = |(epoch, node): (u64, &u64)| OwnerEpoch {
            node_id: NodeId(*node),
            epoch: Epoch::new(epoch).unwrap(),
        };
        self.partitions().into_iter().zip((1..).zip(&self.owners).map(owner)).collect()
    }

    /// Rebalances for a change that only names what the cluster has already, so that `nodes` are the nodes after it.
    fn rebalance(&self) -> Result<AssignmentPlan, AssignmentError> {
        self.rebalance_by(&TopologyChange::NodeLeft(NodeId(u64::MAX)))
    }

    fn rebalance_by(&self, change: &TopologyChange) -> Result<AssignmentPlan, AssignmentError> {
        ConsistentHashAssigner::new().rebalance(&self.current(), &self.nodes, change, &self.constraints)
    }

    fn initial(&self) -> Result<AssignmentPlan, AssignmentError> {
        ConsistentHashAssigner::new().initial_assignment(&self.partitions(), &self.nodes, &self.constraints)
    }

    /// Cores times weight in millionths of every eligible node, by node.
    fn capacities(&self) -> BTreeMap<NodeId, u128> {
        let capacity = |node: &NodeInfo| {
            let weight = self.constraints.node_weights.get(&node.id).copied().unwrap_or(1.0);
            u128::from(node.cores) * (weight * 1e6).round() as u128
        };
        let active = self.nodes.iter().filter(|node| node.state == NodeState::Active);
        active.map(|node| (node.id, capacity(node))).filter(|(_, capacity)| *capacity > 0).collect()
    }

    /// The most partitions a node has room for: by the cap, and by its memory filled with the smallest.
    fn room(&self, id: NodeId) -> u32 {
        let node = self.nodes.iter().find(|node| node.id == id).unwrap();
        let limit = self.memory_limit(node);
        let mut sizes: Vec<u64> = self.partitions().iter().map(|id| self.bytes(*id)).collect();
        sizes.sort_unstable();
        let held = |count: &usize| sizes[..*count].iter().map(|bytes| u128::from(*bytes)).sum::<u128>();
        let fitting = (0..=sizes.len()).rev().find(|count| held(count) <= u128::from(limit)).unwrap() as u32;
        self.constraints.max_partitions_per_node.map_or(fitting, |cap| fitting.min(cap))
    }

    fn bytes(&self, id: PartitionId) -> u64 {
        self.constraints.partition_memory_bytes.bytes(id)
    }

    fn memory_limit(&self, node: &NodeInfo) -> u64 {
        let own_limit = if node.memory_bytes == 0 { u64::MAX } else { node.memory_bytes };
        own_limit.min(self.constraints.max_memory_per_node.unwrap_or(u64::MAX))
    }

    /// Low, high and cap of every eligible node. Where the room is below a share, that node's share is its room and the
    /// others divide the rest.
    fn bands(&self) -> BTreeMap<NodeId, (u32, u32, u32)> {
        let mut open = self.capacities();
        let room: BTreeMap<NodeId, u128> =
            open.keys().map(|node| (*node, u128::from(self.room(*node)))).collect();
        let mut rest = self.owners.len() as u128;
        let mut bands = BTreeMap::new();
        let band = |room: u128, share: (u128, u128)| {
            let floor = |times: u128, over: u128| (times * share.0 / (over * share.1)) as u32;
            let ceil = |times: u128, over: u128| (times * share.0).div_ceil(over * share.1) as u32;
            let cap = self.constraints.max_partitions_per_node.unwrap_or(ceil(3, 2));
            let high = ceil(1, 1).max(floor(11, 10)).min(cap).min(room as u32);
            (floor(1, 1).min(ceil(9, 10)), high, cap)
        };
        loop {
            let total: u128 = open.values().sum();
            let over = open.iter().find(|(node, capacity)| rest * **capacity > room[node] * total);
            let Some(node) = over.map(|(node, _)| *node) else { break };
            open.remove(&node);
            rest = rest.saturating_sub(room[&node]);
            bands.insert(node, band(room[&node], (room[&node], 1)));
        }
        let total: u128 = open.values().sum();
        bands.extend(
            open.into_iter().map(|(node, capacity)| (node, band(room[&node], (rest * capacity, total)))),
        );
        bands
    }

    /// The fewest moves the bands allow: `max(orphans + surplus, deficit)`.
    fn fewest_moves(&self) -> u32 {
        let bands = self.bands();
        let held = |node: &NodeId| self.owners.iter().filter(|owner| **owner == node.0).count() as u32;
        let orphans = self.owners.iter().filter(|owner| !bands.contains_key(&NodeId(**owner))).count() as u32;
        let surplus: u32 = bands.iter().map(|(node, (_, high, _))| held(node).saturating_sub(*high)).sum();
        let deficit: u32 = bands.iter().map(|(node, (low, _, _))| low.saturating_sub(held(node))).sum();
        deficit.max(orphans + surplus)
    }

    /// True if the mapping keeps every hard constraint.
    fn allows(&self, owners: &[NodeId]) -> bool {
        let index = |id: &PartitionId| Some(id.0 as usize).filter(|index| *index < owners.len());
        let nodes_of = |ids: &[PartitionId]| {
            let members: BTreeSet<usize> = ids.iter().filter_map(index).collect();
            let nodes: BTreeSet<NodeId> = members.iter().map(|member| owners[*member]).collect();
            (members.len(), nodes.len())
        };
        let node_allows = |node: &NodeInfo, cap: u32| {
            let held = || (0u32..).zip(owners).filter(|(_, owner)| **owner == node.id);
            let bytes: u128 = held().map(|(id, _)| u128::from(self.bytes(PartitionId(id)))).sum();
            let limit = self.memory_limit(node);
            held().count() as u32 <= cap && bytes <= u128::from(limit)
        };
        let bands = self.bands();
        let eligible = || self.nodes.iter().filter_map(|node| bands.get(&node.id).map(|band| (node, band.2)));
        let domains: BTreeSet<&String> = eligible()
            .filter(|(node, _)| owners.contains(&node.id))
            .filter_map(|(node, _)| node.failure_domain.as_ref())
            .collect();
        eligible().all(|(node, cap)| node_allows(node, cap))
            && domains.len() as u32 >= self.constraints.min_failure_domains.unwrap_or(0)
            && self.constraints.anti_affinity_groups.iter().all(|group| {
                let (members, nodes) = nodes_of(&group.partition_ids);
                members == nodes
            })
            && self.constraints.affinity_hints.iter().filter(|hint| hint.strength == 1.0).all(|hint| {
                let (_, nodes) = nodes_of(&hint.partition_ids);
                nodes <= 1
            })
    }

    /// How far all nodes are outside their bands, and how many partitions move.
    fn cost(&self, owners: &[NodeId]) -> (u32, u32) {
        let outside = |(node, (low, high, _)): (&NodeId, &(u32, u32, u32))| {
            let held = owners.iter().filter(|owner| *owner == node).count() as u32;
            low.saturating_sub(held) + held.saturating_sub(*high)
        };
        let moves = owners.iter().zip(&self.owners).filter(|(after, before)| after.0 != **before).count();
        (self.bands().iter().map(outside).sum(), moves as u32)
    }

    /// The cost of the best of all mappings that keep the hard constraints.
    fn brute_force(&self) -> Option<(u32, u32)> {
        let nodes: Vec<NodeId> = self.capacities().into_keys().collect();
        let count = self.owners.len() as u32;
        let mapping = |number: usize| -> Vec<NodeId> {
            (0..count).map(|digit| nodes[number / nodes.len().pow(digit) % nodes.len()]).collect()
        };
        let all = (0..nodes.len().checked_pow(count)?).map(mapping);
        all.filter(|owners| self.allows(owners)).map(|owners| self.cost(&owners)).min()
    }
}

fn node_ids(plan: &AssignmentPlan) -> Vec<NodeId> {
    plan.assignments.values().map(|assignment| assignment.node_id).collect()
}

/// Nodes 1 to `max`, most of them active.
fn nodes(max: usize) -> impl Strategy<Value = Vec<NodeInfo>> {
    let state = prop_oneof![9 => Just(NodeState::Active), 1 => Just(NodeState::Draining)];
    let domain = option::of(prop_oneof![Just("a"), Just("b"), Just("c")]);
    let node =
        (prop_oneof![9 => 1u32..=4, 1 => Just(0)], prop_oneof![3 => Just(0), 1 => 20u64..80], domain, state);
    vec(node, 1..=max).prop_map(|nodes| {
        (1..)
            .zip(nodes)
            .map(|(id, (cores, memory_bytes, domain, state))| NodeInfo {
                memory_bytes,
                failure_domain: domain.map(str::to_owned),
                state,
                ..NodeInfo::new(NodeId(id), cores)
            })
            .collect()
    })
}

fn ids(partitions: usize, max: usize) -> impl Strategy<Value = Vec<PartitionId>> {
    // One id more than there are partitions: constraints may name what is not in the plan.
    vec((0..=partitions as u32).prop_map(PartitionId), 0..=max)
}

fn weights(nodes: usize) -> impl Strategy<Value = BTreeMap<NodeId, f64>> {
    let weight = prop_oneof![4 => 0.25f64..4.0, 1 => Just(0.0)];
    proptest::collection::btree_map((1..=nodes as u64).prop_map(NodeId), weight, 0..=2)
}

fn constraints(partitions: usize, nodes: usize, soft: bool) -> impl Strategy<Value = AssignmentConstraints> {
    let group = ids(partitions, 4)
        .prop_map(|partition_ids| AntiAffinityGroup { name: "g".to_owned(), partition_ids });
    let strength = if soft { prop_oneof![Just(1.0), 0.01..0.99].boxed() } else { Just(1.0).boxed() };
    let hint = (ids(partitions, 3), strength).prop_map(|(partition_ids, strength)| AffinityHint {
        name: "h".to_owned(),
        partition_ids,
        strength,
    });
    let sizes = vec(0u64..30, partitions)
        .prop_map(|sizes| PartitionMemory::Map((0..).map(PartitionId).zip(sizes).collect()));
    let memory = prop_oneof![3 => Just(PartitionMemory::None), 1 => (0u64..30).prop_map(PartitionMemory::One), 1 => sizes];
    (
        option::of(1..=partitions as u32),
        option::of(0u32..=3),
        vec(group, 0..=3),
        vec(hint, 0..=2),
        option::of(20u64..200),
        memory,
        weights(nodes),
    )
        .prop_map(|(cap, domains, groups, hints, memory_max, memory, node_weights)| {
            AssignmentConstraints {
                max_partitions_per_node: cap,
                min_failure_domains: domains,
                anti_affinity_groups: groups,
                affinity_hints: hints,
                max_memory_per_node: memory_max,
                partition_memory_bytes: memory,
                node_weights,
            }
        })
}

/// Owners from 0 (nobody) to one more than there are nodes (gone).
fn owners(partitions: std::ops::RangeInclusive<usize>, nodes: usize) -> impl Strategy<Value = Vec<u64>> {
    vec(0..=nodes as u64 + 1, partitions)
}

fn case(partitions: usize, nodes_max: usize, soft: bool) -> impl Strategy<Value = Case> {
    (nodes(nodes_max), owners(1..=partitions, nodes_max)).prop_flat_map(move |(nodes, owners)| {
        constraints(owners.len(), nodes_max, soft).prop_map(move |constraints| Case {
            nodes: nodes.clone(),
            owners: owners.clone(),
            constraints,
        })
    })
}

/// Only weights and sometimes a cap: what the plain step handles.
fn plain_case() -> impl Strategy<Value = Case> {
    let cap = option::weighted(0.3, 1u32..60);
    (nodes(12), owners(1..=300, 12), weights(12), cap).prop_map(|(nodes, owners, node_weights, cap)| Case {
        nodes,
        owners,
        constraints: AssignmentConstraints {
            node_weights,
            max_partitions_per_node: cap,
            ..AssignmentConstraints::default()
        },
    })
}

/// 256 cases each; `PROPTEST_CASES` asks for more.
fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

/// Everything that holds of any plan, whatever it was made for.
fn check_plan(case: &Case, plan: &AssignmentPlan) -> Result<(), TestCaseError> {
    let assigner = ConsistentHashAssigner::new();
    prop_assert_eq!(assigner.validate_plan(plan, &case.nodes, &case.constraints), Ok(()));
    prop_assert_eq!(plan.assignments.keys().copied().collect::<Vec<_>>(), case.partitions());
    prop_assert!(case.allows(&node_ids(plan)));
    prop_assert_eq!(plan.stats.constraints_satisfied, plan.stats.violations.is_empty());

    let known = |id: &&PartitionId| (id.0 as usize) < case.owners.len();
    let apart = |hint: &&AffinityHint| {
        let nodes: BTreeSet<NodeId> =
            hint.partition_ids.iter().filter(known).map(|id| plan.assignments[id].node_id).collect();
        nodes.len() > 1
    };
    let unmet = case.constraints.affinity_hints.iter().filter(apart).count();
    let listed = plan.stats.violations.iter().filter(|line| line.starts_with("affinity hint")).count();
    prop_assert_eq!(unmet, listed);

    let bands = assigner.bands(case.owners.len() as u32, &case.nodes, &case.constraints).unwrap();
    let outside = plan
        .stats
        .distribution
        .iter()
        .filter(|(node, held)| !(bands[node].low..=bands[node].high).contains(held));
    let listed = plan.stats.violations.iter().filter(|line| line.starts_with("node")).count();
    prop_assert_eq!(outside.count(), listed);
    prop_assert_eq!(AssignmentPlan::from_json(&plan.to_json()).unwrap(), plan.clone());
    Ok(())
}

/// A kept partition keeps its epoch, a moved one has the next and is listed.
fn check_epochs(case: &Case, plan: &AssignmentPlan) -> Result<(), TestCaseError> {
    let moves: BTreeMap<_, _> = plan.moves.iter().map(|step| (step.partition_id, step)).collect();
    prop_assert_eq!(moves.len(), plan.moves.len());
    for (id, before) in case.current() {
        let after = plan.assignments[&id];
        match moves.get(&id) {
            None => prop_assert_eq!((after.node_id, after.epoch), (before.node_id, before.epoch)),
            Some(step) => {
                prop_assert_eq!((step.from_node, step.old_epoch), (before.node_id, before.epoch));
                prop_assert_eq!((step.to_node, step.new_epoch), (after.node_id, after.epoch));
                prop_assert_eq!(after.epoch.get(), before.epoch.get() + 1);
                prop_assert_ne!(step.from_node, step.to_node);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    /// Joins, leaves and updates at once, from any distribution: every node ends in its band with the fewest moves.
    #[test]
    fn without_constraints_the_fewest_partitions_move_and_every_node_is_in_its_band(case in plain_case()) {
        let capacities = case.capacities();
        let room = case.constraints.max_partitions_per_node.map_or(u64::MAX, |cap| u64::from(cap) * capacities.len() as u64);
        match case.rebalance() {
            Err(AssignmentError::NoActiveNodes { .. }) => prop_assert!(capacities.is_empty()),
            Err(AssignmentError::MaxPartitionsExceeded { .. }) => prop_assert!(case.owners.len() as u64 > room),
            Err(other) => prop_assert!(false, "{}", other),
            Ok(plan) => {
                check_plan(&case, &plan)?;
                check_epochs(&case, &plan)?;
                prop_assert!(plan.stats.constraints_satisfied, "{:?}", plan.stats.violations);
                prop_assert_eq!(plan.stats.partitions_moved, case.fewest_moves());
            }
        }
    }

    #[test]
    fn one_change_moves_the_fewest_partitions(
        count in 1u32..400, size in 1u64..12, change in 0u8..3, which in 0u64..12, cores in 1u32..9,
    ) {
        let before: Vec<NodeInfo> = (1..=size).map(|id| NodeInfo::new(NodeId(id), 4)).collect();
        let node = NodeInfo::new(NodeId(which % size + 1), cores);
        let change = match change {
            0 => TopologyChange::NodeJoined(NodeInfo { id: NodeId(99), ..node }),
            1 => TopologyChange::NodeUpdated(node),
            _ => TopologyChange::NodeLeft(node.id),
        };
        let constraints = AssignmentConstraints::default();
        let case = Case { nodes: before, owners: vec![0; count as usize], constraints };
        let owners = node_ids(&case.initial().unwrap()).iter().map(|node| node.0).collect();
        let case = Case { owners, ..case };
        let after = Case { nodes: change.apply(&case.nodes), ..case.clone() };
        match case.rebalance_by(&change) {
            Ok(plan) => prop_assert_eq!(plan.stats.partitions_moved, after.fewest_moves()),
            Err(error) => prop_assert!(after.nodes.is_empty(), "{}", error),
        }
    }

    /// The best plan there is, or none there is: compared with every mapping of partitions to nodes.
    #[test]
    fn small_plans_are_as_good_as_the_best_of_all_plans(case in case(6, 4, false)) {
        let best = case.brute_force();
        match (case.rebalance(), best) {
            (Ok(plan), Some((violation, moves))) => {
                check_plan(&case, &plan)?;
                check_epochs(&case, &plan)?;
                let found = case.cost(&node_ids(&plan));
                prop_assert_eq!(found.1, plan.stats.partitions_moved);
                prop_assert_eq!(found.0, violation);
                prop_assert!(10 * found.1 <= 11 * moves, "{} moves, {} are enough", found.1, moves);
            }
            (Err(_), None) => {}
            (Ok(_), None) => prop_assert!(false, "a plan where there is none"),
            (Err(error), Some(_)) => prop_assert!(false, "there is a plan, but: {}", error),
        }
    }

    /// Soft hints neither break a hard constraint nor, unless asked for by hand, cost a move.
    #[test]
    fn soft_hints_cost_nothing_when_nodes_change(case in case(6, 4, true)) {
        let mut without = case.clone();
        without.constraints.affinity_hints.retain(|hint| hint.strength == 1.0);
        match (case.rebalance(), without.rebalance()) {
            (Ok(with), Ok(without)) => {
                check_plan(&case, &with)?;
                prop_assert_eq!(case.cost(&node_ids(&with)), case.cost(&node_ids(&without)));
            }
            (with, without) => prop_assert_eq!(with, without),
        }
        for plan in [case.initial(), case.rebalance_by(&TopologyChange::ManualRebalance)].into_iter().flatten() {
            check_plan(&case, &plan)?;
        }
    }

    /// Larger cases have no brute force; a plan is valid, or there is an error and no panic.
    #[test]
    fn larger_plans_are_valid(case in case(60, 9, true)) {
        if let Ok(plan) = case.rebalance() {
            check_plan(&case, &plan)?;
            check_epochs(&case, &plan)?;
        }
        if let Ok(plan) = case.initial() {
            check_plan(&case, &plan)?;
        }
    }

    #[test]
    fn the_order_of_nodes_and_partitions_does_not_matter(case in case(20, 6, true), turn in 0usize..20) {
        let mut turned = case.clone();
        turned.nodes.rotate_left(turn % case.nodes.len());
        let mut partitions = case.partitions();
        partitions.rotate_left(turn % case.owners.len());
        partitions.reverse();
        let assigner = ConsistentHashAssigner::new();
        let again = assigner.initial_assignment(&partitions, &turned.nodes, &case.constraints);
        prop_assert_eq!(case.initial(), again);
        prop_assert_eq!(case.rebalance(), turned.rebalance());
    }
}
