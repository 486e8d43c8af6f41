//! Reading back: records in order, verified, out of large pieces of the file and without copies.

use std::sync::Arc;
use std::vec;

use bytes::Bytes;

use crate::chunks::Chunks;
use crate::error::AofError;
use crate::format::{
    GROUP_HEADER_BYTES, GroupHeader, Mismatch, RECORD_HEADER_BYTES, announced_bytes, decode_record,
};
use crate::log::Log;
use crate::log::state::Place;
use crate::recover::SegmentRange;
use crate::segment::Segment;

/// Records that wait to be written and are handed to a reader at once.
const MEMORY_RECORDS_MAX: usize = 4096;
/// Records that are verified in one go: the checksums of several are then computed side by side.
const VERIFY_RECORDS_MAX: usize = 64;

/// A record as it was appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number in the log.
    pub sequence: u64,
    /// Its bytes: a part of a larger piece that was read, kept alive by it.
    pub payload: Bytes,
}

/// Reads the records of one segment in order, each verified.
#[derive(Debug)]
pub struct SegmentReader {
    chunks: Chunks,
    /// Keeps the file from being recycled.
    segment: Arc<Segment>,
    log: Arc<Log>,
    /// Payloads that were verified and not handed out, the next one last.
    verified: Vec<(u64, usize)>,
    /// Where the first one stands that was not verified.
    offset: u64,
    /// The next to be handed out.
    sequence: u64,
    end: u64,
    data_end: u64,
}

impl SegmentReader {
    /// Reads `from..end` in pieces of `chunk_bytes`.
    pub(crate) fn new(
        log: &Arc<Log>,
        range: SegmentRange,
        from: u64,
        end: u64,
        chunk_bytes: u64,
    ) -> Result<Self, AofError> {
        let file = log.file(&range.segment)?;
        let place = range.segment.place_of(from, &file, &log.folder)?;
        let data_end = range.extent.data_end;
        let mut reader = Self {
            chunks: Chunks::new(file, data_end, chunk_bytes),
            segment: range.segment,
            log: Arc::clone(log),
            verified: Vec::new(),
            offset: place.offset,
            sequence: place.sequence,
            end,
            data_end,
        };
        while reader.sequence < from {
            reader.next_place()?;
        }
        Ok(reader)
    }

    /// The id of the segment.
    pub fn segment(&self) -> u64 {
        self.segment.key.id
    }

    /// The next record, or none at the end of the segment.
    ///
    /// # Errors
    ///
    /// Corrupt, if a record is not what was written. Unavailable, if the file cannot be read.
    #[allow(clippy::should_implement_trait, reason = "an iterator could not end with an error for good")]
    pub fn next(&mut self) -> Result<Option<Record>, AofError> {
        if self.sequence >= self.end {
            return Ok(None);
        }
        let sequence = self.sequence;
        let (offset, length) = self.next_place()?;
        Ok(Some(Record { sequence, payload: self.chunks.slice(offset, length) }))
    }

    /// The payloads that come next, a little more than `bytes_max` of them; none at the end.
    pub(crate) fn next_records(&mut self, bytes_max: usize) -> Result<Vec<Bytes>, AofError> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        while bytes < bytes_max
            && let Some(record) = self.next()?
        {
            bytes += record.payload.len() + RECORD_HEADER_BYTES;
            records.push(record.payload);
        }
        Ok(records)
    }

    /// Goes behind a record; says where its payload is.
    fn next_place(&mut self) -> Result<(u64, usize), AofError> {
        loop {
            if let Some(place) = self.verified.pop() {
                self.sequence += 1;
                return Ok(place);
            }
            self.verify()?;
        }
    }

    /// Verifies the next record, and those behind it that were read with it.
    fn verify(&mut self) -> Result<(), AofError> {
        let needed = loop {
            let Some(bytes) = self.chunks.at(self.offset, RECORD_HEADER_BYTES)? else {
                return Err(self.cut_short());
            };
            if !GroupHeader::may_start(bytes) {
                break announced_bytes(bytes);
            }
            // What a group says is needed for recovery only.
            self.offset += GROUP_HEADER_BYTES as u64;
        };
        let Some(bytes) = self.chunks.at(self.offset, needed)? else { return Err(self.cut_short()) };
        let records_max = (self.end - self.sequence).min(VERIFY_RECORDS_MAX as u64) as usize;
        let mut within = 0;
        let mut bad = None;
        while self.verified.len() < records_max && within + RECORD_HEADER_BYTES <= bytes.len() {
            let rest = &bytes[within..];
            if GroupHeader::may_start(rest) || announced_bytes(rest) > rest.len() {
                break;
            }
            let sequence = self.sequence + self.verified.len() as u64;
            match decode_record(rest, &self.segment.key, sequence) {
                Ok(record) => {
                    let payload = (within + record.payload.start) as u64;
                    self.verified.push((self.offset + payload, record.payload.len()));
                    within += record.next;
                }
                Err(mismatch) => {
                    bad = Some(mismatch);
                    break;
                }
            }
        }
        // A bad one behind good ones is met again as the first.
        if let Some(mismatch) = bad.filter(|_| self.verified.is_empty()) {
            return Err(self.corrupt(mismatch));
        }
        self.offset += within as u64;
        self.verified.reverse();
        Ok(())
    }

    fn cut_short(&self) -> AofError {
        self.corrupt(Mismatch { found: 0, expected: 0 })
    }

    fn corrupt(&self, mismatch: Mismatch) -> AofError {
        AofError::Corrupt {
            dir: self.log.folder.dir.clone(),
            segment: self.segment.key.id,
            record: self.sequence,
            byte: self.offset,
            found: mismatch.found,
            expected: mismatch.expected,
            synced: self.data_end,
        }
    }
}

/// Reads a log in order, while it grows.
#[derive(Debug)]
pub struct Reader {
    log: Arc<Log>,
    sequence: u64,
    /// How much is read of a file at once.
    chunk_bytes: u64,
    source: Source,
    cuts: u64,
}

#[derive(Debug)]
enum Source {
    None,
    Memory(vec::IntoIter<Bytes>),
    Segment(Box<SegmentReader>),
}

impl Reader {
    pub(crate) fn new(log: &Arc<Log>, sequence: u64, chunk_bytes: u64) -> Self {
        Self { log: Arc::clone(log), sequence, chunk_bytes, source: Source::None, cuts: 0 }
    }

    /// The sequence of the record that comes next.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The next record, also if it is not on disk yet; none at the end, and then again once there is more.
    ///
    /// # Errors
    ///
    /// Invalid, if the record was truncated away. Corrupt, if it is not what was written. Unavailable, if the file
    /// cannot be read.
    #[allow(
        clippy::should_implement_trait,
        reason = "it goes on after the end, which an iterator should not"
    )]
    pub fn next(&mut self) -> Result<Option<Record>, AofError> {
        loop {
            if self.cuts != self.log.cuts() {
                self.source = Source::None;
            }
            let record = match &mut self.source {
                Source::None => None,
                Source::Memory(records) => {
                    records.next().map(|payload| Record { sequence: self.sequence, payload })
                }
                Source::Segment(reader) => reader.next()?,
            };
            if let Some(record) = record {
                self.sequence += 1;
                return Ok(Some(record));
            }
            if !self.find_source()? {
                return Ok(None);
            }
        }
    }

    /// Looks where the next record is; says whether there is one.
    fn find_source(&mut self) -> Result<bool, AofError> {
        let state = self.log.state();
        if self.sequence == state.next {
            return Ok(false);
        }
        let place = state.place(self.sequence, MEMORY_RECORDS_MAX)?;
        self.cuts = self.log.cuts();
        drop(state);
        self.source = match place {
            Place::Memory(records) => Source::Memory(records.into_iter()),
            Place::File { range, end } => Source::Segment(Box::new(SegmentReader::new(
                &self.log,
                range,
                self.sequence,
                end,
                self.chunk_bytes,
            )?)),
        };
        Ok(true)
    }
}
