//! Reads a segment that has no trailer: every record is verified, and what follows the last good one is judged.

use std::collections::VecDeque;

use crate::chunks::Chunks;
use crate::error::AofError;
use crate::format::{
    ALIGNMENT, DATA_START, GROUP_HEADER_BYTES, GroupHeader, IndexEntry, Mismatch, RECORD_HEADER_BYTES,
    SegmentHeader, announced_bytes, decode_record,
};
use crate::fs::OpenFile;
use crate::recover::CutTail;
use crate::segment::SegmentExtent;

/// Small enough to stay in the processor's cache from reading to verifying.
const SCAN_CHUNK_BYTES: u64 = 256 << 10;

/// A place between two groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Boundary {
    pub(crate) offset: u64,
    pub(crate) sequence: u64,
    /// The log's start as the group before says.
    pub(crate) start: u64,
}

/// Where the intact records end, and what is wrong with the bytes there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) offset: u64,
    pub(crate) sequence: u64,
    pub(crate) mismatch: Mismatch,
}

/// What a segment holds, as far as it is intact.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) extent: SegmentExtent,
    pub(crate) index: Vec<IndexEntry>,
    /// Whether any group was written; if not, `extent` means nothing.
    pub(crate) used: bool,
    pub(crate) start: u64,
    /// The last place at or before the synced mark.
    pub(crate) synced: Boundary,
    /// The highest synced mark of any group, also of those behind the stop.
    pub(crate) mark: u64,
    pub(crate) stop: Stop,
    /// Whether something of this segment stands behind the intact records.
    pub(crate) torn: bool,
    pub(crate) closed: bool,
}

impl Scan {
    /// Whether everything that the segment says is known to be on disk: it was begun, and since then no record came, the
    /// log's start did not move, and nothing is torn.
    pub(crate) fn is_settled(&self) -> bool {
        let known = self.synced;
        known.offset > DATA_START
            && (known.sequence, known.start) == (self.extent.end, self.start)
            && !self.torn
    }

    /// Where the segment was cut.
    pub(crate) fn cut_tail(&self, segment: u64) -> CutTail {
        CutTail { segment, sequence: self.stop.sequence, byte: self.stop.offset }
    }
}

/// Scans up to `limit`. A record that cannot be numbered, because the first group is bad, counts as `expected`.
pub(crate) fn scan(
    header: &SegmentHeader,
    file: OpenFile,
    limit: u64,
    expected: u64,
    index_interval: u64,
) -> Result<Scan, AofError> {
    let mut chunks = Chunks::new(file, limit, SCAN_CHUNK_BYTES);
    let first = Boundary { offset: DATA_START, sequence: expected, start: 0 };
    let mut scanner = Scanner {
        header,
        at: first,
        index_interval,
        boundaries: VecDeque::from([first]),
        scan: Scan {
            extent: SegmentExtent { first: expected, end: expected, data_end: DATA_START },
            index: Vec::new(),
            used: false,
            start: 0,
            synced: first,
            mark: DATA_START,
            stop: Stop {
                offset: DATA_START,
                sequence: expected,
                mismatch: Mismatch { found: 0, expected: 0 },
            },
            torn: false,
            closed: false,
        },
    };
    while scanner.group(&mut chunks)? {}
    scanner.finish(&mut chunks, limit)
}

struct Scanner<'a> {
    header: &'a SegmentHeader,
    at: Boundary,
    index_interval: u64,
    /// Ends of groups above the synced mark, and the last one at or before it.
    boundaries: VecDeque<Boundary>,
    scan: Scan,
}

impl Scanner<'_> {
    /// Reads one group; says whether to go on.
    fn group(&mut self, chunks: &mut Chunks) -> Result<bool, AofError> {
        let at = self.at;
        let Some(bytes) = chunks.at(at.offset, GROUP_HEADER_BYTES)? else {
            return Ok(self.stop(Mismatch { found: 0, expected: 0 }));
        };
        let group = match GroupHeader::decode(bytes, &self.header.key, at.offset) {
            Ok(group) => group,
            Err(mismatch) => {
                self.scan.torn = GroupHeader::was_meant(bytes, &self.header.key, at.offset, at.sequence);
                return Ok(self.stop(mismatch));
            }
        };
        if self.scan.used && group.first_sequence != at.sequence {
            self.scan.torn = true;
            return Ok(self.stop(Mismatch { found: 0, expected: 0 }));
        }
        if !self.scan.used {
            self.scan.used = true;
            self.scan.extent.first = group.first_sequence;
            self.at.sequence = group.first_sequence;
            self.boundaries[0].sequence = group.first_sequence;
        }
        self.scan.mark = self.scan.mark.max(group.synced);
        self.scan.start = group.start;
        self.at.start = group.start;
        self.scan.closed = group.closed;
        self.at.offset = at.offset + GROUP_HEADER_BYTES as u64;
        if let Some(mismatch) = self.records(chunks, &group)? {
            self.scan.torn = true;
            return Ok(self.stop(mismatch));
        }
        self.boundaries.push_back(self.at);
        while self.boundaries.get(1).is_some_and(|next| next.offset <= self.scan.mark) {
            self.boundaries.pop_front();
        }
        Ok(true)
    }

    /// Verifies the records of a group; says what is wrong with the first bad one.
    fn records(&mut self, chunks: &mut Chunks, group: &GroupHeader) -> Result<Option<Mismatch>, AofError> {
        const CUT_SHORT: Option<Mismatch> = Some(Mismatch { found: 0, expected: 0 });
        let mut left = group.records;
        while left > 0 {
            let begin = self.at.offset;
            let Some(bytes) = chunks.at(begin, RECORD_HEADER_BYTES)? else { return Ok(CUT_SHORT) };
            let needed = announced_bytes(bytes);
            if begin + needed as u64 > group.end() {
                return Ok(CUT_SHORT);
            }
            let Some(bytes) = chunks.at(begin, needed)? else { return Ok(CUT_SHORT) };
            let bytes = &bytes[..bytes.len().min((group.end() - begin) as usize)];
            let mut within = 0;
            // As many as are here whole; the first one is.
            while left > 0
                && bytes.len() - within >= RECORD_HEADER_BYTES
                && bytes.len() - within >= announced_bytes(&bytes[within..])
            {
                match decode_record(&bytes[within..], &self.header.key, self.at.sequence) {
                    Ok(record) => within += record.next,
                    Err(mismatch) => return Ok(Some(mismatch)),
                }
                self.verified(begin + within as u64);
                left -= 1;
            }
        }
        Ok(if self.at.offset == group.end() { None } else { CUT_SHORT })
    }

    /// Goes on behind an intact record, at `next`.
    fn verified(&mut self, next: u64) {
        let Boundary { offset, sequence, start } = self.at;
        if self.scan.index.last().is_none_or(|last| offset - last.offset >= self.index_interval) {
            self.scan.index.push(IndexEntry { sequence, offset });
        }
        self.at = Boundary { offset: next, sequence: sequence + 1, start };
    }

    /// Ends the scan at the current place.
    fn stop(&mut self, mismatch: Mismatch) -> bool {
        let Boundary { offset, sequence, .. } = self.at;
        self.scan.stop = Stop { offset, sequence, mismatch };
        self.scan.extent = SegmentExtent { end: sequence, data_end: offset, ..self.scan.extent };
        false
    }

    /// Looks for groups of this segment behind the stop: pages of a group may have reached the disk in any order.
    fn finish(mut self, chunks: &mut Chunks, limit: u64) -> Result<Scan, AofError> {
        let mut offset = self.scan.stop.offset + ALIGNMENT as u64;
        // A closed log wrote nothing behind its last group, because every opening begins a segment.
        while (self.scan.torn || !self.scan.closed) && offset + (GROUP_HEADER_BYTES as u64) <= limit {
            let Some(bytes) = chunks.at(offset, GROUP_HEADER_BYTES)? else { break };
            let last = bytes.len() - GROUP_HEADER_BYTES;
            for within in (0..=last).step_by(ALIGNMENT) {
                let bytes = &bytes[within..];
                if GroupHeader::may_start(bytes)
                    && let Ok(group) = GroupHeader::decode(bytes, &self.header.key, offset + within as u64)
                {
                    self.scan.mark = self.scan.mark.max(group.synced);
                    self.scan.torn = true;
                }
            }
            offset += (last - last % ALIGNMENT + ALIGNMENT) as u64;
        }
        while self.boundaries.get(1).is_some_and(|next| next.offset <= self.scan.mark) {
            self.boundaries.pop_front();
        }
        self.scan.synced = self.boundaries[0];
        Ok(self.scan)
    }
}
