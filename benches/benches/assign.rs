//! Ring and assigner. Each bench measures the whole call a user makes; inputs are fixed.

#![allow(missing_docs, reason = "a bench is its own documentation")]

use std::collections::BTreeMap;
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use laminar_core::assign::{
    AssignmentConstraints, AssignmentPlan, ConsistentHashAssigner, PartitionAssigner, TopologyChange,
    hash_partition,
};
use laminar_core::ids::{NodeId, OwnerEpoch, PartitionId};
use laminar_core::node::NodeInfo;

const CORES: u32 = 8;

fn nodes(count: u64) -> Vec<NodeInfo> {
    (1..=count).map(|id| NodeInfo::new(NodeId(id), CORES)).collect()
}

fn partitions(count: u32) -> Vec<PartitionId> {
    (0..count).map(PartitionId).collect()
}

fn plan(partition_count: u32, node_count: u64) -> AssignmentPlan {
    let (partitions, nodes) = (partitions(partition_count), nodes(node_count));
    ConsistentHashAssigner::new()
        .initial_assignment(&partitions, &nodes, &AssignmentConstraints::default())
        .expect("equal nodes without constraints always have a plan")
}

/// 50 nodes of 8 cores: 60,000 points.
///
/// Budget `ring/build/50x8`: < 5 ms
/// Budget `ring/lookup`: < 25 ns
fn ring(c: &mut Criterion) {
    let (assigner, constraints, nodes) =
        (ConsistentHashAssigner::new(), AssignmentConstraints::default(), nodes(50));
    c.bench_function("ring/build/50x8", |b| b.iter(|| assigner.ring(black_box(&nodes), &constraints)));

    let ring = assigner.ring(&nodes, &constraints).expect("the nodes are valid");
    let hashes: Vec<u64> = (0..1 << 16).map(|id| hash_partition(PartitionId(id))).collect();
    let mut next = 0;
    c.bench_function("ring/lookup", |b| {
        b.iter(|| {
            next = (next + 1) & (hashes.len() - 1);
            ring.lookup(black_box(hashes[next]))
        });
    });
}

/// Partitions x nodes, from nothing; the ring is part of it.
///
/// Budget `assign/initial/100x5`: < 1 ms
/// Budget `assign/initial/1000x10`: < 5 ms
/// Budget `assign/initial/10000x50`: < 30 ms
fn initial(c: &mut Criterion) {
    let (assigner, constraints) = (ConsistentHashAssigner::new(), AssignmentConstraints::default());
    for (partition_count, node_count) in [(100, 5), (1_000, 10), (10_000, 50)] {
        let (partitions, nodes) = (partitions(partition_count), nodes(node_count));
        c.bench_function(&format!("assign/initial/{partition_count}x{node_count}"), |b| {
            b.iter(|| assigner.initial_assignment(black_box(&partitions), &nodes, &constraints));
        });
    }
}

/// Many unequal nodes: `assign/initial/10000x200-weighted` is published and has no budget.
fn weighted(c: &mut Criterion) {
    let (assigner, partitions, nodes) = (ConsistentHashAssigner::new(), partitions(10_000), nodes(200));
    let constraints = AssignmentConstraints {
        node_weights: nodes.iter().map(|node| (node.id, 0.25 + (node.id.0 % 17) as f64 * 0.2)).collect(),
        ..AssignmentConstraints::default()
    };
    c.bench_function("assign/initial/10000x200-weighted", |b| {
        b.iter(|| assigner.initial_assignment(black_box(&partitions), &nodes, &constraints));
    });
}

/// One node more, one node less.
///
/// Budget `assign/rebalance/join/1000x10`: < 2 ms
/// Budget `assign/rebalance/leave/1000x10`: < 2 ms
/// Budget `assign/rebalance/join/10000x50`: < 10 ms
/// Budget `assign/rebalance/leave/10000x50`: < 10 ms
fn rebalance(c: &mut Criterion) {
    let (assigner, constraints) = (ConsistentHashAssigner::new(), AssignmentConstraints::default());
    for (partition_count, node_count) in [(1_000, 10), (10_000, 50)] {
        let nodes = nodes(node_count);
        let current: BTreeMap<PartitionId, OwnerEpoch> = plan(partition_count, node_count)
            .assignments
            .into_iter()
            .map(|(id, owned)| (id, OwnerEpoch { node_id: owned.node_id, epoch: owned.epoch }))
            .collect();
        let joined = TopologyChange::NodeJoined(NodeInfo::new(NodeId(node_count + 1), CORES));
        let left = TopologyChange::NodeLeft(NodeId(2));
        for (name, change) in [("join", joined), ("leave", left)] {
            c.bench_function(&format!("assign/rebalance/{name}/{partition_count}x{node_count}"), |b| {
                b.iter(|| assigner.rebalance(black_box(&current), &nodes, &change, &constraints));
            });
        }
    }
}

/// A plan as text.
///
/// Budget `plan/to_json/1000`: < 5 ms
fn json(c: &mut Criterion) {
    let plan = plan(1_000, 10);
    c.bench_function("plan/to_json/1000", |b| b.iter(|| black_box(&plan).to_json()));
}

criterion_group!(benches, ring, initial, weighted, rebalance, json);
criterion_main!(benches);
