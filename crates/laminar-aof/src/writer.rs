//! Brings what waits into the files of one log. Only one thread at a time has a writer.
//!
//! One write carries one group. Before the first group of a segment is written, all of the segment before is synced and
//! its name is durable; a cut, a failure and an opening begin a new segment. So below the beginning of the last segment
//! everything is on disk, and no byte of a segment is ever written twice, but for zeros before it is used.
//!
//! In the background a segment is a draft while groups are written into it: its file gets its name after its first sync,
//! and only then, with the name on disk too, is anyone told. A crash before leaves a log without the segment, as if
//! nothing of it had been asked for.

use std::sync::Arc;

use bytes::Bytes;
use crc32c::crc32c;

use crate::config::Durability;
use crate::error::AofError;
use crate::format::{DATA_START, GROUP_HEADER_BYTES, GroupHeader, IndexEntry, push_record, record_bytes};
use crate::fs::OpenFile;
use crate::housekeeping::Job;
use crate::log::Log;
use crate::log::state::Op;
use crate::read::SegmentReader;
use crate::recover::SegmentRange;
use crate::segment::{OpenSegment, Segment, SegmentExtent};
use crate::ticket::Completion;

/// A larger group is written as several: it would not stay in the processor's cache between encoding and writing.
const GROUP_BYTES_MAX: usize = 1 << 20;
/// After so many bytes they are synced on the side, so that the sync at the end has little left to wait for.
const FLUSH_BYTES: u64 = 8 << 20;
/// If groups are no larger on average, the next segment is filled before it is written to.
const FILLED_GROUP_BYTES_MAX: u64 = 64 << 10;

#[derive(Default)]
pub(crate) struct Writer {
    active: Option<Active>,
    buffer: Vec<u8>,
    /// The log's start as of what was written so far: a later one must not reach the disk before what precedes it.
    start: u64,
    /// Whether the files lack something that was asked for, and a sync.
    unsynced: bool,
    /// Waiting for the next sync.
    completions: Vec<Arc<Completion>>,
    /// To do after the next sync.
    jobs: Vec<Job>,
}

/// The segment that is being written.
struct Active {
    segment: Arc<Segment>,
    /// Held while bytes are unsynced, so that an error of the disk is reported to this very handle.
    file: Option<OpenFile>,
    /// Whether the file has its name, durably.
    named: bool,
    extent: SegmentExtent,
    /// Bytes that are known to be on disk.
    synced: u64,
    /// Bytes that are being synced on the side.
    flushed: u64,
    /// Whether a group says so yet.
    marked: bool,
    /// The group that raised the mark, while it is the last one and not synced.
    unsynced_mark: Option<[u8; GROUP_HEADER_BYTES]>,
    next_index_at: u64,
    /// Groups written so far.
    groups: u64,
    preparing: bool,
}

impl Active {
    fn new(opened: OpenSegment, first: u64) -> Self {
        let extent = SegmentExtent { first, end: first, data_end: DATA_START };
        Self {
            named: opened.segment.draft_name().is_none(),
            segment: opened.segment,
            file: Some(opened.file),
            extent,
            synced: DATA_START,
            flushed: DATA_START,
            marked: true,
            unsynced_mark: None,
            next_index_at: 0,
            groups: 0,
            preparing: false,
        }
    }

    fn file(&mut self, log: &Log) -> Result<&OpenFile, AofError> {
        match &mut self.file {
            Some(file) => Ok(file),
            none => {
                let file = log.file(&self.segment)?;
                if let Some(mark) = &self.unsynced_mark {
                    // This handle need not learn of an error that lost the mark, and a log ends at what is lost.
                    file.write_at(mark, self.extent.data_end - GROUP_HEADER_BYTES as u64)?;
                }
                Ok(none.insert(file))
            }
        }
    }

    /// Syncs what was written since the last sync, also a mark whose file was let go, and the name of a draft; says
    /// whether there was anything.
    fn sync(&mut self, log: &Log) -> Result<bool, AofError> {
        if self.synced == self.extent.data_end {
            return Ok(false);
        }
        log.timed_sync(self.file(log)?)?;
        if !self.named {
            self.give_name(log)?;
            log.sync_names()?;
            self.named = true;
        }
        self.synced = self.extent.data_end;
        self.unsynced_mark = None;
        Ok(true)
    }

    /// Gives a draft its name, not durably yet: all of its bytes are on disk.
    fn give_name(&mut self, log: &Log) -> Result<(), AofError> {
        let file = self.file(log)?.clone();
        self.file = Some(log.give_name(&self.segment, file)?);
        Ok(())
    }

    /// Bytes that a group may take, leaving room for an empty one that raises the mark behind it.
    fn room(&self) -> u64 {
        (self.segment.capacity - self.extent.data_end).saturating_sub(2 * GROUP_HEADER_BYTES as u64)
    }
}

impl Writer {
    pub(crate) fn new(start: u64) -> Self {
        Self { start, ..Self::default() }
    }

    pub(crate) fn is_unsynced(&self) -> bool {
        self.unsynced
    }

    pub(crate) fn needs_mark(&self) -> bool {
        !self.unsynced && self.active.as_ref().is_some_and(|active| !active.marked)
    }

    /// Writes everything that was asked for. `completion` is told after the next sync.
    pub(crate) fn write(
        &mut self,
        log: &Log,
        ops: &[Op],
        completion: Arc<Completion>,
    ) -> Result<(), AofError> {
        self.completions.push(completion);
        self.unsynced = true;
        let mut start_written = true;
        for op in ops {
            match op {
                Op::Append { first, records, crcs } => {
                    self.write_records(log, *first, records, crcs)?;
                    start_written = true;
                }
                Op::Cut { from } => self.begin_at(log, *from)?,
                Op::Front { before } => {
                    self.start = *before;
                    start_written = false;
                }
                Op::Sync => {}
            }
        }
        if !start_written {
            self.write_start(log)?;
        }
        self.prepare_next(log);
        Ok(())
    }

    /// Writes records into as many groups and segments as they need.
    fn write_records(
        &mut self,
        log: &Log,
        mut sequence: u64,
        mut records: &[Bytes],
        mut crcs: &[u32],
    ) -> Result<(), AofError> {
        while let Some(first) = records.first() {
            let needed = record_bytes(first.len()) as u64;
            let moved_on = self.active.as_ref().is_none_or(|active| active.extent.end != sequence);
            if moved_on || self.active.as_ref().is_none_or(|active| active.room() < needed) {
                self.begin_segment(log, sequence, needed)?;
            }
            let written = self.write_group(log, sequence, records, crcs)?;
            sequence += written as u64;
            (records, crcs) = (&records[written..], &crcs[written..]);
        }
        Ok(())
    }

    /// Notes a new start of the log in a group of its own, and lets go of the segments below it.
    fn write_start(&mut self, log: &Log) -> Result<(), AofError> {
        match self.active.as_ref().filter(|active| active.room() > 0).map(|active| active.extent.end) {
            Some(end) if end >= self.start => self.write_group(log, end, &[], &[]).map(drop),
            // The log was emptied beyond its end, nothing was written since it was opened, or there is no room.
            _ => {
                let first = log.state().written_end().max(self.start);
                self.begin_at(log, first)
            }
        }
    }

    /// Has the log go on with this sequence, whatever stands behind it in segments before.
    fn begin_at(&mut self, log: &Log, first: u64) -> Result<(), AofError> {
        self.begin_segment(log, first, 0)?;
        self.write_group(log, first, &[], &[]).map(drop)
    }

    /// Goes on in a new segment, whose first record has this sequence.
    fn begin_segment(&mut self, log: &Log, first: u64, needed: u64) -> Result<(), AofError> {
        if let Some(active) = &mut self.active {
            if active.sync(log)? {
                log.state().set_synced(active.extent.end);
            }
            let (segment, extent) = (Arc::clone(&active.segment), active.extent);
            self.jobs.push(Job::Seal { segment, extent, start: self.start });
        } else if let Some(last) = log.state().ranges.last().filter(|last| !last.sealed) {
            // The one that was the last at the opening.
            let (segment, extent) = (Arc::clone(&last.segment), last.extent);
            self.jobs.push(Job::Seal { segment, extent, start: self.start });
        }
        let capacity = log.capacity_for(DATA_START + needed + 3 * GROUP_HEADER_BYTES as u64);
        let opened = match log.take_prepared(capacity) {
            Some(prepared) => prepared,
            None => log.make_segment(capacity)?,
        };
        log.shared.handles.put(log.uid, &opened.segment, opened.file.clone());
        self.active = Some(Active::new(opened, first));
        Ok(())
    }

    /// Writes once more what a segment holds from `first` on, which takes up to `bytes` there.
    ///
    /// The new segment gets its name when all of it is on disk: cutting the old one before would lose records that
    /// were acknowledged, if the power failed meanwhile.
    pub(crate) fn rewrite(
        &mut self,
        log: &Log,
        first: u64,
        mut tail: Option<SegmentReader>,
        bytes: u64,
    ) -> Result<u64, AofError> {
        let groups = 3 + bytes.div_ceil(GROUP_BYTES_MAX as u64 / 2);
        let draft =
            log.draft_segment(log.capacity_for(DATA_START + bytes + groups * GROUP_HEADER_BYTES as u64))?;
        let id = draft.segment.key.id;
        self.active = Some(Active::new(draft, first));
        self.write_group(log, first, &[], &[])?;
        let mut sequence = first;
        while let Some(tail) = &mut tail {
            let records = tail.next_records(GROUP_BYTES_MAX)?;
            if records.is_empty() {
                break;
            }
            let crcs: Vec<u32> = records.iter().map(|record| crc32c(record)).collect();
            self.write_records(log, sequence, &records, &crcs)?;
            sequence += records.len() as u64;
        }
        let written_to = self.active.as_ref().map(|active| active.segment.key.id);
        assert_eq!(written_to, Some(id), "a tail is rewritten into one segment");
        self.sync(log)?;
        Ok(sequence - first)
    }

    /// Writes one group with as many of the records as fit; returns how many.
    fn write_group(
        &mut self,
        log: &Log,
        first: u64,
        records: &[Bytes],
        crcs: &[u32],
    ) -> Result<usize, AofError> {
        let active = self.active.as_mut().expect("a segment was begun");
        let room = active.room().min(GROUP_BYTES_MAX as u64) as usize;
        self.buffer.clear();
        self.buffer.resize(GROUP_HEADER_BYTES, 0);
        let mut index = Vec::new();
        let mut written = 0;
        for (record, crc) in records.iter().zip(crcs) {
            let body = self.buffer.len() - GROUP_HEADER_BYTES;
            if written > 0 && body + record_bytes(record.len()) > room {
                break;
            }
            let (sequence, offset) =
                (first + written as u64, active.extent.data_end + self.buffer.len() as u64);
            if offset >= active.next_index_at {
                index.push(IndexEntry { sequence, offset });
                active.next_index_at = offset + log.config.index_interval_bytes;
            }
            push_record(&mut self.buffer, &active.segment.key, sequence, record, *crc);
            written += 1;
        }
        let group = GroupHeader {
            offset: active.extent.data_end,
            synced: active.synced,
            start: self.start,
            first_sequence: first,
            records: u32::try_from(written).expect("a group has less than 4 GiB"),
            body_bytes: u32::try_from(self.buffer.len() - GROUP_HEADER_BYTES)
                .expect("a group has less than 4 GiB"),
            closed: false,
        };
        self.put(log, group)?;
        let active = self.active.as_mut().expect("it was written to");
        active.segment.add_to_index(&mut index);
        active.extent.end = first + written as u64;
        active.groups += 1;
        let range = SegmentRange {
            segment: Arc::clone(&active.segment),
            extent: active.extent,
            end: active.extent.end,
            sealed: false,
        };
        log.shared.stats.wrote(written as u64, self.buffer.len() as u64);
        self.jobs.extend(log.publish(range).into_iter().map(|range| Job::Remove { segment: range.segment }));
        Ok(written)
    }

    /// Writes the buffer as a group, in one call.
    fn put(&mut self, log: &Log, group: GroupHeader) -> Result<(), AofError> {
        let active = self.active.as_mut().expect("a segment was begun");
        self.buffer[..GROUP_HEADER_BYTES].copy_from_slice(&group.encode(&active.segment.key));
        active.file(log)?.write_at(&self.buffer, group.offset)?;
        active.extent.data_end = group.end();
        active.marked = true;
        active.unsynced_mark = None;
        if active.extent.data_end - active.flushed.max(active.synced) >= FLUSH_BYTES {
            active.flushed = active.extent.data_end;
            log.submit_jobs(&mut vec![Job::Flush { segment: Arc::clone(&active.segment) }]);
        }
        Ok(())
    }

    /// Syncs what was written, tells everyone who waits for it, and hands over what had to wait.
    pub(crate) fn sync(&mut self, log: &Log) -> Result<(), AofError> {
        // With nothing but a mark behind it, all that was asked for is on disk.
        if let Some(active) = self.active.as_mut().filter(|active| active.unsynced_mark.is_none()) {
            active.sync(log)?;
        }
        self.synced(log);
        Ok(())
    }

    /// Gives the file its name if it is a draft, whose bytes were all synced; says whether it was one.
    pub(crate) fn give_name(&mut self, log: &Log) -> Result<bool, AofError> {
        let Some(active) = self.active.as_mut().filter(|active| active.segment.draft_name().is_some()) else {
            return Ok(false);
        };
        active.give_name(log).map(|()| true)
    }

    /// All that was written is on disk, but for a mark perhaps, and so are the names.
    pub(crate) fn synced(&mut self, log: &Log) {
        self.unsynced = false;
        if let Some(active) = &mut self.active {
            active.named = true;
            log.set_folder_durable();
            if active.unsynced_mark.is_none() {
                active.synced = active.extent.data_end;
                active.marked = false;
            }
            active.file = None;
            log.state().set_synced(active.extent.end);
        }
        for completion in self.completions.drain(..) {
            completion.complete(Ok(()));
        }
        self.jobs
            .extend(log.unneeded(self.start).into_iter().map(|range| Job::Remove { segment: range.segment }));
        log.submit_jobs(&mut self.jobs);
    }

    /// Raises the synced mark with an empty group, if there is room for one.
    pub(crate) fn mark(&mut self, log: &Log, closed: bool) -> Result<bool, AofError> {
        let Some(active) = self.active.as_mut().filter(|active| closed || !active.marked) else {
            return Ok(false);
        };
        active.marked = true;
        if active.extent.data_end + GROUP_HEADER_BYTES as u64 > active.segment.capacity {
            return Ok(false);
        }
        let group = GroupHeader {
            offset: active.extent.data_end,
            synced: active.synced,
            start: self.start,
            first_sequence: active.extent.end,
            records: 0,
            body_bytes: 0,
            closed,
        };
        self.buffer.clear();
        self.buffer.resize(GROUP_HEADER_BYTES, 0);
        self.put(log, group)?;
        let active = self.active.as_mut().expect("it was written to");
        active.unsynced_mark = self.buffer.first_chunk().copied();
        Ok(true)
    }

    /// Syncs a mark. Nobody waits for it, and it needs no mark of its own.
    pub(crate) fn sync_mark(&mut self, log: &Log) -> Result<(), AofError> {
        if let Some(active) = &mut self.active {
            active.sync(log)?;
            active.file = None;
        }
        Ok(())
    }

    /// Lets the cache close the file. Only a mark may be unsynced, and it is written again before anything behind it.
    pub(crate) fn release_file(&mut self) {
        if let Some(active) = self.active.as_mut().filter(|_| !self.unsynced) {
            active.file = None;
        }
    }

    /// Has the next segment made ready when this one is half full.
    fn prepare_next(&mut self, log: &Log) {
        if let Some(active) = self.active.as_mut().filter(|active| !active.preparing)
            && active.extent.data_end > active.segment.capacity / 2
        {
            active.preparing = true;
            let capacity = log.capacity_for(active.segment.capacity);
            // Who syncs many small groups waits for each of them; large ones would only be written twice.
            let filled = log.config.durability == Durability::Synced
                && active.extent.data_end / active.groups.max(1) <= FILLED_GROUP_BYTES_MAX;
            log.submit_jobs(&mut vec![Job::Prepare { capacity, filled }]);
        }
    }

    /// Gives up everything that waits for a sync.
    pub(crate) fn abandon(&mut self) -> Vec<Arc<Completion>> {
        self.active = None;
        self.unsynced = false;
        self.jobs.clear();
        std::mem::take(&mut self.completions)
    }
}
