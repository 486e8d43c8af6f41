//! What is done with the records: stored, read, found and dropped.

use std::ops::Range;
use std::sync::{Arc, MutexGuard};

use bytes::Bytes;
use laminar_aof::{Aof, SegmentInfo, Ticket};
use laminar_core::ids::{LogIndex, PartitionId};

use super::inner::{Inner, Slot};
use super::pins::RecordPin;
use super::reader::PartitionReader;
use super::store::PartitionLogStore;
use super::tail::{LastRecord, Point, Tail, index, rows};
use crate::error::LogError;
use crate::format::{FormatError, StoredHeader, encode_stored};
use crate::log_id::{LogId, PartitionLogIndex};
use crate::verdict::AcceptedRecord;

impl PartitionLogStore {
    /// Which partition it is of.
    pub fn partition(&self) -> PartitionId {
        self.inner.partition
    }

    /// The first record there is, or the place of the next one.
    pub fn first(&self) -> PartitionLogIndex {
        self.inner.slot().log.as_ref().map_or(PartitionLogIndex::NONE, |log| index(log.sequences().start))
    }

    /// The place of the next record; 0 while the log is closed.
    pub fn stored_end(&self) -> PartitionLogIndex {
        self.inner.slot().log.as_ref().map_or(PartitionLogIndex::NONE, |log| index(log.sequences().end))
    }

    /// The first place that is not known to be on disk; 0 while the log is closed. It falls only when records are cut.
    pub fn synced_end(&self) -> PartitionLogIndex {
        self.inner.slot().log.as_ref().map_or(PartitionLogIndex::NONE, |log| index(log.synced()))
    }

    /// The segments that hold its records, in order; none while the log is closed.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        self.inner.slot().log.as_ref().map_or_else(|_| Vec::new(), Aof::segments)
    }

    /// Why the log does not take any more, if it does not: it must be reopened.
    pub fn failure(&self) -> Option<LogError> {
        let slot = self.inner.slot();
        slot.fault.clone().or_else(|| match &slot.log {
            Ok(log) => log.failure().map(LogError::from),
            Err(error) => Some(error.clone()),
        })
    }

    /// Has everything appended so far synced now.
    ///
    /// # Errors
    ///
    /// What stopped the log, if it has failed.
    pub fn sync(&self) -> Result<Ticket, LogError> {
        Ok(self.inner.slot().log()?.sync()?)
    }

    /// Stores records behind the last one; they can be read at once, and the ticket tells when they are on disk, which
    /// is in the background. Never blocks on a disk.
    ///
    /// # Errors
    ///
    /// Overloaded, if too much waits to be written already: try again later. What stopped the log, if it has failed.
    ///
    /// # Panics
    ///
    /// If a record is of another partition, or its place, offset, entry or time does not go on from the last (LOG-2).
    pub fn append<'a>(
        &self,
        records: impl IntoIterator<Item = &'a AcceptedRecord>,
    ) -> Result<Ticket, LogError> {
        let slot = self.inner.slot();
        let log = working(&slot)?;
        let mut appending = Appending::new(&self.inner);
        let mut stored = Vec::new();
        for record in records {
            if let Err(error) = appending.push(record) {
                panic!("LOG-2: partition {}, record {}: {error}", self.inner.partition, record.index);
            }
            stored.push(encode_stored(record));
        }
        appending.append(log, stored)
    }

    /// Stores records that were stored elsewhere, as their bytes are.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append). Corrupt, if a record cannot be read or does not follow the last; none is stored.
    pub fn append_stored(&self, stored: Vec<Bytes>) -> Result<Ticket, LogError> {
        let slot = self.inner.slot();
        let log = working(&slot)?;
        let mut appending = Appending::new(&self.inner);
        for bytes in &stored {
            let sequence = appending.end;
            let record = self.inner.decode(sequence, bytes)?;
            appending.push(&record).map_err(|e| self.inner.bad(sequence, e))?;
        }
        appending.append(log, stored)
    }

    /// What `apply` gave a record.
    ///
    /// # Errors
    ///
    /// Invalid, if the log does not have it. Corrupt, if it is not what was stored. Unavailable, if the file cannot be
    /// read.
    pub fn header(&self, index: PartitionLogIndex) -> Result<StoredHeader, LogError> {
        let slot = self.inner.slot();
        self.inner.decode_header(index.0, &slot.log()?.read(index.0)?)
    }

    /// A record.
    ///
    /// # Errors
    ///
    /// As [`header`](Self::header).
    pub fn record(&self, index: PartitionLogIndex) -> Result<AcceptedRecord, LogError> {
        let slot = self.inner.slot();
        self.inner.decode(index.0, &slot.log()?.read(index.0)?)
    }

    /// Whether the record at this place was accepted from this entry (LOG-4).
    ///
    /// # Errors
    ///
    /// Corrupt, if it was not. As [`header`](Self::header).
    pub fn check_tuple(&self, index: PartitionLogIndex, expected: LogId) -> Result<(), LogError> {
        let found = self.header(index)?.log_id;
        if found == expected {
            return Ok(());
        }
        Err(LogError::WrongTuple { partition: self.inner.partition, index, found, expected })
    }

    /// A reader that begins with this record.
    pub fn reader(&self, from: PartitionLogIndex) -> PartitionReader {
        PartitionReader::new(Arc::clone(&self.inner), from, false)
    }

    /// A reader for a few records: it keeps little of the log in memory.
    pub fn short_reader(&self, from: PartitionLogIndex) -> PartitionReader {
        PartitionReader::new(Arc::clone(&self.inner), from, true)
    }

    /// The record that holds this row; none if the row is not there yet or was dropped.
    ///
    /// # Errors
    ///
    /// As [`header`](Self::header).
    pub fn find_offset(&self, offset: u64) -> Result<Option<PartitionLogIndex>, LogError> {
        self.inner.find_offset(self.inner.slot().log()?, offset)
    }

    /// The first record of this time or later; none if all up to `last` are older.
    ///
    /// # Errors
    ///
    /// Unavailable, if the log lacks records up to `last`. As [`header`](Self::header).
    pub fn find_time(
        &self,
        time_ms: u64,
        last: PartitionLogIndex,
    ) -> Result<Option<PartitionLogIndex>, LogError> {
        let slot = self.inner.slot();
        let log = self.through(&slot, last)?;
        self.inner.find_time(log, time_ms)
    }

    /// The first record that was accepted from an entry after this one, or the place of the next record.
    ///
    /// # Errors
    ///
    /// As [`header`](Self::header).
    pub fn find_after(&self, entry: LogIndex) -> Result<PartitionLogIndex, LogError> {
        self.inner.find_after(self.inner.slot().log()?, entry)
    }

    /// The first record of some places, all of which the log has, that was accepted from an entry after this one.
    ///
    /// # Errors
    ///
    /// As [`header`](Self::header).
    pub fn first_after(
        &self,
        entry: LogIndex,
        within: Range<PartitionLogIndex>,
    ) -> Result<Option<StoredHeader>, LogError> {
        let slot = self.inner.slot();
        self.inner.first_after(slot.log()?, entry, &(within.start.0..within.end.0))
    }

    /// The first record behind an entry, or the place of the next record; and the offset of the first row behind the
    /// entry. `last` is a record that the partition has; all up to the entry must be among those up to it.
    ///
    /// # Errors
    ///
    /// Unavailable, if the log lacks records up to `last`. As [`header`](Self::header).
    pub fn end_at(
        &self,
        entry: LogIndex,
        last: PartitionLogIndex,
    ) -> Result<(PartitionLogIndex, u64), LogError> {
        let slot = self.inner.slot();
        let log = self.through(&slot, last)?;
        let found = self.inner.look_for(log, |point| point.raft_index <= entry.0)?;
        let (behind, indices) = (found.index, log.sequences());
        let offset = if let Some(header) = found.at {
            header.first_offset
        } else if indices.contains(&behind) {
            self.inner.decode_header(behind, &log.read(behind)?)?.first_offset
        } else if indices.is_empty() {
            0
        } else {
            let last = self.inner.decode(indices.end - 1, &log.read(indices.end - 1)?)?;
            last.first_offset + rows(&last.record)
        };
        Ok((index(behind), offset))
    }

    /// The log, if it has records up to `last`. After a fault it may lack some until they are stored again, and whoever
    /// takes that for the end of the partition would leave out rows that were acknowledged.
    fn through<'a>(&self, slot: &'a Slot, last: PartitionLogIndex) -> Result<&'a Aof, LogError> {
        let log = slot.log()?;
        let stored_end = index(log.sequences().end);
        if stored_end > last || last == PartitionLogIndex::NONE {
            return Ok(log);
        }
        Err(LogError::NotStoredAgain { partition: self.inner.partition, stored_end, last })
    }

    /// The record that holds this row, or the first there is if that comes later; none if the log is empty. With `last`
    /// it must have records up to there.
    ///
    /// # Errors
    ///
    /// Unavailable, if the log lacks records up to `last`. As [`header`](Self::header).
    pub fn header_at(&self, offset: u64, last: PartitionLogIndex) -> Result<Option<StoredHeader>, LogError> {
        let slot = self.inner.slot();
        let log = self.through(&slot, last)?;
        let found = self.inner.look_for(log, |point| point.first_offset <= offset)?;
        if let Some(header) = found.before {
            return Ok(Some(header));
        }
        let indices = log.sequences();
        let place = found.index.saturating_sub(1).max(indices.start);
        if !indices.contains(&place) {
            return Ok(None);
        }
        self.inner.decode_header(place, &log.read(place)?).map(Some)
    }

    /// Keeps the records from `from` on, as far as they are there, until the pin is dropped.
    ///
    /// # Errors
    ///
    /// What closed the log, if it is closed.
    pub fn pin(&self, from: PartitionLogIndex) -> Result<RecordPin, LogError> {
        let slot = self.inner.slot();
        Ok(self.inner.pin(slot.log()?, from.0))
    }

    /// Drops the records whose rows are all below `start_offset`; but neither the last record nor what is pinned, which
    /// goes with a later call. None if there was nothing to drop. Dropped records are gone for readers at once, and
    /// after the ticket also after a crash.
    ///
    /// # Errors
    ///
    /// What stopped the log, if it has failed. As [`header`](Self::header).
    pub fn trim(&self, start_offset: u64) -> Result<Option<Ticket>, LogError> {
        let slot = self.inner.slot();
        let log = slot.log()?;
        let behind = self.inner.partition_point(log, |point| point.first_offset <= start_offset)?;
        self.drop_below(log, behind.saturating_sub(1))
    }

    /// Drops the records below `below`, as [`trim`](Self::trim) does: for machines that keep what they need of them.
    ///
    /// # Errors
    ///
    /// As [`trim`](Self::trim).
    pub fn compact(&self, below: PartitionLogIndex) -> Result<Option<Ticket>, LogError> {
        self.drop_below(self.inner.slot().log()?, below.0)
    }

    fn drop_below(&self, log: &Aof, below: u64) -> Result<Option<Ticket>, LogError> {
        let pins = self.inner.pins.lock();
        let indices = log.sequences();
        let last = indices.end.saturating_sub(1);
        let below = below.min(last).min(pins.lowest().unwrap_or(last));
        if below <= indices.start {
            return Ok(None);
        }
        let ticket = log.truncate_front(below)?;
        drop(pins);
        self.inner.tail().points.retain(&(below..u64::MAX));
        Ok(Some(ticket))
    }

    /// Removes the records that were accepted from entries above `limit`: what a recovery finds beyond the committed
    /// log. None if there are none. They are gone for readers at once, and after the ticket also after a crash.
    ///
    /// # Errors
    ///
    /// As [`trim`](Self::trim).
    pub fn cut_above(&self, limit: LogIndex) -> Result<Option<Ticket>, LogError> {
        // Nobody else searches: what it remembers of the records that go would be taken for those that come.
        let slot = self.inner.slot_mut();
        let log = slot.log()?;
        let from = self.inner.partition_point(log, |point| point.raft_index <= limit.0)?;
        let mut tail = self.inner.tail();
        let indices = log.sequences();
        if from >= indices.end {
            return Ok(None);
        }
        let left = self.inner.read_tail(log, indices.start..from)?;
        let ticket = log.truncate_back(from)?;
        *tail = left;
        Ok(Some(ticket))
    }
}

/// The log, unless it has failed: then its end has moved, and no place is what the caller thinks it is.
fn working(slot: &Slot) -> Result<&Aof, LogError> {
    if let Some(fault) = &slot.fault {
        return Err(fault.clone());
    }
    let log = slot.log()?;
    log.failure().map_or(Ok(log), |failure| Err(failure.into()))
}

/// Records on their way into the log, which nobody else appends to meanwhile.
struct Appending<'a> {
    inner: &'a Inner,
    tail: MutexGuard<'a, Tail>,
    /// The place of the next record.
    end: u64,
    last: Option<LastRecord>,
    points: Vec<Point>,
    /// The place from which on another point is to be kept.
    point_at: u64,
}

impl<'a> Appending<'a> {
    fn new(inner: &'a Inner) -> Self {
        let tail = inner.tail();
        let point_at = tail.points.next_at();
        Self { inner, end: tail.next, last: tail.last, tail, points: Vec::new(), point_at }
    }

    fn push(&mut self, record: &AcceptedRecord) -> Result<(), FormatError> {
        let (partition, expected) = (record.record.partition, self.inner.partition);
        if partition != expected {
            let found = u64::from(partition.0);
            return Err(FormatError::Value { what: "partition of a stored record", at: 52, found });
        }
        match &self.last {
            Some(last) => last.is_followed_by(record)?,
            None if record.index.0 == self.end => {}
            None => {
                let found = record.index.0;
                return Err(FormatError::Value { what: "index of a stored record", at: 8, found });
            }
        }
        let last = LastRecord::of(record);
        if self.end >= self.point_at {
            self.points.push(Point::from(&last.header));
            self.point_at = self.end + self.tail.points.interval();
        }
        self.last = Some(last);
        self.end += 1;
        Ok(())
    }

    fn append(mut self, log: &Aof, stored: Vec<Bytes>) -> Result<Ticket, LogError> {
        let first = self.tail.next;
        let ticket = log.append(stored)?;
        assert_eq!(ticket.sequences(), first..self.end, "LOG-2: the files are not where the log is");
        (self.tail.next, self.tail.last) = (self.end, self.last);
        for point in self.points {
            self.tail.points.keep(point, self.inner.config.points_max as usize);
        }
        Ok(ticket)
    }
}
