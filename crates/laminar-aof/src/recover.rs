//! What a folder holds: reads headers and trailers, scans what has none, and puts the segments in order.
//!
//! Segments are taken in the order of their ids. One that begins before its predecessor's end cuts it there: that is
//! how truncation at the back and the rewriting of an unsynced tail are one durable step. Files that were cut whole, or
//! lie below the log's start, are removed without haste: after a crash any of them may be there or not. A segment is
//! synced before the next one gets its first group, so only the last one may end badly.

use std::sync::Arc;

use crate::config::AofConfig;
use crate::error::{AofError, SegmentPart};
use crate::format::{
    DATA_START, FORMAT_VERSION, FileName, HeaderFault, SEGMENT_HEADER_BYTES, SegmentHeader, TRAILER_BYTES,
    Trailer, free_file_name, segment_file_name,
};
use crate::fs::{Folder, OpenFile};
use crate::scan::{Boundary, Scan, scan};
use crate::segment::{Segment, SegmentExtent};

/// Where opening cut a log, because the bytes there were never synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutTail {
    /// The segment's id.
    pub segment: u64,
    /// The sequence after the last intact record.
    pub sequence: u64,
    /// Where in the segment's file the intact records end.
    pub byte: u64,
}

/// A segment and the records of it that the log still has.
#[derive(Debug, Clone)]
pub(crate) struct SegmentRange {
    pub(crate) segment: Arc<Segment>,
    /// All that the file holds.
    pub(crate) extent: SegmentExtent,
    /// Where the log goes on in the next segment; at most `extent.end`.
    pub(crate) end: u64,
    pub(crate) sealed: bool,
}

/// A log as its folder has it.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    pub(crate) ranges: Vec<SegmentRange>,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) next_id: u64,
    pub(crate) records_verified: u64,
    pub(crate) cut: Option<CutTail>,
    /// From here on nothing is known to be on disk.
    pub(crate) unsynced: Option<Boundary>,
    /// Files that hold nothing the log needs.
    pub(crate) leftovers: Vec<String>,
}

impl Recovered {
    /// Whether the log says of itself that the name of a segment, and so that of its folder, is durable: by a synced
    /// mark, a trailer, or a segment that follows another.
    pub(crate) fn is_durable(&self) -> bool {
        let marked = self.unsynced.is_none_or(|unsynced| unsynced.offset > DATA_START);
        self.ranges.len() > 1 || (self.ranges.len() == 1 && marked)
    }
}

/// Reads the folder and changes nothing.
pub(crate) fn recover(folder: &Folder, config: &AofConfig) -> Result<Recovered, AofError> {
    let mut names: Vec<FileName> = folder.list()?.iter().filter_map(|name| FileName::parse(name)).collect();
    names.sort_unstable();
    let mut recovery =
        Recovery { folder, config, out: Recovered::default(), found: Vec::new(), damaged: None, torn: None };
    for name in names {
        match name {
            FileName::Segment(id) => recovery.segment(id)?,
            FileName::Free(id) => recovery.leftover(id, free_file_name(id)),
        }
    }
    recovery.finish()
}

/// A segment with at least one group.
struct Found {
    range: SegmentRange,
    /// The start that its last group names.
    start: u64,
    /// How it ends, if that was found by scanning.
    scan: Option<Scan>,
}

struct Recovery<'a> {
    folder: &'a Folder,
    config: &'a AofConfig,
    out: Recovered,
    /// In order, without those that were cut whole.
    found: Vec<Found>,
    /// The last segment whose very first group is damaged, and what is wrong with it.
    damaged: Option<(u64, AofError)>,
    /// The last segment whose very first group never reached the disk whole.
    torn: Option<CutTail>,
}

impl Recovery<'_> {
    fn leftover(&mut self, id: u64, name: String) {
        self.out.next_id = self.out.next_id.max(id + 1);
        self.out.leftovers.push(name);
    }

    fn segment(&mut self, id: u64) -> Result<(), AofError> {
        self.out.next_id = self.out.next_id.max(id + 1);
        let file = self.folder.open(&segment_file_name(id), false)?;
        let header = self.header(id, &file)?;
        let length = file.length()?;
        let expected = self.found.last().map_or(self.config.first_sequence, |found| found.range.extent.end);
        if let Some(trailer) = read_trailer(&header, &file, length)? {
            if self.config.verify_sealed {
                self.verify(&header, file, &trailer)?;
            }
            self.add_sealed(&header, trailer);
            Ok(())
        } else if length < header.capacity {
            let dir = self.folder.dir.clone();
            Err(AofError::SegmentShortened { dir, segment: id, found: length, expected: header.capacity })
        } else {
            let scan = scan(&header, file, length, expected, self.config.index_interval_bytes)?;
            self.add_scanned(&header, scan);
            Ok(())
        }
    }

    fn header(&self, id: u64, file: &OpenFile) -> Result<SegmentHeader, AofError> {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        let read = file.read_at(&mut bytes, 0)?;
        let damaged = |found, expected| AofError::CorruptSegment {
            dir: self.folder.dir.clone(),
            segment: id,
            part: SegmentPart::Header,
            byte: 0,
            found,
            expected,
        };
        match SegmentHeader::decode(&bytes[..read]) {
            Ok(header) if header.key.id == id => Ok(header),
            // A whole header of another segment: the file has a wrong name.
            Ok(header) => Err(damaged(header.key.seed, 0)),
            Err(HeaderFault::Damaged(mismatch)) => Err(damaged(mismatch.found, mismatch.expected)),
            Err(HeaderFault::VersionTooNew(found)) => {
                let dir = self.folder.dir.clone();
                Err(AofError::VersionTooNew { dir, segment: id, found, newest: FORMAT_VERSION })
            }
        }
    }

    fn verify(&mut self, header: &SegmentHeader, file: OpenFile, trailer: &Trailer) -> Result<(), AofError> {
        let scan =
            scan(header, file, trailer.data_end, trailer.first_sequence, self.config.index_interval_bytes)?;
        let whole = (scan.extent.end, scan.extent.data_end) == (trailer.end_sequence, trailer.data_end);
        if !whole {
            return Err(corrupt(self.folder, header.key.id, &scan, trailer.data_end));
        }
        self.out.records_verified += trailer.end_sequence - trailer.first_sequence;
        Ok(())
    }

    fn corrupt(&self, segment: u64, scan: &Scan) -> AofError {
        corrupt(self.folder, segment, scan, scan.mark)
    }

    fn add_sealed(&mut self, header: &SegmentHeader, trailer: Trailer) {
        let extent = SegmentExtent {
            first: trailer.first_sequence,
            end: trailer.end_sequence,
            data_end: trailer.data_end,
        };
        let range =
            SegmentRange { segment: Segment::sealed(header, trailer), extent, end: extent.end, sealed: true };
        self.add(Found { range, start: trailer.start, scan: None });
    }

    fn add_scanned(&mut self, header: &SegmentHeader, mut scan: Scan) {
        let id = header.key.id;
        self.out.records_verified += scan.extent.end - scan.extent.first;
        if scan.used {
            let (extent, index) = (scan.extent, std::mem::take(&mut scan.index));
            let range = SegmentRange {
                segment: Segment::scanned(header, index),
                extent,
                end: extent.end,
                sealed: false,
            };
            self.add(Found { range, start: scan.start, scan: Some(scan) });
            return;
        }
        // Made ready and never needed, or torn or damaged at its first group.
        self.out.leftovers.push(segment_file_name(id));
        if scan.mark > scan.stop.offset {
            self.damaged = Some((id, self.corrupt(id, &scan)));
        } else if scan.torn {
            self.torn = Some(scan.cut_tail(id));
        }
    }

    /// Puts a segment behind the others, without those that it replaces whole.
    fn add(&mut self, added: Found) {
        let first = added.range.extent.first;
        while let Some(cut) = self.found.pop_if(|found| found.range.extent.first >= first) {
            self.out.leftovers.push(cut.range.segment.file_name());
        }
        self.found.push(added);
    }

    fn finish(mut self) -> Result<Recovered, AofError> {
        let last_id = self.found.last().map_or(0, |found| found.range.segment.key.id);
        if let Some((_, error)) = self.damaged.take_if(|(id, _)| *id > last_id) {
            return Err(error);
        }
        self.out.cut = self.torn.filter(|torn| torn.segment > last_id);
        let Some(last) = self.found.last() else {
            (self.out.start, self.out.end) = (self.config.first_sequence, self.config.first_sequence);
            return Ok(self.out);
        };
        if let Some(scan) = &last.scan {
            if scan.mark > scan.stop.offset {
                return Err(self.corrupt(last_id, scan));
            }
            self.out.cut = self.out.cut.or(scan.torn.then(|| scan.cut_tail(last_id)));
            self.out.unsynced = (!scan.is_settled()).then_some(scan.synced);
        }
        self.out.start = last.start;
        self.out.end = last.range.end.max(last.start);
        self.join()?;
        Ok(self.out)
    }

    /// Lets each segment end where the next begins, and drops what lies below the start.
    fn join(&mut self) -> Result<(), AofError> {
        let start = self.out.start;
        let mut next: Option<&SegmentRange> = None;
        let mut kept = 0;
        for found in self.found.iter_mut().rev() {
            let range = &mut found.range;
            let Some(after) = next else {
                (next, kept) = (Some(&*range), kept + 1);
                continue;
            };
            let (from, to) = (range.extent.end, after.extent.first);
            if to <= start {
                break;
            }
            if from < to {
                // A segment is synced before the next is begun: what it lacks was damaged, or a file is gone.
                let (dir, segment) = (self.folder.dir.clone(), after.segment.key.id);
                let (id, scan) = (range.segment.key.id, found.scan.as_ref());
                let damaged = self.damaged.take().filter(|(other, _)| (id..segment).contains(other));
                let stopped =
                    scan.map(|scan| corrupt(self.folder, id, scan, scan.mark.max(scan.stop.offset + 1)));
                let missing = AofError::Missing { dir, from, to, segment };
                return Err(damaged.map(|(_, error)| error).or(stopped).unwrap_or(missing));
            }
            range.end = to;
            (next, kept) = (Some(&*range), kept + 1);
        }
        if let Some(first) = next.filter(|first| first.extent.first > start) {
            let (dir, to, segment) = (self.folder.dir.clone(), first.extent.first, first.segment.key.id);
            return Err(AofError::Missing { dir, from: start, to, segment });
        }
        let unneeded = self.found.len() - kept;
        self.out.leftovers.extend(self.found.drain(..unneeded).map(|found| found.range.segment.file_name()));
        self.out.ranges = self.found.drain(..).map(|found| found.range).collect();
        Ok(())
    }
}

fn corrupt(folder: &Folder, segment: u64, scan: &Scan, synced: u64) -> AofError {
    AofError::Corrupt {
        dir: folder.dir.clone(),
        segment,
        record: scan.stop.sequence,
        byte: scan.stop.offset,
        found: scan.stop.mismatch.found,
        expected: scan.stop.mismatch.expected,
        synced,
    }
}

fn read_trailer(header: &SegmentHeader, file: &OpenFile, length: u64) -> Result<Option<Trailer>, AofError> {
    let Some(offset) = length.checked_sub(TRAILER_BYTES as u64).filter(|offset| *offset >= DATA_START) else {
        return Ok(None);
    };
    let mut bytes = [0; TRAILER_BYTES];
    let read = file.read_at(&mut bytes, offset)?;
    Ok(Trailer::decode(&bytes[..read], &header.key, length).ok())
}
