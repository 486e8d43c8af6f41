//! The document's manifest sketch, corrected, and a naive truncation floor, as models: random appends, syncs, applies,
//! acknowledgements, snapshots, creations and destructions. LOG-1 and LOG-5 after every step.

use std::collections::{BTreeMap, BTreeSet};

use laminar_core::ids::{LogIndex, NodeId, PartitionId};
use laminar_log::PartitionLogIndex;
use laminar_log::tracking::{AckPolicy, SegmentedAckTracker, SegmentedWatermarks};
use proptest::prelude::*;

const PARTITIONS: u32 = 4;
const NODES: u64 = 5;

#[derive(Debug, Clone)]
enum Step {
    /// An entry with so many records of each of these partitions.
    Entry(Vec<(u32, u64)>),
    SegmentedSync(u64),
    /// So many more records, as far as there are any.
    Sync(u32, u64),
    Apply(u32, u64),
    Ack(u32, u64, u64),
    Snapshot(u32, u64),
    Members(u64),
    Replica(u64, Option<u64>),
    Restore(u32),
    Remove(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let partition = 0..PARTITIONS;
    prop_oneof![
        8 => prop::collection::vec((partition.clone(), 1u64..4), 0..4).prop_map(Step::Entry),
        5 => (0u64..4).prop_map(Step::SegmentedSync),
        5 => (partition.clone(), 0u64..6).prop_map(|(p, n)| Step::Sync(p, n)),
        6 => (partition.clone(), 0u64..6).prop_map(|(p, n)| Step::Apply(p, n)),
        8 => (partition.clone(), 0..NODES, 0u64..20).prop_map(|(p, node, i)| Step::Ack(p, node, i)),
        2 => (partition.clone(), 0u64..6).prop_map(|(p, n)| Step::Snapshot(p, n)),
        1 => (1u64..32).prop_map(Step::Members),
        1 => (0..NODES, prop::option::of(0u64..20)).prop_map(|(node, from)| Step::Replica(node, from)),
        1 => partition.clone().prop_map(Step::Restore),
        1 => partition.prop_map(Step::Remove),
    ]
}

/// The corrected sketch: durable and applied are separate, and `applied_global` moves with applied only.
#[derive(Debug, Clone, Default)]
struct Manifest {
    /// The raft index of every record since the base.
    records: Vec<u64>,
    base: u64,
    base_global: u64,
    synced: u64,
    applied: u64,
    snapshot: u64,
    acked: u64,
    acks: BTreeMap<u64, u64>,
}

impl Manifest {
    fn highest(&self) -> u64 {
        self.base + self.records.len() as u64
    }

    fn raft(&self, index: u64) -> u64 {
        if index <= self.base { self.base_global } else { self.records[(index - self.base - 1) as usize] }
    }

    fn durable(&self, segmented: u64) -> u64 {
        let redone = self.base + self.records.iter().filter(|raft| **raft <= segmented).count() as u64;
        self.synced.max(redone)
    }

    /// The oldest record that is not in its own synced log, not applied or not acknowledged.
    fn required(&self) -> Option<u64> {
        let mut indices = self.base + 1..=self.highest();
        let kept = |index: &u64| *index <= self.synced && *index <= self.applied && *index <= self.acked;
        indices.find(|index| !kept(index)).map(|index| self.raft(index))
    }
}

#[derive(Default)]
struct Model {
    partitions: BTreeMap<u32, Manifest>,
    members: BTreeSet<u64>,
    replicas: BTreeMap<u64, u64>,
    raft: u64,
    segmented: u64,
}

impl Model {
    /// By counting members for each index, highest first.
    fn count_acks(&mut self) {
        for manifest in self.partitions.values_mut() {
            manifest.acks.retain(|node, _| self.members.contains(node));
            let enough = |index: &u64| {
                manifest.acks.values().filter(|reached| *reached >= index).count() * 2 > self.members.len()
            };
            let acked = (1..=manifest.highest()).rev().find(enough).unwrap_or(0);
            manifest.acked = manifest.acked.max(acked);
        }
    }

    fn floor(&self) -> u64 {
        let partitions = self.partitions.values().filter_map(Manifest::required);
        let needed = partitions.chain(self.replicas.values().copied());
        needed.map(|raft| raft.saturating_sub(1)).fold(self.raft.min(self.segmented), u64::min)
    }
}

struct Pair {
    model: Model,
    marks: SegmentedWatermarks,
    acks: SegmentedAckTracker,
}

impl Pair {
    fn new() -> Self {
        let members: BTreeSet<u64> = (0..3).collect();
        let acks =
            SegmentedAckTracker::new(members.iter().copied().map(NodeId).collect(), AckPolicy::Majority);
        let model = Model { members, ..Model::default() };
        Self { model, marks: SegmentedWatermarks::with_acks(), acks }
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Entry(records) => self.entry(records),
            Step::SegmentedSync(behind) => {
                let raft = self.model.raft.saturating_sub(*behind);
                self.model.segmented = self.model.segmented.max(raft);
                self.marks.segmented_durable(LogIndex(raft));
            }
            Step::Ack(partition, node, index) => self.ack(*partition, *node, *index),
            Step::Members(bits) => {
                self.model.members = (0..NODES).filter(|node| bits >> node & 1 == 1).collect();
                let members = self.model.members.iter().copied().map(NodeId).collect();
                for (partition, index) in self.acks.set_members(members) {
                    self.marks.acked(partition, index);
                }
            }
            Step::Replica(node, from) => {
                match from {
                    Some(from) => self.model.replicas.insert(*node, *from),
                    None => self.model.replicas.remove(node),
                };
                self.marks.replica_needs(NodeId(*node), from.map(LogIndex));
            }
            Step::Remove(partition) => {
                self.model.partitions.remove(partition);
                self.marks.remove(PartitionId(*partition));
                self.acks.remove(PartitionId(*partition));
            }
            Step::Sync(partition, _) | Step::Apply(partition, _) | Step::Snapshot(partition, _) => {
                self.progress(*partition, step);
            }
            Step::Restore(partition) => self.restore(*partition),
        }
        self.model.count_acks();
    }

    fn entry(&mut self, records: &[(u32, u64)]) {
        self.model.raft += 1;
        let raft = self.model.raft;
        for (partition, count) in records {
            let manifest = self.model.partitions.entry(*partition).or_default();
            manifest.records.extend((0..*count).map(|_| raft));
            let (id, last) = (PartitionId(*partition), PartitionLogIndex(manifest.highest()));
            self.marks.accepted(id, last, LogIndex(raft));
            let acked = self.acks.landed(id, last);
            self.marks.acked(id, acked);
        }
        self.marks.decided(LogIndex(raft));
    }

    fn ack(&mut self, partition: u32, node: u64, index: u64) {
        let id = PartitionId(partition);
        self.acks.ack(id, NodeId(node), PartitionLogIndex(index));
        self.marks.acked(id, self.acks.acked(id));
        if let Some(manifest) = self.model.partitions.get_mut(&partition) {
            let reached = manifest.acks.entry(node).or_default();
            *reached = (*reached).max(index);
        }
    }

    fn progress(&mut self, partition: u32, step: &Step) {
        let (id, segmented) = (PartitionId(partition), self.model.segmented);
        let Some(manifest) = self.model.partitions.get_mut(&partition) else { return };
        match step {
            Step::Sync(_, more) => {
                manifest.synced = (manifest.synced + more).min(manifest.highest());
                self.marks.synced(id, PartitionLogIndex(manifest.synced));
            }
            Step::Apply(_, more) => {
                manifest.applied = (manifest.applied + more).min(manifest.durable(segmented));
                let global = LogIndex(manifest.raft(manifest.applied));
                self.marks.applied(id, PartitionLogIndex(manifest.applied), global);
            }
            Step::Snapshot(_, more) => {
                manifest.snapshot = (manifest.snapshot + more).min(manifest.applied);
                self.marks.snapshot(id, PartitionLogIndex(manifest.snapshot));
            }
            _ => unreachable!("only progress"),
        }
    }

    /// A snapshot of everything there is takes its place.
    fn restore(&mut self, partition: u32) {
        let Some(old) = self.model.partitions.remove(&partition) else { return };
        let (index, global) = (old.highest(), old.raft(old.highest()));
        let manifest = Manifest {
            base: index,
            base_global: global,
            synced: index,
            applied: index,
            snapshot: index,
            acked: index,
            acks: old.acks,
            records: Vec::new(),
        };
        self.model.partitions.insert(partition, manifest);
        let id = PartitionId(partition);
        self.marks.restore(id, PartitionLogIndex(index), LogIndex(global));
        self.acks.register(id, PartitionLogIndex(index));
    }

    fn compare(&self) {
        let mut lowest: Option<(u64, u32)> = None;
        for partition in 0..PARTITIONS {
            let id = PartitionId(partition);
            let Some(model) = self.model.partitions.get(&partition) else {
                assert_eq!((self.marks.manifest(id), self.marks.required(id)), (None, None));
                continue;
            };
            let real = self.marks.manifest(id).unwrap();
            assert!(real.holds(), "LOG-1");
            let read = [real.snapshot(), real.applied(), real.durable(), real.highest()].map(|index| index.0);
            let durable = model.durable(self.model.segmented);
            assert_eq!(read, [model.snapshot, model.applied, durable, model.highest()]);
            assert_eq!(real.applied_global().0, model.raft(model.applied));
            assert_eq!(self.acks.acked(id).0, model.acked);
            assert_eq!(self.marks.required(id).map(|raft| raft.0), model.required(), "LOG-5");
            let next = (model.applied < model.highest()).then(|| model.raft(model.applied + 1));
            let through = next.map_or(self.model.raft, |raft| raft - 1);
            assert_eq!(self.marks.applied_through(id), Some(LogIndex(through)));
            if let Some(raft) = model.required() {
                lowest = Some(lowest.map_or((raft, partition), |known| known.min((raft, partition))));
            }
        }
        let real = self.marks.lowest_required().map(|(raft, partition)| (raft.0, partition.0));
        assert_eq!(real, lowest);
        assert_eq!(self.marks.truncation_floor().0, self.model.floor(), "LOG-5");
    }
}

proptest! {
    #[test]
    fn watermarks_agree_with_the_corrected_sketch(steps in prop::collection::vec(step(), 1..100)) {
        let mut pair = Pair::new();
        for step in &steps {
            pair.run(step);
            pair.compare();
        }
    }
}
