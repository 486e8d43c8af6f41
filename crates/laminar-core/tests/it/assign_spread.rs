//! The spread we publish: every node within ten percent of its share, for many sets of node ids, at first and after
//! many changes.

use std::collections::BTreeMap;

use laminar_core::assign::{
    AssignmentConstraints, AssignmentPlan, ConsistentHashAssigner, PartitionAssigner, TopologyChange,
};
use laminar_core::ids::{NodeId, OwnerEpoch, PartitionId};
use laminar_core::node::NodeInfo;

/// How many sets of node ids are tried, and how many joins and leaves each goes through.
const ID_SETS: u64 = 100;
const CHANGES: u32 = 20;

/// splitmix64: enough chance for a test, the same on every run.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A node id that no node has; sets of small, of large and of consecutive ids are all among those tried.
    fn id(&mut self, nodes: &[NodeInfo], set: u64) -> NodeId {
        loop {
            let id = match set % 3 {
                0 => self.next(),
                1 => self.next() % 1_000,
                _ => nodes.iter().map(|node| node.id.0).max().unwrap_or(set) + 1,
            };
            if id != 0 && nodes.iter().all(|node| node.id.0 != id) {
                return NodeId(id);
            }
        }
    }
}

/// Within ten percent of the mean, where the ends are rounded so that whole partitions can be there.
fn assert_spread(plan: &AssignmentPlan, count: usize, what: &str) {
    let nodes = plan.stats.distribution.len();
    let low = (count * 9).div_ceil(nodes * 10).min(count / nodes) as u32;
    let high = (count * 11 / (nodes * 10)).max(count.div_ceil(nodes)) as u32;
    for (node, held) in &plan.stats.distribution {
        assert!((low..=high).contains(held), "{what}: node {node} has {held}, not {low} to {high}");
    }
}

fn spread_holds(partition_count: usize, node_count: usize) {
    let assigner = ConsistentHashAssigner::new();
    let constraints = AssignmentConstraints::default();
    let partitions: Vec<PartitionId> = (0..partition_count as u32).map(PartitionId).collect();
    for set in 0..ID_SETS {
        let mut chance = Chance(set);
        let mut nodes: Vec<NodeInfo> = Vec::new();
        for _ in 0..node_count {
            nodes.push(NodeInfo::new(chance.id(&nodes, set), 8));
        }
        let mut plan = assigner.initial_assignment(&partitions, &nodes, &constraints).unwrap();
        assert_spread(&plan, partition_count, &format!("set {set}, initial"));
        for step in 0..CHANGES {
            let change = match chance.next() % 2 {
                0 if nodes.len() > 2 => {
                    TopologyChange::NodeLeft(nodes[chance.next() as usize % nodes.len()].id)
                }
                _ => TopologyChange::NodeJoined(NodeInfo::new(chance.id(&nodes, set), 8)),
            };
            let current: BTreeMap<PartitionId, OwnerEpoch> = plan
                .assignments
                .iter()
                .map(|(id, owned)| (*id, OwnerEpoch { node_id: owned.node_id, epoch: owned.epoch }))
                .collect();
            plan = assigner.rebalance(&current, &nodes, &change, &constraints).unwrap();
            nodes = change.apply(&nodes);
            assert_spread(&plan, partition_count, &format!("set {set}, after change {step}"));
        }
    }
}

#[test]
fn a_thousand_partitions_on_ten_nodes_are_spread_for_every_set_of_ids() {
    spread_holds(1_000, 10);
}

#[test]
fn ten_thousand_partitions_on_fifty_nodes_are_spread_for_every_set_of_ids() {
    spread_holds(10_000, 50);
}

#[test]
fn ten_thousand_partitions_on_two_hundred_unequal_nodes_follow_their_shares() {
    let nodes: Vec<NodeInfo> =
        (1..=200).map(|id| NodeInfo::new(NodeId(id), 2 + (id % 7) as u32 * 2)).collect();
    let weight = |node: &NodeInfo| 0.25 + (node.id.0 % 17) as f64 * 0.2;
    let constraints = AssignmentConstraints {
        node_weights: nodes.iter().map(|node| (node.id, weight(node))).collect(),
        ..AssignmentConstraints::default()
    };
    let partitions: Vec<PartitionId> = (0..10_000).map(PartitionId).collect();
    let plan = ConsistentHashAssigner::new().initial_assignment(&partitions, &nodes, &constraints).unwrap();
    let total: f64 = nodes.iter().map(|node| f64::from(node.cores) * weight(node)).sum();
    for node in &nodes {
        let share = 10_000.0 * f64::from(node.cores) * weight(node) / total;
        let held = f64::from(plan.stats.distribution[&node.id]);
        let (low, high) = ((share * 0.9).ceil().min(share.floor()), (share * 1.1).floor().max(share.ceil()));
        assert!((low..=high).contains(&held), "node {}: {held} of a share of {share}", node.id);
    }
}
