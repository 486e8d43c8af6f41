//! What a log has in memory: where its records are, what waits to be written, and whether it still works.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::AofError;
use crate::recover::SegmentRange;
use crate::ticket::Completion;

/// Something asked of a log, in the order it was asked.
#[derive(Debug)]
pub(crate) enum Op {
    /// Records, the first with this sequence, and the checksums of their payloads.
    Append { first: u64, records: Vec<Bytes>, crcs: Vec<u32> },
    /// Records from here on are gone; the next one has this sequence.
    Cut { from: u64 },
    /// The log keeps records from here on only.
    Front { before: u64 },
    /// Everything before is to be synced now.
    Sync,
}

/// Where a record is.
#[derive(Debug)]
pub(crate) enum Place {
    /// Not written yet, or being written: the records from the wanted one on.
    Memory(Vec<Bytes>),
    /// In a segment; records below `end` may be read from it.
    File { range: SegmentRange, end: u64 },
}

/// What the committer writes next.
pub(crate) struct Taken {
    pub(crate) ops: Arc<Vec<Op>>,
    /// To be told when all of it is on disk.
    pub(crate) completion: Arc<Completion>,
    pub(crate) load: Load,
}

/// How much waits, or waited.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Load {
    pub(crate) appends: usize,
    pub(crate) bytes: u64,
}

pub(crate) struct State {
    pub(crate) ranges: Vec<SegmentRange>,
    pub(crate) pending: Vec<Op>,
    /// What the committer is writing; readable until it is in a file.
    pub(crate) writing: Arc<Vec<Op>>,
    pub(crate) pending_bytes: u64,
    /// Appends that wait, whatever their size.
    pub(crate) pending_appends: usize,
    /// The first sequence the log keeps.
    pub(crate) start: u64,
    /// The sequence of the next record.
    pub(crate) next: u64,
    /// Records below this are known to be on disk.
    pub(crate) synced: u64,
    /// How often records were taken back; a reader that sees it change looks again where its records are.
    pub(crate) cuts: u64,
    pub(crate) completion: Arc<Completion>,
    pub(crate) failed: Option<AofError>,
    pub(crate) writable: bool,
    /// Whether the lane knows that something is pending.
    pub(crate) queued: bool,
    /// Threads that sleep until less is pending.
    pub(crate) sleeping: usize,
}

impl State {
    /// Where the record is. Memory goes first: what stands there was asked for last.
    pub(crate) fn place(&self, sequence: u64, records_max: usize) -> Result<Place, AofError> {
        if !(self.start..self.next).contains(&sequence) {
            return Err(AofError::OutOfRange { sequence, first: self.start, end: self.next });
        }
        // Records from here on stand in what was asked for later.
        let mut end = self.next;
        for op in self.pending.iter().rev().chain(self.writing.iter().rev()) {
            match op {
                Op::Append { first, records, .. }
                    if *first <= sequence && sequence - first < records.len() as u64 =>
                {
                    let (begin, visible) =
                        ((sequence - first) as usize, (end - first).min(records.len() as u64));
                    let records = &records[begin..visible as usize];
                    return Ok(Place::Memory(records[..records.len().min(records_max)].to_vec()));
                }
                Op::Cut { from } => end = end.min(*from),
                _ => {}
            }
        }
        let after = self.ranges.partition_point(|range| range.extent.first <= sequence);
        let range = self.ranges
            [after.checked_sub(1).expect("what is in the log is in memory or in a segment")]
        .clone();
        assert!(sequence < range.end, "record {sequence} is in the log and in none of its segments");
        Ok(Place::File { end: range.end.min(end), range })
    }

    /// The sequence after the last record in a segment.
    pub(crate) fn written_end(&self) -> u64 {
        self.ranges.last().map_or(self.start, |range| range.end)
    }

    /// Adds records to what waits, and gives them their sequences.
    pub(crate) fn push_records(&mut self, mut added: Vec<Bytes>, mut added_crcs: Vec<u32>, bytes: u64) {
        let count = added.len() as u64;
        match self.pending.last_mut() {
            Some(Op::Append { records, crcs, .. }) => {
                records.append(&mut added);
                crcs.append(&mut added_crcs);
            }
            _ => self.pending.push(Op::Append { first: self.next, records: added, crcs: added_crcs }),
        }
        self.next += count;
        self.pending_bytes += bytes;
        self.pending_appends += 1;
    }

    /// Hands what waits to the committer.
    pub(crate) fn take(&mut self) -> Option<Taken> {
        self.queued = false;
        if self.pending.is_empty() {
            return None;
        }
        self.writing = Arc::new(std::mem::take(&mut self.pending));
        Some(Taken {
            ops: Arc::clone(&self.writing),
            completion: std::mem::take(&mut self.completion),
            load: Load {
                appends: std::mem::take(&mut self.pending_appends),
                bytes: std::mem::take(&mut self.pending_bytes),
            },
        })
    }

    /// Everything written so far, up to `sequence`, is on disk. Records that were taken back meanwhile, and written
    /// anew or not at all, are not.
    pub(crate) fn set_synced(&mut self, sequence: u64) {
        let cut = |op: &Op| if let Op::Cut { from } = op { Some(*from) } else { None };
        let cuts = self.pending.iter().chain(self.writing.iter()).filter_map(cut);
        self.synced = cuts.fold(sequence, u64::min).min(self.next);
    }

    /// Stops the log: what is not known to be on disk is neither acknowledged nor read any more (LOG-6).
    pub(crate) fn fail(&mut self, error: AofError) -> (Arc<Completion>, Load) {
        self.failed = Some(error);
        self.pending.clear();
        self.writing = Arc::default();
        self.next = self.next.min(self.synced).max(self.start);
        let load = Load {
            appends: std::mem::take(&mut self.pending_appends),
            bytes: std::mem::take(&mut self.pending_bytes),
        };
        (std::mem::take(&mut self.completion), load)
    }
}
