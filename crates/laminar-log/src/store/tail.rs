//! The newest entries in memory: replication and apply read them right after they were appended.

use std::collections::VecDeque;
use std::ops::Range;

use super::types::LogEntry;

/// What an entry takes beside its payload.
const ENTRY_BYTES: u64 = size_of::<LogEntry>() as u64;

/// The end of the log, as much as fits.
#[derive(Debug)]
pub(super) struct Tail {
    entries: VecDeque<LogEntry>,
    bytes: u64,
    bytes_max: u64,
}

impl Tail {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, bytes_max }
    }

    pub(super) fn push(&mut self, entry: LogEntry) {
        self.bytes += ENTRY_BYTES + entry.payload_bytes();
        self.entries.push_back(entry);
        while self.bytes > self.bytes_max && self.pop_front() {}
    }

    fn pop_front(&mut self) -> bool {
        let popped = self.entries.pop_front();
        self.bytes -= popped.as_ref().map_or(0, |entry| ENTRY_BYTES + entry.payload_bytes());
        popped.is_some()
    }

    /// Forgets the entries from `from` on.
    pub(super) fn truncate(&mut self, from: u64) {
        while self.entries.back().is_some_and(|entry| entry.id.index.0 >= from) {
            let popped = self.entries.pop_back();
            self.bytes -= popped.map_or(0, |entry| ENTRY_BYTES + entry.payload_bytes());
        }
    }

    /// Forgets the entries before `before`.
    pub(super) fn purge(&mut self, before: u64) {
        while self.entries.front().is_some_and(|entry| entry.id.index.0 < before) && self.pop_front() {}
    }

    /// These entries, but no more than `bytes_max` of payload after the first; none if the first is not here.
    pub(super) fn read(&self, range: Range<u64>, bytes_max: u64) -> Option<Vec<LogEntry>> {
        let first = self.entries.front()?.id.index.0;
        let skip = usize::try_from(range.start.checked_sub(first)?).ok()?;
        let mut bytes = 0_u64;
        let wanted = self.entries.iter().skip(skip).take_while(|entry| {
            let fits = bytes < bytes_max.max(1) && entry.id.index.0 < range.end;
            bytes = bytes.saturating_add(entry.payload_bytes());
            fits
        });
        Some(wanted.cloned().collect())
    }
}
