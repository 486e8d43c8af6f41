//! Dense groups drawn around a plan that keeps them all: a plan must be found again.

use super::*;

/// splitmix64: enough chance for a test, the same on every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % u64::from(end)) as u32
    }

    fn shuffled(&mut self, count: u32) -> Vec<u32> {
        let mut all: Vec<u32> = (0..count).collect();
        for last in (1..count).rev() {
            all.swap(last as usize, self.below(last + 1) as usize);
        }
        all
    }
}

struct Planted {
    partitions: u32,
    nodes: u32,
    groups: u32,
    group_size: u32,
    cap: Option<u32>,
}

impl Planted {
    /// Groups that all have at most one partition on each node of a plan where every node has its exact share.
    fn constraints(&self, seed: u64) -> AssignmentConstraints {
        let mut chance = Chance(seed);
        let hidden = chance.shuffled(self.partitions);
        let share = self.partitions / self.nodes;
        let mut draw = |_| {
            let nodes = chance.shuffled(self.nodes).into_iter().take(self.group_size as usize);
            let ids: Vec<u32> =
                nodes.map(|node| hidden[(node * share + chance.below(share)) as usize]).collect();
            group("planted", &ids)
        };
        AssignmentConstraints {
            max_partitions_per_node: self.cap,
            anti_affinity_groups: (0..self.groups).map(&mut draw).collect(),
            ..none()
        }
    }

    fn is_solved(&self, seeds: std::ops::Range<u64>) {
        for seed in seeds {
            let constraints = self.constraints(seed);
            let plan = try_initial(self.partitions, &nodes(u64::from(self.nodes)), &constraints);
            assert!(plan.is_ok(), "seed {seed}: {plan:?}");
        }
    }
}

#[test]
fn groups_of_most_nodes_on_every_partition_are_kept() {
    Planted { partitions: 100, nodes: 10, groups: 50, group_size: 8, cap: None }.is_solved(0..10);
    Planted { partitions: 100, nodes: 10, groups: 80, group_size: 8, cap: None }.is_solved(0..2);
    Planted { partitions: 100, nodes: 10, groups: 50, group_size: 10, cap: None }.is_solved(0..2);
}

#[test]
fn dense_groups_are_kept_where_every_node_is_filled_to_its_cap() {
    Planted { partitions: 100, nodes: 10, groups: 50, group_size: 8, cap: Some(10) }.is_solved(0..4);
}

#[test]
fn dense_groups_of_large_clusters_are_kept() {
    Planted { partitions: 1_000, nodes: 20, groups: 250, group_size: 16, cap: None }.is_solved(0..2);
    Planted { partitions: 10_000, nodes: 50, groups: 1_000, group_size: 40, cap: None }.is_solved(0..1);
}

#[test]
fn a_repaired_plan_is_the_same_each_time_and_nothing_moves_once_it_is_had() {
    let planted = Planted { partitions: 100, nodes: 10, groups: 50, group_size: 8, cap: None };
    let constraints = planted.constraints(1);
    let before = initial(100, &nodes(10), &constraints);
    let plan = rebalance(&before, &nodes(10), &TopologyChange::ManualRebalance, &constraints);
    assert_eq!(plan.stats.partitions_moved, 0);
    assert_eq!(before, initial(100, &nodes(10), &constraints));
}
