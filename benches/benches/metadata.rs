//! The metadata rules and formats. Budgets stand above each bench; the snapshots hold full histories and a full table
//! of answered requests.

#![allow(missing_docs, reason = "a bench is its own documentation")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use laminar_core::ids::{DataGroupId, Epoch, NodeId, OwnerEpoch, PartitionId, RequestId};
use laminar_core::metadata::{
    DeltaMetadata, MetadataChange, MetadataLogEntry, Retention, StreamLimits, StreamMachine,
};

const TIME_MS: i64 = 1_771_200_000_000;

/// A cluster whose partitions change hands round-robin, each at its next epoch.
struct Cluster {
    state: DeltaMetadata,
    partitions: u32,
    owners: Vec<OwnerEpoch>,
    changes_made: u64,
}

impl Cluster {
    /// One stream, every history and the table of requests full, as in a cluster that has run for a while.
    fn new(partitions: u32) -> Self {
        let create = MetadataChange::CreateStream {
            path: "/bench/stream".to_owned(),
            partitions,
            schema: Vec::new(),
            key: Vec::new(),
            machine: StreamMachine::Log,
            data_group: DataGroupId(0),
            retention: Retention::default(),
            limits: StreamLimits::default(),
        };
        let mut state = DeltaMetadata::new();
        state.apply(&MetadataLogEntry::one(TIME_MS, RequestId::NONE, create));
        let waiting = OwnerEpoch { node_id: NodeId::UNASSIGNED, epoch: Epoch::FIRST };
        let mut cluster =
            Cluster { state, partitions, owners: vec![waiting; partitions as usize], changes_made: 0 };
        for _ in 0..20 * partitions.max(1000) {
            let change = cluster.next_change(assign);
            cluster.apply(change);
        }
        cluster
    }

    fn next_change(
        &mut self,
        change: fn(PartitionId, OwnerEpoch, OwnerEpoch) -> MetadataChange,
    ) -> MetadataChange {
        // A prime step, so that neighbours in time are not neighbours in the tables.
        let partition = (self.changes_made.wrapping_mul(7919) % u64::from(self.partitions)) as usize;
        self.changes_made += 1;
        let expected = self.owners[partition];
        let node_id = NodeId(1 + self.changes_made % 10);
        let next =
            OwnerEpoch { node_id, epoch: expected.epoch.next().expect("epochs are far from their end") };
        self.owners[partition] = next;
        change(PartitionId(partition as u32), expected, next)
    }

    fn request_id(&self) -> RequestId {
        RequestId(u128::from(self.changes_made).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835))
    }

    fn apply(&mut self, change: MetadataChange) {
        let entry = MetadataLogEntry::one(TIME_MS, self.request_id(), change);
        let response = self.state.apply(black_box(&entry));
        assert!(response.is_applied());
    }
}

fn assign(partition_id: PartitionId, expected: OwnerEpoch, next: OwnerEpoch) -> MetadataChange {
    let OwnerEpoch { node_id, epoch } = next;
    MetadataChange::AssignPartition { partition_id, node_id, epoch, expected: Some(expected) }
}

fn acquire(partition_id: PartitionId, expected: OwnerEpoch, next: OwnerEpoch) -> MetadataChange {
    let OwnerEpoch { node_id, epoch } = next;
    MetadataChange::AcquirePartition { partition_id, node_id, epoch, expected }
}

/// One entry with a request id, on full histories.
///
/// Budget `metadata/apply/assign/1000`: < 1 us
/// Budget `metadata/apply/assign/10000`: < 1 us
/// Budget `metadata/apply/acquire/1000`: < 1 us
/// Budget `metadata/apply/acquire/10000`: < 1 us
fn apply_one(criterion: &mut Criterion) {
    for (name, change) in [("assign", assign as fn(_, _, _) -> _), ("acquire", acquire)] {
        for partitions in [1_000, 10_000] {
            let mut cluster = Cluster::new(partitions);
            let id = format!("metadata/apply/{name}/{partitions}");
            criterion.bench_function(&id, |bencher| {
                bencher.iter(|| {
                    let change = cluster.next_change(change);
                    cluster.apply(change);
                });
            });
        }
    }
}

/// A claim of 1,000 partitions in one batch.
///
/// Budget `metadata/apply/batch1000`: < 1 us each
fn apply_batch(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("metadata/apply");
    group.throughput(Throughput::Elements(1000));
    // Batches are made ahead in small groups and applied in the order they were made.
    let cluster = std::cell::RefCell::new(Cluster::new(1_000));
    group.bench_function("batch1000", |bencher| {
        bencher.iter_batched(
            || {
                let mut cluster = cluster.borrow_mut();
                let changes = (0..1000).map(|_| cluster.next_change(acquire)).collect();
                MetadataLogEntry::batch(TIME_MS, cluster.request_id(), changes)
            },
            |entry| assert!(cluster.borrow_mut().state.apply(&entry).is_applied()),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

/// 1,000 partitions; the size, below 1 MB, is asserted.
///
/// Budget `metadata/snapshot/1000`: < 5 ms
/// Budget `metadata/restore/1000`: < 5 ms
fn snapshots(criterion: &mut Criterion) {
    let state = Cluster::new(1_000).state;
    let bytes = state.snapshot();
    assert!(bytes.len() < 1 << 20, "the snapshot has {} bytes", bytes.len());
    criterion
        .bench_function("metadata/snapshot/1000", |bencher| bencher.iter(|| black_box(&state).snapshot()));
    criterion.bench_function("metadata/restore/1000", |bencher| {
        bencher.iter(|| DeltaMetadata::restore(black_box(&bytes)).expect("its own snapshot"));
    });
}

criterion_group!(benches, apply_one, apply_batch, snapshots);
criterion_main!(benches);
