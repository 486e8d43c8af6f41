//! The furthest index up to which there are no more than so many bytes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use laminar_core::ids::LogIndex;

use super::{Edge, Span};
use crate::entry::{Change, Payload};
use crate::error::LogError;
use crate::log_id::PartitionLogIndex;

/// What is read of a partition at once: so many records, at first few and then more, or about so many bytes. Nothing
/// but a few numbers of each is kept, because there may be thousands of partitions.
const AHEAD_RECORDS_FIRST: usize = 16;
const AHEAD_RECORDS_MAX: usize = 256;
const AHEAD_BYTES: u64 = 64 << 10;

/// How far the bytes go.
pub(super) struct Summed {
    pub(super) index: LogIndex,
    pub(super) bytes: u64,
}

/// Moves the upper edges of the spans to the index. `firsts` are their first records, and `at` is where the edges are.
pub(super) fn furthest(
    spans: &mut [&mut Span<'_>],
    firsts: &[Edge],
    at: LogIndex,
    bytes_max: u64,
) -> Result<Summed, LogError> {
    let mut queues: Vec<Queue> =
        spans.iter().zip(firsts).map(|(span, first)| Queue::new(span, *first)).collect();
    let mut next = BinaryHeap::new();
    for (number, span) in spans.iter().enumerate() {
        let first = queues[number].peek(span)?;
        next.extend(first.map(|first| Reverse((first.entry, number))));
    }
    let mut bytes: Option<u64> = None;
    while let Some(Reverse((entry, _))) = next.peek().copied() {
        let mut commit = 0_u64;
        let mut moved = Vec::new();
        while let Some(Reverse((of, number))) = next.peek().copied()
            && of == entry
        {
            next.pop();
            while let Some(record) =
                queues[number].peek(spans[number])?.filter(|record| record.entry == entry)
            {
                commit = commit.saturating_add(record.bytes);
                queues[number].ahead.pop_front();
                moved.push((number, record.end));
            }
            let after = queues[number].peek(spans[number])?;
            next.extend(after.map(|after| Reverse((after.entry, number))));
        }
        let sum = bytes.unwrap_or(0).saturating_add(commit);
        if bytes.is_some() && sum > bytes_max {
            end_before(spans, &queues);
            return Ok(Summed { index: LogIndex(entry.0 - 1), bytes: bytes.unwrap_or(0) });
        }
        bytes = Some(sum);
        for (number, end) in moved {
            queues[number].end = end;
        }
    }
    Ok(Summed { index: at, bytes: bytes.unwrap_or(0) })
}

/// Nothing behind what was summed belongs to the cut.
fn end_before(spans: &mut [&mut Span<'_>], queues: &[Queue]) {
    for (span, queue) in spans.iter_mut().zip(queues) {
        span.high.offset = queue.end;
    }
}

/// A record, as far as it matters.
#[derive(Debug, Clone, Copy)]
struct Counted {
    entry: LogIndex,
    /// The offset behind its last row.
    end: u64,
    bytes: u64,
}

/// The records of a partition that come next.
struct Queue {
    ahead: VecDeque<Counted>,
    place: PartitionLogIndex,
    /// How many records are read next.
    records: usize,
    /// The offset behind the last row that belongs to the cut.
    end: u64,
}

impl Queue {
    fn new(span: &Span<'_>, first: Edge) -> Self {
        Self { ahead: VecDeque::new(), place: first.place, records: AHEAD_RECORDS_FIRST, end: span.begin }
    }

    fn peek(&mut self, span: &Span<'_>) -> Result<Option<Counted>, LogError> {
        while self.ahead.is_empty() && self.place < span.high.place {
            self.fill(span)?;
        }
        Ok(self.ahead.front().copied())
    }

    fn fill(&mut self, span: &Span<'_>) -> Result<(), LogError> {
        let mut reader = span.log.short_reader(self.place);
        let records_max = self.records;
        self.records = (records_max * 2).min(AHEAD_RECORDS_MAX);
        let (mut records, mut read) = (0, 0);
        while records < records_max && read < AHEAD_BYTES && self.place < span.high.place {
            let Some(record) = reader.next()? else {
                // The caller says that everything up to the edge is there.
                self.place = span.high.place;
                return Ok(());
            };
            self.place = record.index.next();
            records += 1;
            let Change::Append(append) = &record.record.change else { continue };
            let end = record.first_offset + u64::from(append.rows);
            let bytes = match &append.payload {
                Payload::Inline(bytes) => {
                    read += bytes.len() as u64;
                    bytes.len() as u64
                }
                Payload::Pointer(pointer) => pointer.length,
            };
            // The last edge may have been known by its offset only.
            if end > span.begin && end <= span.high.offset {
                self.ahead.push_back(Counted { entry: record.log_id.index, end, bytes });
            }
        }
        Ok(())
    }
}
