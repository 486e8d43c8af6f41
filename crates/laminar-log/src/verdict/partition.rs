//! What `apply` knows of one partition, and what a record would do to it.

use std::collections::BTreeSet;

use laminar_core::ids::{Epoch, LogIndex, NodeId, PartitionId};

use super::types::Refusal;
use crate::entry::{Change, Fence, MachineKind, PartitionRecord, TrimTo};
use crate::log_id::{LogId, PartitionLogIndex};

/// What decides about the next record of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionVerdict {
    /// The epoch that is accepted (EPOCH-2).
    pub epoch: Epoch,
    /// Who may write.
    pub owner: NodeId,
    /// Its state machine.
    pub machine: MachineKind,
    /// The place of its last record (LOG-2). Every partition has one: what created it.
    pub highest: PartitionLogIndex,
    /// The offset of the next row (LOG-2).
    pub next_offset: u64,
    /// The offset of the first row that was not trimmed.
    pub start_offset: u64,
    /// The time of its last record.
    pub last_time_ms: u64,
    /// When its epoch began.
    pub since_ms: u64,
    /// The run that the last fence named, or 0.
    pub fence_run: u128,
    /// The metadata index that the last fence named, or 0.
    pub fence_metadata_index: u64,
    /// The entry that created it.
    pub created: LogIndex,
    /// The entry of its last record.
    pub last_log_id: LogId,
    /// Records that every replica leaves out.
    pub skipped: BTreeSet<PartitionLogIndex>,
}

/// What a record does to a partition that exists, beside taking the next place in its log.
pub(super) enum Effect {
    /// Nothing at all, and it takes no place.
    None,
    Append {
        next_offset: u64,
    },
    Fence(Fence),
    Trim {
        start_offset: u64,
    },
    Skip(PartitionLogIndex),
    Destroy,
}

/// Why a record cannot be accepted.
pub(super) enum Fault {
    /// It came under the wrong epoch or owner.
    Stale(Refusal),
    /// Epoch and owner are right: a limit is reached, or an end is not where it was expected. A batch that landed before
    /// is recognised before this is looked at.
    Limit(Refusal),
}

impl PartitionVerdict {
    /// A partition before its first record.
    pub(super) fn new(record: &PartitionRecord, machine: MachineKind, time_ms: u64, log_id: LogId) -> Self {
        Self {
            epoch: record.epoch,
            owner: record.owner,
            machine,
            highest: PartitionLogIndex::NONE,
            next_offset: 0,
            start_offset: 0,
            last_time_ms: time_ms,
            since_ms: time_ms,
            fence_run: 0,
            fence_metadata_index: 0,
            created: log_id.index,
            last_log_id: log_id,
            skipped: BTreeSet::new(),
        }
    }

    /// The same without what is skipped, which can be much: what [`restore`](Self::restore) needs.
    pub(super) fn without_skipped(&self) -> Self {
        Self { skipped: BTreeSet::new(), ..*self }
    }

    /// Takes back everything but what is skipped.
    pub(super) fn restore(&mut self, before: Self) {
        *self = Self { skipped: std::mem::take(&mut self.skipped), ..before };
    }

    /// What the record would do. Nothing is changed.
    pub(super) fn effect(
        &self,
        record: &PartitionRecord,
        batch_committed: Option<bool>,
        skips_max: u32,
    ) -> Result<Effect, Fault> {
        let partition = record.partition;
        match &record.change {
            Change::Create(_) => Ok(Effect::None),
            Change::Fence(_) if record.epoch <= self.epoch => Ok(Effect::None),
            Change::Fence(fence) => Ok(Effect::Fence(*fence)),
            Change::Destroy if record.epoch < self.epoch => Err(self.stale(record, batch_committed)),
            Change::Destroy => Ok(Effect::Destroy),
            _ if record.epoch != self.epoch => Err(self.stale(record, batch_committed)),
            Change::Append(_) | Change::ExpectEnd(_) if record.owner != self.owner => {
                let (given, owner) = (record.owner, self.owner);
                Err(Fault::Stale(Refusal::NotOwned { partition, given, owner, batch_committed }))
            }
            Change::Append(append) => match self.next_offset.checked_add(u64::from(append.rows)) {
                Some(next_offset) => Ok(Effect::Append { next_offset }),
                None => Err(Fault::Limit(Refusal::OffsetsExhausted { partition })),
            },
            Change::Trim(to) => {
                let start_offset = match to {
                    TrimTo::Offset(offset) => self.next_offset.min(*offset),
                    TrimTo::End => self.next_offset,
                };
                let back = start_offset <= self.start_offset;
                Ok(if back { Effect::None } else { Effect::Trim { start_offset } })
            }
            Change::Skip(index) => self.skip(partition, *index, skips_max).map_err(Fault::Limit),
            Change::ExpectEnd(expected) if *expected == self.next_offset => Ok(Effect::None),
            Change::ExpectEnd(expected) => {
                let (expected, end) = (*expected, self.next_offset);
                Err(Fault::Limit(Refusal::EndMoved { partition, expected, end }))
            }
        }
    }

    fn skip(&self, partition: PartitionId, index: PartitionLogIndex, limit: u32) -> Result<Effect, Refusal> {
        if index == PartitionLogIndex::NONE || index > self.highest {
            return Err(Refusal::NothingToSkip { partition, index, last: self.highest });
        }
        if self.skipped.contains(&index) {
            return Ok(Effect::None);
        }
        if self.skipped.len() >= limit as usize {
            return Err(Refusal::TooManySkips { partition, limit });
        }
        Ok(Effect::Skip(index))
    }

    fn stale(&self, record: &PartitionRecord, batch_committed: Option<bool>) -> Fault {
        Fault::Stale(Refusal::StaleEpoch {
            partition: record.partition,
            given: record.epoch,
            given_owner: record.owner,
            current: self.epoch,
            owner: self.owner,
            since_ms: self.since_ms,
            batch_committed,
        })
    }
}
