//! What of the segmented log is still needed, and by whom.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use laminar_core::ids::{LogIndex, NodeId, PartitionId};

use super::manifest::PartitionManifest;
use crate::log_id::PartitionLogIndex;

/// How far the segmented log and every partition are, and how far the segmented log may be truncated (LOG-5).
///
/// A partition needs an entry until the records it has from it are in its own synced log, applied, and, where a policy
/// asks for it, acknowledged. A partition with nothing outstanding is not in the ordered set, so it holds nothing back
/// and costs nothing. Every step takes time in the logarithm of the number of partitions.
#[derive(Debug, Default)]
pub struct SegmentedWatermarks {
    partitions: BTreeMap<PartitionId, Marks>,
    /// The lowest index that each partition with something outstanding needs.
    required: BTreeSet<(LogIndex, PartitionId)>,
    segmented_durable: LogIndex,
    decided: LogIndex,
    replicas: BTreeMap<NodeId, LogIndex>,
    /// Whether partitions wait for acknowledgements from their first record on.
    wait_for_acks: bool,
}

#[derive(Debug)]
struct Marks {
    manifest: PartitionManifest,
    synced: PartitionLogIndex,
    /// `None`: nobody asks for acknowledgements.
    acked: Option<PartitionLogIndex>,
    /// For each entry still needed: the last record of this partition in it, and its raft index.
    outstanding: VecDeque<(PartitionLogIndex, LogIndex)>,
}

impl Marks {
    fn at(manifest: PartitionManifest, wait_for_acks: bool) -> Self {
        let synced = manifest.highest();
        Self { synced, acked: wait_for_acks.then_some(synced), outstanding: VecDeque::new(), manifest }
    }

    fn required(&self) -> Option<LogIndex> {
        self.outstanding.front().map(|(_, raft)| *raft)
    }

    /// The last record that needs nothing of the segmented log any more.
    fn released(&self) -> PartitionLogIndex {
        let kept = self.synced.min(self.manifest.applied());
        self.acked.map_or(kept, |acked| acked.min(kept))
    }

    /// The manifest, with what the segmented log has synced meanwhile counted as durable.
    fn manifest_with(&self, segmented_durable: LogIndex) -> PartitionManifest {
        let mut manifest = self.manifest;
        let synced_entries = self.outstanding.partition_point(|(_, raft)| *raft <= segmented_durable);
        if let Some((last, _)) = synced_entries.checked_sub(1).and_then(|at| self.outstanding.get(at)) {
            manifest.update_durable(*last);
        }
        manifest.update_durable(self.synced);
        manifest
    }
}

impl SegmentedWatermarks {
    /// An empty log.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty log whose entries are also kept until enough replicas have them.
    pub fn with_acks() -> Self {
        Self { wait_for_acks: true, ..Self::default() }
    }

    /// A partition as a snapshot, or its own log, left it: nothing up to `index` is outstanding. What was known of
    /// it before is forgotten.
    pub fn restore(&mut self, partition: PartitionId, index: PartitionLogIndex, global: LogIndex) {
        self.remove(partition);
        let manifest = PartitionManifest::restored(partition, index, global);
        self.partitions.insert(partition, Marks::at(manifest, self.wait_for_acks));
    }

    /// Forgets a destroyed partition; it needs nothing any more.
    pub fn remove(&mut self, partition: PartitionId) {
        if let Some(required) = self.partitions.remove(&partition).and_then(|marks| marks.required()) {
            self.required.remove(&(required, partition));
        }
    }

    /// `apply` accepted records of a partition, the last of them at `last`, from entry `raft`. A partition that is
    /// not known begins here.
    ///
    /// # Panics
    /// LOG-2: `last` is not behind the partition's last, or `raft` is before an entry decided already.
    pub fn accepted(&mut self, partition: PartitionId, last: PartitionLogIndex, raft: LogIndex) {
        assert!(
            raft > self.decided,
            "LOG-2: partition {partition}: record {last} accepted from entry {raft}, and entry {} was decided",
            self.decided
        );
        let wait_for_acks = self.wait_for_acks;
        let marks = self
            .partitions
            .entry(partition)
            .or_insert_with(|| Marks::at(PartitionManifest::new(partition), wait_for_acks));
        let before = marks.outstanding.back().map_or(LogIndex::NONE, |(_, raft)| *raft);
        assert!(raft >= before, "LOG-2: partition {partition}: entry {raft} after entry {before}");
        marks.manifest.update_highest(last);
        match marks.outstanding.back_mut() {
            Some((known, of)) if *of == raft => *known = last,
            _ => marks.outstanding.push_back((last, raft)),
        }
        if marks.outstanding.len() == 1 {
            self.required.insert((raft, partition));
        }
    }

    /// `apply` has decided every entry up to `raft`, and [`accepted`](Self::accepted) has told of what they hold.
    pub fn decided(&mut self, raft: LogIndex) {
        self.decided = self.decided.max(raft);
    }

    /// The segmented log has synced every entry up to `raft`. It never goes back.
    pub fn segmented_durable(&mut self, raft: LogIndex) {
        self.segmented_durable = self.segmented_durable.max(raft);
    }

    /// A partition's own log has synced the records up to `index`. News of a partition that is gone is ignored.
    ///
    /// # Panics
    /// LOG-1: `index` was not accepted.
    pub fn synced(&mut self, partition: PartitionId, index: PartitionLogIndex) {
        self.update(partition, |marks| {
            marks.manifest.update_durable(index);
            marks.synced = marks.synced.max(index);
        });
    }

    /// A partition's machine has applied the records up to `index`, which came from entry `global`. News of a
    /// partition that is gone is ignored.
    ///
    /// # Panics
    /// LOG-1: the record is not on this disk yet; see [`segmented_durable`](Self::segmented_durable).
    pub fn applied(&mut self, partition: PartitionId, index: PartitionLogIndex, global: LogIndex) {
        let segmented_durable = self.segmented_durable;
        self.update(partition, |marks| {
            marks.manifest = marks.manifest_with(segmented_durable);
            marks.manifest.update_applied(index, global);
        });
    }

    /// Enough replicas have the records of a partition up to `index`. From the first such word on, the partition
    /// waits for acknowledgements, also if [`with_acks`](Self::with_acks) did not say so.
    pub fn acked(&mut self, partition: PartitionId, index: PartitionLogIndex) {
        self.update(partition, |marks| {
            marks.acked = Some(marks.acked.map_or(index, |acked| acked.max(index)));
        });
    }

    /// Nobody asks for acknowledgements of a partition any more.
    pub fn ignore_acks(&mut self, partition: PartitionId) {
        self.update(partition, |marks| marks.acked = None);
    }

    /// A snapshot holds the effect of the records up to `index`.
    ///
    /// # Panics
    /// LOG-1: the records are not applied.
    pub fn snapshot(&mut self, partition: PartitionId, index: PartitionLogIndex) {
        self.update(partition, |marks| marks.manifest.set_snapshot(index));
    }

    /// A lagging replica needs entries from `from` on, or nothing special (`None`).
    pub fn replica_needs(&mut self, node: NodeId, from: Option<LogIndex>) {
        match from {
            Some(from) => self.replicas.insert(node, from),
            None => self.replicas.remove(&node),
        };
    }

    /// Changes the marks of one partition, then releases what it needs no longer.
    fn update(&mut self, partition: PartitionId, change: impl FnOnce(&mut Marks)) {
        let Some(marks) = self.partitions.get_mut(&partition) else { return };
        let before = marks.required();
        change(marks);
        let released = marks.released();
        let count = marks.outstanding.partition_point(|(last, _)| *last <= released);
        marks.outstanding.drain(..count);
        let after = marks.required();
        if before != after {
            if let Some(raft) = before {
                self.required.remove(&(raft, partition));
            }
            if let Some(raft) = after {
                self.required.insert((raft, partition));
            } else {
                // An idle partition keeps no room for what it once had outstanding.
                marks.outstanding.shrink_to(4);
            }
        }
    }

    /// The lowest raft index that a partition still needs, or `None` if nothing of it is outstanding.
    pub fn required(&self, partition: PartitionId) -> Option<LogIndex> {
        self.partitions.get(&partition)?.required()
    }

    /// The partition that holds the segmented log back most, and from where.
    pub fn lowest_required(&self) -> Option<(LogIndex, PartitionId)> {
        self.required.first().copied()
    }

    /// The segmented log may be truncated up to here, this entry included (LOG-5): one before the lowest index that
    /// a partition with something outstanding, or a lagging replica, needs; and never behind what is decided and
    /// synced.
    pub fn truncation_floor(&self) -> LogIndex {
        let partitions = self.required.first().map(|(raft, _)| raft.0.saturating_sub(1));
        let replicas = self.replicas.values().min().map(|raft| raft.0.saturating_sub(1));
        let known = self.decided.0.min(self.segmented_durable.0);
        LogIndex(partitions.into_iter().chain(replicas).fold(known, u64::min))
    }

    /// How far one partition is.
    pub fn manifest(&self, partition: PartitionId) -> Option<PartitionManifest> {
        Some(self.partitions.get(&partition)?.manifest_with(self.segmented_durable))
    }

    /// The last record that a partition's own log has synced.
    pub fn synced_index(&self, partition: PartitionId) -> Option<PartitionLogIndex> {
        Some(self.partitions.get(&partition)?.synced)
    }

    /// The raft index up to which every record of a partition is applied. Of an idle one, everything decided.
    pub fn applied_through(&self, partition: PartitionId) -> Option<LogIndex> {
        let marks = self.partitions.get(&partition)?;
        let applied = marks.manifest.applied();
        let next = marks.outstanding.partition_point(|(last, _)| *last <= applied);
        Some(match marks.outstanding.get(next) {
            Some((_, raft)) => LogIndex(raft.0.saturating_sub(1)),
            None => self.decided.max(marks.manifest.applied_global()),
        })
    }

    /// The last entry that the segmented log has synced.
    pub fn segmented_durable_index(&self) -> LogIndex {
        self.segmented_durable
    }

    /// The last entry that `apply` has decided.
    pub fn decided_index(&self) -> LogIndex {
        self.decided
    }

    /// Every partition, lowest first.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.partitions.keys().copied()
    }
}
