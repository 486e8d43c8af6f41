//! The log of one partition, record after record: each must follow from the one before.

use laminar_core::ids::{Epoch, NodeId, PartitionId};

use super::entries::Window;
use super::fault::{Expected, Fault};
use super::folder::{is_gone, settled};
use super::snapshots::PartitionAt;
use crate::entry::{Append, Change};
use crate::error::LogError;
use crate::log_id::{LogId, PartitionLogIndex};
use crate::partition_log::{PartitionLogStore, rows};
use crate::verdict::AcceptedRecord;

/// A partition's log and how far it was read.
pub(super) struct PartitionCheck {
    pub(super) log: PartitionLogStore,
    partition: PartitionId,
    /// The record that comes next.
    pub(super) next: PartitionLogIndex,
    /// The place behind the last record there was when the log was opened.
    pub(super) end: PartitionLogIndex,
    /// The entry of the next record, or one before it.
    next_entry: u64,
    last: Option<Last>,
    /// The epoch that is accepted, and its owner as far as a record named it (EPOCH-2).
    accepted: Option<(Epoch, Option<NodeId>)>,
    /// What the newest snapshot says.
    at: Option<PartitionAt>,
}

/// What the next record must follow.
#[derive(Debug, Clone, Copy)]
struct Last {
    log_id: LogId,
    next_offset: u64,
    time_ms: u64,
    /// Which record of its entry it is, if the entry was there.
    position: Option<usize>,
}

impl PartitionCheck {
    pub(super) fn new(log: PartitionLogStore, at: Option<PartitionAt>) -> Self {
        Self {
            partition: log.partition(),
            next: log.first(),
            end: log.stored_end(),
            next_entry: 0,
            last: None,
            accepted: None,
            at,
            log,
        }
    }

    /// Reads on through the records of entries before the window's end; says how many.
    pub(super) fn read(&mut self, window: &Window) -> Result<u64, Fault> {
        let mut count = 0;
        loop {
            let Err(fault) = self.read_some(window, &mut count) else { return Ok(count) };
            // A running replica may have dropped the records that were to be read.
            settled(|| self.log.reopen())?;
            if is_gone(&fault) && self.log.first() == self.log.stored_end() {
                // It was destroyed meanwhile.
                (self.next, self.at) = (self.end, None);
                return Ok(count);
            }
            if self.log.first() <= self.next {
                return Err(fault);
            }
            self.next = self.log.first();
            (self.last, self.accepted) = (None, None);
        }
    }

    fn read_some(&mut self, window: &Window, count: &mut u64) -> Result<(), Fault> {
        if self.next >= self.end || self.next_entry >= window.end {
            return Ok(());
        }
        let mut reader = self.log.reader(self.next);
        while self.next < self.end
            && let Some(record) = reader.next()?
        {
            self.next_entry = record.log_id.index.0;
            if self.next_entry >= window.end {
                return Ok(());
            }
            self.check(&record, window)?;
            self.next = self.next.next();
            *count += 1;
        }
        Ok(())
    }

    /// The newest snapshot was written after all records up to its entry were on disk.
    pub(super) fn finish(&self) -> Result<(), Fault> {
        match self.at {
            Some(at) if self.end <= at.highest => {
                let (partition, from, to) = (self.partition, self.end, at.highest.next());
                Err(LogError::RecordsMissing { partition, from, to }.into())
            }
            _ => Ok(()),
        }
    }

    fn wrong(&self, record: &AcceptedRecord, what: &'static str, found: u64, expected: Expected) -> Fault {
        Fault::Wrong { partition: self.partition, index: record.index, what, found, expected }
    }

    fn equal(
        &self,
        record: &AcceptedRecord,
        what: &'static str,
        found: u64,
        expected: u64,
    ) -> Result<(), Fault> {
        if found == expected {
            return Ok(());
        }
        Err(self.wrong(record, what, found, Expected::Exactly(expected)))
    }

    fn at_least(
        &self,
        record: &AcceptedRecord,
        what: &'static str,
        found: u64,
        least: u64,
    ) -> Result<(), Fault> {
        if found >= least {
            return Ok(());
        }
        Err(self.wrong(record, what, found, Expected::AtLeast(least)))
    }

    fn check(&mut self, record: &AcceptedRecord, window: &Window) -> Result<(), Fault> {
        window.check_id(record)?;
        if let Some(last) = &self.last {
            self.equal(record, "its first offset (LOG-2)", record.first_offset, last.next_offset)?;
            self.at_least(record, "the term of its entry", record.log_id.term, last.log_id.term)?;
            self.at_least(record, "its entry", record.log_id.index.0, last.log_id.index.0)?;
            self.at_least(record, "its time (APPLY-2)", record.time_ms, last.time_ms)?;
        } else if record.index.0 == 1 {
            self.equal(record, "its first offset (LOG-2)", record.first_offset, 0)?;
        }
        self.check_epoch(record)?;
        let from = match &self.last {
            Some(Last { log_id, position: Some(position), .. }) if *log_id == record.log_id => position + 1,
            _ => 0,
        };
        let position = window.position(record, from, self.last.map(|last| last.time_ms))?;
        let next_offset = record.first_offset.saturating_add(rows(&record.record));
        self.check_snapshot(record, next_offset)?;
        self.last = Some(Last { log_id: record.log_id, next_offset, time_ms: record.time_ms, position });
        Ok(())
    }

    /// EPOCH-2.
    fn check_epoch(&mut self, record: &AcceptedRecord) -> Result<(), Fault> {
        let (epoch, owner) = (record.record.epoch, record.record.owner);
        let creates = matches!(
            record.record.change,
            Change::Create(_) | Change::Append(Append { create: Some(_), .. })
        );
        if record.index.0 == 1 && !creates {
            return Err(self.wrong(record, "the number of records before it", 0, Expected::AtLeast(1)));
        }
        let Some((accepted, accepted_owner)) = self.accepted else {
            let names_owner =
                matches!(record.record.change, Change::Append(_) | Change::Create(_) | Change::Fence(_));
            self.accepted = Some((epoch, names_owner.then_some(owner)));
            return Ok(());
        };
        let what = "its epoch (EPOCH-2)";
        match &record.record.change {
            Change::Fence(_) => {
                self.at_least(record, what, epoch.get(), accepted.get().saturating_add(1))?;
                self.accepted = Some((epoch, Some(owner)));
            }
            Change::Append(_) => {
                self.equal(record, what, epoch.get(), accepted.get())?;
                let expected = accepted_owner.unwrap_or(owner);
                self.equal(record, "its owner (EPOCH-2)", owner.0, expected.0)?;
                self.accepted = Some((epoch, Some(owner)));
            }
            Change::Trim(_) | Change::Skip(_) => self.equal(record, what, epoch.get(), accepted.get())?,
            Change::Destroy => self.at_least(record, what, epoch.get(), accepted.get())?,
            // A condition takes no place in the log.
            Change::ExpectEnd(_) => {
                return Err(self.wrong(
                    record,
                    "the place of a condition",
                    record.index.0,
                    Expected::Exactly(0),
                ));
            }
            Change::Create(_) => {
                return Err(self.wrong(
                    record,
                    "the place of its creation",
                    record.index.0,
                    Expected::Exactly(1),
                ));
            }
        }
        Ok(())
    }

    /// Whether the newest snapshot has seen this record as it is.
    fn check_snapshot(&self, record: &AcceptedRecord, next_offset: u64) -> Result<(), Fault> {
        let Some(at) = self.at.filter(|at| at.highest == record.index) else { return Ok(()) };
        if at.log_id != record.log_id {
            let (partition, index, found) = (self.partition, record.index, record.log_id);
            return Err(LogError::WrongTuple { partition, index, found, expected: at.log_id }.into());
        }
        self.equal(record, "the offset behind it (LOG-2, by the snapshot)", next_offset, at.next_offset)?;
        self.equal(record, "its time (by the snapshot)", record.time_ms, at.time_ms)?;
        if let Some((epoch, owner)) = self.accepted {
            self.equal(record, "its epoch (EPOCH-2, by the snapshot)", epoch.get(), at.epoch.get())?;
            let owner = owner.unwrap_or(at.owner);
            self.equal(record, "its owner (EPOCH-2, by the snapshot)", owner.0, at.owner.0)?;
        }
        Ok(())
    }
}
