//! The furthest consistent cut over some partitions that stays within limits.
//!
//! A cut is a global index: of each partition it has the rows that were accepted up to there, so it never has half of a
//! commit. Limits are kept in whole commits, as many as fit and at least one.
//!
//! 1. Rows up to an index follow from the headers of a few records, and only grow with the index: `rows.rs` searches for
//!    the index. That costs a few reads a partition, however many records there are.
//! 2. Bytes are in no header: `bytes.rs` adds commits up in their order, until the limit. That reads the records of the cut.

mod bytes;
mod rows;

use std::ops::Range;

use laminar_core::ids::LogIndex;

use crate::error::LogError;
use crate::format::StoredHeader;
use crate::log_id::PartitionLogIndex;
use crate::partition_log::PartitionLogStore;

/// When no more records of a partition are left to look at, they are read once: so many, and about so many bytes.
const WINDOW_RECORDS: u64 = 128;
const WINDOW_BYTES: usize = 128 << 10;

/// A partition, and from where on its rows count. Whoever asks pins its records.
#[derive(Debug)]
pub struct CutPart {
    /// Its log, which has every record up to the index of the cut.
    pub log: PartitionLogStore,
    /// The first row that counts; not below the first there is.
    pub begin: u64,
    /// Where the rows end at the index of the cut, if that is known.
    pub end: Option<u64>,
    /// The last record that it has applied: none up to the index of the cut comes later.
    pub last: PartitionLogIndex,
}

/// What a cut may hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CutLimits {
    /// The most rows.
    pub rows_max: Option<u64>,
    /// The most bytes of encoded rows, in the log and in staged blocks.
    pub bytes_max: Option<u64>,
}

/// How far to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The cut: everything up to this entry, and nothing behind it.
    pub index: LogIndex,
    /// Where each partition ends, in the order they were given; never below where it begins.
    pub ends: Vec<u64>,
    /// How many rows there are up to the ends.
    pub rows: u64,
    /// How many bytes they have; only counted if there is a limit.
    pub bytes: Option<u64>,
    /// Whether no row was left out.
    pub complete: bool,
}

/// The furthest cut up to `at`.
///
/// # Errors
///
/// Corrupt or unavailable, if a log cannot be read. Unavailable, if it lacks records that are stored again after a fault.
pub fn cut(parts: &[CutPart], at: LogIndex, limits: CutLimits) -> Result<Cut, LogError> {
    let mut spans = Vec::with_capacity(parts.len());
    for part in parts {
        spans.push(Span::new(part, at)?);
    }
    let all: u64 = spans.iter().map(Span::rows).sum();
    let mut cut = Cut { index: at, ends: ends(&spans), rows: all, bytes: None, complete: true };
    let over = limits.rows_max.is_some_and(|rows_max| all > rows_max);
    if !over && limits.bytes_max.is_none() {
        return Ok(cut);
    }
    let mut open = Vec::new();
    for span in spans.iter_mut().filter(|span| span.rows() > 0) {
        span.find_first()?;
        open.push(span);
    }
    let firsts: Vec<Edge> = open.iter().map(|span| span.low).collect();
    if let Some(rows_max) = limits.rows_max.filter(|_| over) {
        cut.index = rows::furthest(&mut open, at, rows_max)?;
    }
    let bytes = match limits.bytes_max {
        Some(bytes_max) => Some(bytes::furthest(&mut open, &firsts, cut.index, bytes_max)?),
        None => None,
    };
    if let Some(summed) = bytes {
        cut.bytes = Some(summed.bytes);
        cut.index = summed.index;
    }
    cut.ends = ends(&spans);
    cut.rows = spans.iter().map(Span::rows).sum();
    cut.complete = cut.rows == all;
    Ok(cut)
}

fn ends(spans: &[Span<'_>]) -> Vec<u64> {
    spans.iter().map(|span| span.begin + span.rows()).collect()
}

/// A record, as an end of what is looked at: the rows before it belong to it.
#[derive(Debug, Clone, Copy)]
struct Edge {
    place: PartitionLogIndex,
    /// The offset of its first row.
    offset: u64,
    /// The entry that it was accepted from; of no meaning behind the last record.
    entry: LogIndex,
}

impl From<StoredHeader> for Edge {
    fn from(header: StoredHeader) -> Self {
        Edge { place: header.index, offset: header.first_offset, entry: header.log_id.index }
    }
}

/// A partition while the cut is looked for.
struct Span<'a> {
    log: &'a PartitionLogStore,
    begin: u64,
    /// The first record behind the index that is known to fit.
    low: Edge,
    /// The first record behind the cut as far as it is known.
    high: Edge,
    /// The records between the edges, once they are few.
    window: Window,
}

enum Window {
    Closed,
    Open(Vec<Edge>),
    /// They have too many bytes to be read without need.
    Heavy,
}

impl<'a> Span<'a> {
    fn new(part: &'a CutPart, at: LogIndex) -> Result<Self, LogError> {
        let (place, offset) = match part.end {
            // Nothing behind it was accepted up to `at`.
            Some(end) => (part.log.stored_end(), end),
            None => part.log.end_at(at, part.last)?,
        };
        let high = Edge { place, offset, entry: LogIndex(u64::MAX) };
        Ok(Self { log: &part.log, begin: part.begin, low: high, high, window: Window::Closed })
    }

    /// The rows up to the cut.
    fn rows(&self) -> u64 {
        self.rows_before(self.high)
    }

    fn rows_before(&self, edge: Edge) -> u64 {
        edge.offset.saturating_sub(self.begin)
    }

    /// Looks for the record of the first row.
    fn find_first(&mut self) -> Result<(), LogError> {
        if let Some(header) = self.log.header_at(self.begin, PartitionLogIndex::NONE)? {
            self.low = Edge::from(header);
        }
        Ok(())
    }

    /// The first record behind an entry that lies between the two edges.
    fn edge(&mut self, entry: LogIndex) -> Result<Edge, LogError> {
        if self.low.place >= self.high.place || entry < self.low.entry {
            return Ok(self.low);
        }
        let within = self.low.place.next()..self.high.place;
        if matches!(self.window, Window::Closed) && within.end.0 - within.start.0 <= WINDOW_RECORDS {
            self.window = self.read_window(within.clone())?;
        }
        if let Window::Open(edges) = &self.window {
            let found = edges.partition_point(|edge| edge.entry <= entry);
            return Ok(edges.get(found).copied().unwrap_or(self.high));
        }
        let found = self.log.first_after(entry, within)?;
        Ok(found.map_or(self.high, Edge::from))
    }

    fn read_window(&self, within: Range<PartitionLogIndex>) -> Result<Window, LogError> {
        let mut reader = self.log.short_reader(within.start);
        let (mut edges, mut bytes) = (Vec::new(), 0);
        while reader.index() < within.end
            && let Some(record) = reader.next_stored()?
        {
            bytes += record.len();
            if bytes > WINDOW_BYTES {
                return Ok(Window::Heavy);
            }
            let header = StoredHeader::decode(&record);
            let bad = |source| LogError::BadStoredRecord {
                partition: self.log.partition(),
                index: reader.index(),
                source,
            };
            edges.push(Edge::from(header.map_err(bad)?));
        }
        Ok(Window::Open(edges))
    }
}
