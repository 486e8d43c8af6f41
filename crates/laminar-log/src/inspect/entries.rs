//! A stretch of the segmented log in memory, and whether a stored record is what an entry of it says (LOG-4).

use std::collections::BTreeSet;

use laminar_core::ids::PartitionId;

use super::fault::{Expected, Fault};
use crate::entry::{Change, Entry, PartitionRecord, Record, TrimTo};
use crate::error::LogError;
use crate::format::decode_entry;
use crate::log_id::LogId;
use crate::store::{EntryPayload, LogEntry};
use crate::verdict::AcceptedRecord;

/// Entries that follow each other, and where the partitions' logs are read up to while they are here.
#[derive(Debug)]
pub(super) struct Window {
    /// The index of the first.
    first: u64,
    /// Each with what it says, if it says anything to partitions.
    entries: Vec<(LogId, Option<Entry>)>,
    /// Stored records of entries from here on are not looked at yet.
    pub(super) end: u64,
}

impl Window {
    /// Entries that are not there: nothing is compared.
    pub(super) fn without_entries(end: u64) -> Self {
        Self { first: end, entries: Vec::new(), end }
    }

    /// These entries, decoded. The partitions that one of them may have destroyed are added to `destroyed`.
    pub(super) fn decode(
        entries: Vec<LogEntry>,
        destroyed: &mut BTreeSet<PartitionId>,
    ) -> Result<Self, Fault> {
        let first = entries.first().map_or(0, |entry| entry.id.index.0);
        let mut decoded = Vec::with_capacity(entries.len());
        for LogEntry { id, payload } in entries {
            let entry = match payload {
                EntryPayload::Normal(bytes) => {
                    let bad = |source| Fault::BadEntry { entry: id, source };
                    Some(decode_entry(&bytes).map_err(bad)?)
                }
                EntryPayload::Blank | EntryPayload::Membership(_) => None,
            };
            let records = entry.iter().flat_map(|entry| &entry.records);
            destroyed.extend(records.filter_map(|record| match record {
                Record::Partition(PartitionRecord { partition, change: Change::Destroy, .. }) => {
                    Some(*partition)
                }
                _ => None,
            }));
            decoded.push((id, entry));
        }
        let end = first + decoded.len() as u64;
        Ok(Self { first, entries: decoded, end })
    }

    fn entry(&self, index: u64) -> Option<&(LogId, Option<Entry>)> {
        let place = index.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        place.and_then(|place| self.entries.get(place))
    }

    /// Whether the entry that a stored record names is the one at that index.
    pub(super) fn check_id(&self, stored: &AcceptedRecord) -> Result<(), Fault> {
        let (partition, index, found) = (stored.record.partition, stored.index, stored.log_id);
        match self.entry(found.index.0) {
            Some((expected, _)) if *expected != found => {
                Err(LogError::WrongTuple { partition, index, found, expected: *expected }.into())
            }
            _ => Ok(()),
        }
    }

    /// Which record of its entry a stored record is, at or behind position `from`; none if the entry is not here.
    pub(super) fn position(
        &self,
        stored: &AcceptedRecord,
        from: usize,
        time_before: Option<u64>,
    ) -> Result<Option<usize>, Fault> {
        let (partition, index, named) = (stored.record.partition, stored.index, stored.log_id);
        let Some((_, entry)) = self.entry(named.index.0) else { return Ok(None) };
        let missing = Fault::NotInEntry { partition, index, entry: named };
        let Some(entry) = entry else { return Err(missing) };
        let of_it = |record: &Record| matches!(record, Record::Partition(said) if is_stored_as(said, stored));
        let Some(position) = entry.records.iter().skip(from).position(of_it) else { return Err(missing) };
        // Where the record before is not there, it may have been later.
        let expected = match time_before {
            Some(before) => Expected::Exactly(before.max(entry.time_ms)),
            None if index.0 == 1 => Expected::Exactly(entry.time_ms),
            None => Expected::AtLeast(entry.time_ms),
        };
        match expected {
            Expected::Exactly(time) if stored.time_ms == time => {}
            Expected::AtLeast(time) if stored.time_ms >= time => {}
            _ => {
                let (what, found) = ("its time (APPLY-2)", stored.time_ms);
                return Err(Fault::Wrong { partition, index, what, found, expected });
            }
        }
        Ok(Some(from + position))
    }
}

/// Whether `apply` stores a record as this one.
fn is_stored_as(said: &PartitionRecord, stored: &AcceptedRecord) -> bool {
    let Change::Trim(to) = said.change else { return stored.record == *said };
    // A trim never passes the end, which is where the record after it begins.
    let end = stored.first_offset;
    let offset = match to {
        TrimTo::Offset(offset) => offset.min(end),
        TrimTo::End => end,
    };
    stored.record == PartitionRecord { change: Change::Trim(TrimTo::Offset(offset)), ..said.clone() }
}
