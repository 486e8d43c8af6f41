//! All partitions and tombstones. Changes can be taken back until the entry they came from is decided.
//!
//! Cloning the state before each entry would be simpler, and cost what the group is large, not what the entry is.

use std::collections::BTreeMap;

use laminar_core::ids::PartitionId;

use super::limits::VerdictLimits;
use super::partition::{Effect, Fault, PartitionVerdict};
use super::tombstones::Tombstones;
use super::types::{AcceptedRecord, Refusal};
use crate::entry::{Append, Change, MachineKind, PartitionRecord, TrimTo};
use crate::log_id::{LogId, PartitionLogIndex};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Partitions {
    table: BTreeMap<PartitionId, PartitionVerdict>,
    destroyed: Tombstones,
    /// The steps of the entry that is being decided.
    undo: Vec<Undo>,
}

/// How to take one step back.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Undo {
    /// What was there before, but for what is skipped.
    Changed(PartitionId, PartitionVerdict),
    Skipped(PartitionId, PartitionLogIndex),
    Created(PartitionId),
    Destroyed(PartitionId, Option<PartitionVerdict>),
}

/// The entry that records come from.
pub(super) struct Origin<'a> {
    pub(super) limits: &'a VerdictLimits,
    pub(super) log_id: LogId,
    pub(super) time_ms: u64,
    /// Whether its batch landed before, if that is known. Unless it has not, nothing of it will stay, and no limit is
    /// looked at: it is refused for its epoch and owner only.
    pub(super) batch_committed: Option<bool>,
}

impl Partitions {
    /// Does what the record says, and gives it its place; nothing comes back if the record is without effect.
    pub(super) fn place(
        &mut self,
        origin: &Origin<'_>,
        record: &PartitionRecord,
    ) -> Result<Option<AcceptedRecord>, Refusal> {
        match self.try_place(origin, record) {
            Ok(accepted) => Ok(accepted),
            Err(Fault::Limit(_)) if origin.batch_committed != Some(false) => Ok(None),
            Err(Fault::Stale(refusal) | Fault::Limit(refusal)) => Err(refusal),
        }
    }

    fn try_place(
        &mut self,
        origin: &Origin<'_>,
        record: &PartitionRecord,
    ) -> Result<Option<AcceptedRecord>, Fault> {
        let id = record.partition;
        let Some(partition) = self.table.get_mut(&id) else {
            return self.place_first(origin, record);
        };
        let effect = partition.effect(record, origin.batch_committed, origin.limits.skips_max)?;
        if matches!(effect, Effect::None) {
            return Ok(None);
        }
        let before = partition.without_skipped();
        let mut accepted = take_place(partition, origin, record)?;
        self.undo.push(Undo::Changed(id, before));
        match effect {
            Effect::None => {}
            Effect::Append { next_offset } => partition.next_offset = next_offset,
            Effect::Fence(fence) => {
                partition.epoch = record.epoch;
                partition.owner = record.owner;
                partition.since_ms = accepted.time_ms;
                partition.fence_run = fence.run;
                partition.fence_metadata_index = fence.metadata_index;
            }
            Effect::Trim { start_offset } => {
                partition.start_offset = start_offset;
                accepted.record.change = Change::Trim(TrimTo::Offset(start_offset));
            }
            Effect::Skip(index) => {
                partition.skipped.insert(index);
                self.undo.push(Undo::Skipped(id, index));
            }
            Effect::Destroy => self.destroy(id),
        }
        Ok(Some(accepted))
    }

    /// A record of a partition that does not exist.
    fn place_first(
        &mut self,
        origin: &Origin<'_>,
        record: &PartitionRecord,
    ) -> Result<Option<AcceptedRecord>, Fault> {
        let id = record.partition;
        if self.destroyed.contains(id) {
            let twice = matches!(record.change, Change::Destroy);
            return if twice { Ok(None) } else { Err(Fault::Stale(Refusal::Destroyed { partition: id })) };
        }
        let (machine, rows) = match record.change {
            Change::Create(machine) => (machine, 0),
            Change::Append(Append { create: Some(machine), rows, .. }) => (machine, rows),
            Change::Destroy => {
                // It has no log, so nobody has anything to do; but what comes late must find the tombstone.
                self.destroy(id);
                return Ok(None);
            }
            _ => return Err(Fault::Stale(Refusal::UnknownPartition { partition: id })),
        };
        let limit = origin.limits.partitions_max;
        if self.table.len() >= limit as usize {
            return Err(Fault::Limit(Refusal::TooManyPartitions { partition: id, limit }));
        }
        let mut partition =
            PartitionVerdict::new(record, stored_kind(machine), origin.time_ms, origin.log_id);
        let accepted = take_place(&mut partition, origin, record)?;
        partition.next_offset = u64::from(rows);
        self.table.insert(id, partition);
        self.undo.push(Undo::Created(id));
        Ok(Some(accepted))
    }

    fn destroy(&mut self, id: PartitionId) {
        let before = self.table.remove(&id);
        self.destroyed.insert(id);
        self.undo.push(Undo::Destroyed(id, before));
    }

    /// What was done since the last call stays.
    pub(super) fn keep(&mut self) {
        super::clear(&mut self.undo);
    }

    /// Takes back what was done since the last [`keep`](Self::keep).
    pub(super) fn take_back(&mut self) {
        while let Some(step) = self.undo.pop() {
            match step {
                Undo::Changed(id, before) => {
                    if let Some(partition) = self.table.get_mut(&id) {
                        partition.restore(before);
                    }
                }
                Undo::Skipped(id, index) => {
                    if let Some(partition) = self.table.get_mut(&id) {
                        partition.skipped.remove(&index);
                    }
                }
                Undo::Created(id) => {
                    self.table.remove(&id);
                }
                Undo::Destroyed(id, before) => {
                    self.destroyed.remove(id);
                    self.table.extend(before.map(|partition| (id, partition)));
                }
            }
        }
        super::clear(&mut self.undo);
    }

    pub(super) fn get(&self, id: PartitionId) -> Option<&PartitionVerdict> {
        self.table.get(&id)
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (PartitionId, &PartitionVerdict)> {
        self.table.iter().map(|(id, partition)| (*id, partition))
    }

    pub(super) fn destroyed(&self) -> &Tombstones {
        &self.destroyed
    }

    pub(super) fn destroyed_mut(&mut self) -> &mut Tombstones {
        &mut self.destroyed
    }

    /// Adds a partition behind all there are; else it is not added.
    #[must_use]
    pub(super) fn push(&mut self, id: PartitionId, partition: PartitionVerdict) -> bool {
        let follows = self.table.last_key_value().is_none_or(|(last, _)| *last < id);
        follows && self.table.insert(id, partition).is_none()
    }
}

/// Gives the record the next place in its partition's log (LOG-2).
fn take_place(
    partition: &mut PartitionVerdict,
    origin: &Origin<'_>,
    record: &PartitionRecord,
) -> Result<AcceptedRecord, Fault> {
    let Some(index) = partition.highest.0.checked_add(1).map(PartitionLogIndex) else {
        return Err(Fault::Limit(Refusal::OffsetsExhausted { partition: record.partition }));
    };
    partition.highest = index;
    partition.last_time_ms = partition.last_time_ms.max(origin.time_ms);
    partition.last_log_id = origin.log_id;
    Ok(AcceptedRecord {
        index,
        first_offset: partition.next_offset,
        log_id: origin.log_id,
        time_ms: partition.last_time_ms,
        record: record.clone(),
    })
}

/// The kind that an entry's bytes have room for.
fn stored_kind(machine: MachineKind) -> MachineKind {
    match machine {
        MachineKind::Custom(number) => MachineKind::Custom(number.max(128)),
        other => other,
    }
}
