//! Guards: what a check costs on the path of every write.
//!
//! The lines `Budget` are read by `benches/table.py`, which prints them beside what was measured.

#![allow(missing_docs, clippy::unwrap_used, reason = "a bench is its own documentation")]
#![allow(clippy::disallowed_types, reason = "the map is here to be compared with")]

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use laminar_benches::Seeded;
use laminar_core::guard::{PartitionGuard, PartitionGuardSet};
use laminar_core::ids::{Epoch, NodeId, PartitionId, RequestId};
use laminar_core::metadata::{DeltaMetadata, MetadataChange, MetadataLogEntry};

const ME: NodeId = NodeId(1);
/// Asked in turn, so that no branch predictor learns one id by heart.
const ASKED: usize = 4096;

fn guard(partition: u32) -> PartitionGuard {
    PartitionGuard::new(PartitionId(partition), Epoch::FIRST, ME).unwrap()
}

fn set_of(partitions: u32) -> PartitionGuardSet {
    let set = PartitionGuardSet::new(ME).unwrap();
    for partition in 0..partitions {
        set.insert(guard(partition)).unwrap();
    }
    set
}

fn metadata_of(partitions: u32) -> DeltaMetadata {
    let mut metadata = DeltaMetadata::new();
    for partition in 0..partitions {
        let change = MetadataChange::AssignPartition {
            partition_id: PartitionId(partition),
            node_id: ME,
            epoch: Epoch::FIRST,
            expected: None,
        };
        assert!(metadata.apply(&MetadataLogEntry::one(0, RequestId::NONE, change)).is_applied());
    }
    metadata
}

/// One guard against the least that any check can cost.
///
/// Budget `guard/check`: < 2 ns, <= 1.3 x `floor/atomic_load`
fn check(c: &mut Criterion) {
    let floor = (7_u64, AtomicU64::new(7));
    c.bench_function("floor/atomic_load", |b| {
        b.iter(|| {
            let (epoch, cached) = black_box(&floor);
            cached.load(Ordering::Acquire) == *epoch
        });
    });
    let one = guard(3);
    c.bench_function("guard/check", |b| b.iter(|| black_box(&one).check().is_ok()));
}

/// A guard among many, in random order; and the map one would reach for otherwise.
///
/// Budget `guard_set/check/1000`: < 5 ns
/// Budget `guard_set/check/10000`: < 5 ns
/// Budget `guard_set/check/10000/while_refreshing`: < 15 ns
fn check_in_set(c: &mut Criterion) {
    for partitions in [1_000, 10_000] {
        let asked = Seeded::new(1).below(partitions, ASKED);
        let set = Arc::new(set_of(partitions));
        let mut turn = asked.iter().cycle();
        c.bench_function(&format!("guard_set/check/{partitions}"), |b| {
            b.iter(|| set.check(PartitionId(*turn.next().unwrap())).is_ok());
        });
        let map: HashMap<u32, PartitionGuard> = (0..partitions).map(|id| (id, guard(id))).collect();
        c.bench_function(&format!("floor/std_hash_map/{partitions}"), |b| {
            b.iter(|| map.get(turn.next().unwrap()).is_some_and(|guard| guard.check().is_ok()));
        });
        if partitions == 10_000 {
            let stop = Arc::new(AtomicBool::new(false));
            let refresher = std::thread::spawn({
                let (set, stop, metadata) = (Arc::clone(&set), Arc::clone(&stop), metadata_of(partitions));
                move || {
                    while !stop.load(Ordering::Relaxed) {
                        assert!(set.refresh_all(&metadata).is_empty());
                    }
                }
            });
            c.bench_function("guard_set/check/10000/while_refreshing", |b| {
                b.iter(|| set.check(PartitionId(*turn.next().unwrap())).is_ok());
            });
            stop.store(true, Ordering::Relaxed);
            refresher.join().unwrap();
        }
    }
}

/// A million ids at once, as an executor checks the rows of a batch: in runs, and in random order.
///
/// Budget `guard_set/check_many/sorted`: < 1.5 ns each
/// Budget `guard_set/check_many/random`: < 1.5 ns each
fn check_many(c: &mut Criterion) {
    const IDS: usize = 1_000_000;
    let set = set_of(1_000);
    let random = Seeded::new(2).below(1_000, IDS);
    let mut sorted = random.clone();
    sorted.sort_unstable();
    let mut group = c.benchmark_group("guard_set/check_many");
    group.throughput(Throughput::Elements(IDS as u64));
    for (name, ids) in [("sorted", sorted), ("random", random)] {
        group.bench_function(name, |b| b.iter(|| set.check_many(ids.iter().copied().map(PartitionId))));
    }
    group.finish();
}

/// The backstop behind the watch: every guard against the metadata in memory.
///
/// Budget `guard_set/validate_all/1000`: < 50 us
/// Budget `guard_set/refresh_all/1000`: < 50 us
fn against_metadata(c: &mut Criterion) {
    let (set, metadata) = (set_of(1_000), metadata_of(1_000));
    c.bench_function("guard_set/validate_all/1000", |b| b.iter(|| set.validate_all(&metadata)));
    c.bench_function("guard_set/refresh_all/1000", |b| b.iter(|| set.refresh_all(&metadata)));
}

criterion_group!(benches, check, check_in_set, check_many, against_metadata);
criterion_main!(benches);
