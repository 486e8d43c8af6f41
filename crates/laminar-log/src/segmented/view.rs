//! What can be seen of the partitions of a replica.

use bytes::Bytes;
use laminar_core::ids::{Epoch, LogIndex, NodeId, OwnerEpoch, PartitionId};

use super::SegmentedStateMachine;
use super::shared::EntrySource;
use crate::entry::{BatchId, BlockId, MachineKind, ProducerId};
use crate::error::LogError;
use crate::log_id::{LogId, PartitionLogIndex};
use crate::partition_log::PartitionLogStore;
use crate::store::{EntryPayload, SegmentedLogStore};
use crate::verdict::{Outcome, PartitionVerdict};

/// Where a partition stands on this replica. LOG-1: `snapshot <= applied <= highest`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionStatus {
    /// The partition.
    pub partition: PartitionId,
    /// Its machine.
    pub machine: MachineKind,
    /// The epoch that is accepted.
    pub epoch: Epoch,
    /// Who may write.
    pub owner: NodeId,
    /// The offset of the first row that was not trimmed.
    pub start_offset: u64,
    /// The offset of the next row.
    pub next_offset: u64,
    /// The entry that the last record was accepted from.
    pub last_global: LogIndex,
    /// The last record that was accepted.
    pub highest: PartitionLogIndex,
    /// The last record that was applied.
    pub applied: PartitionLogIndex,
    /// The raft index that it came from.
    pub applied_global: LogIndex,
    /// The record up to which a snapshot has the machine's state.
    pub snapshot: PartitionLogIndex,
    /// The first record that the partition's own log does not have.
    pub stored_end: PartitionLogIndex,
    /// The first record that is not known to be on disk there. It is in the segmented log too.
    pub synced_end: PartitionLogIndex,
    /// Records that wait to be applied.
    pub queued: usize,
    /// Why nothing is applied.
    pub paused: Option<String>,
    /// How often it came to that since the partition was opened.
    pub pauses: u64,
    /// How often a record was applied again since then, because its machine had failed.
    pub apply_retries: u64,
    /// Whether the partition's own log is being repaired.
    pub repairing: bool,
    /// The lowest raft index that it still needs of the segmented log (LOG-5).
    pub required: Option<LogIndex>,
}

impl SegmentedStateMachine {
    /// Where a partition stands.
    pub fn status(&self, id: PartitionId) -> Option<PartitionStatus> {
        let core = self.core();
        let verdict = core.verdict.partition(id)?;
        let partition = self.partition(id)?;
        let mut state = partition.state();
        let required = state.required();
        let end = |end: fn(&PartitionLogStore) -> PartitionLogIndex| {
            state.log.as_ref().map_or(PartitionLogIndex::NONE, end)
        };
        Some(PartitionStatus {
            partition: id,
            machine: partition.kind,
            epoch: verdict.epoch,
            owner: verdict.owner,
            start_offset: verdict.start_offset,
            next_offset: verdict.next_offset,
            last_global: verdict.last_log_id.index,
            highest: state.highest,
            applied: state.applied,
            applied_global: state.applied_global,
            snapshot: state.snapshot,
            stored_end: end(PartitionLogStore::stored_end),
            synced_end: end(PartitionLogStore::synced_end),
            queued: state.queue.len() + usize::from(state.applying.is_some()),
            paused: state.paused.clone(),
            pauses: state.pauses,
            apply_retries: state.apply_retries,
            repairing: state.repairing,
            required,
        })
    }

    /// The record that a partition stands at, and why; none if it is not paused.
    pub fn paused(&self, id: PartitionId) -> Option<(PartitionLogIndex, String)> {
        let partition = self.partition(id)?;
        let state = partition.state();
        state.paused.clone().map(|reason| (state.applied.next(), reason))
    }

    /// Who may write a partition, and under which epoch, at this place of the log (wall 2).
    pub fn owner(&self, id: PartitionId) -> Option<OwnerEpoch> {
        self.core().verdict.partition(id).map(owner_epoch)
    }

    /// The same of all partitions there are.
    pub fn owners(&self) -> Vec<(PartitionId, OwnerEpoch)> {
        let core = self.core();
        core.verdict.partitions().map(|(id, verdict)| (id, owner_epoch(verdict))).collect()
    }

    /// Whether a partition was destroyed; its id is not used again.
    pub fn is_destroyed(&self, id: PartitionId) -> bool {
        self.core().verdict.is_destroyed(id)
    }

    /// The partitions there are, by id.
    pub fn partition_ids(&self) -> Vec<PartitionId> {
        self.partitions().keys().copied().collect()
    }

    /// The log of a partition, to read from; none if there is no such partition, or while its log cannot be opened.
    pub fn partition_log(&self, id: PartitionId) -> Option<PartitionLogStore> {
        self.partition(id).and_then(|partition| partition.state().log.clone())
    }

    /// The last entry whose records all partitions have taken.
    pub fn decided_index(&self) -> LogIndex {
        self.inner.shared.decided()
    }

    /// The lowest raft index that any partition still needs, and which; none if nothing is outstanding (LOG-5).
    pub fn lowest_required(&self) -> Option<(LogIndex, PartitionId)> {
        let required = |(id, partition): (&PartitionId, &std::sync::Arc<super::partition::Partition>)| {
            partition.state().required().map(|index| (index, *id))
        };
        self.partitions().iter().filter_map(required).min()
    }

    /// The highest block that would count as expired unasked, if these expired too: see
    /// [`VerdictState::stage_floor_after`](crate::verdict::VerdictState::stage_floor_after).
    pub fn stage_floor_after(&self, blocks: &[BlockId]) -> Option<BlockId> {
        self.core().verdict.stage_floor_after(blocks)
    }

    /// The last batch of a query, and the entry that committed it.
    pub fn last_batch(&self, query: &str) -> Option<(u64, LogIndex)> {
        self.core().verdict.last_batch(query)
    }

    /// The first query whose last batch is known, of those whose names are `name` or behind it.
    pub fn first_query_from(&self, name: &str) -> Option<String> {
        self.core().verdict.first_query_from(name).map(str::to_owned)
    }

    /// What became of a batch, if it is the last of its query.
    pub fn committed(&self, batch: &BatchId) -> Option<Outcome> {
        self.core().verdict.committed(batch).cloned()
    }

    /// The last sequence of a producer that is known; 0 if it appended nothing yet.
    pub fn last_sequence(&self, producer: ProducerId) -> Option<u64> {
        self.core().verdict.last_sequence(producer)
    }

    /// The verdict state as bytes: equal on replicas that decided the same entries (APPLY-2).
    pub fn verdict_bytes(&self) -> Bytes {
        self.core().verdict.encode()
    }
}

fn owner_epoch(verdict: &PartitionVerdict) -> OwnerEpoch {
    OwnerEpoch { node_id: verdict.owner, epoch: verdict.epoch }
}

impl EntrySource for SegmentedLogStore {
    fn committed_entry(&self, index: LogIndex) -> Result<(LogId, Bytes), LogError> {
        let entry = self.entry(index.0)?;
        match entry.payload {
            EntryPayload::Normal(bytes) => Ok((entry.id, bytes)),
            EntryPayload::Blank | EntryPayload::Membership(_) => Ok((entry.id, Bytes::new())),
        }
    }
}
