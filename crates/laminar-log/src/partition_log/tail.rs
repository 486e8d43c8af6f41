//! The end of a partition's log as memory has it, and a few places in between.

use std::ops::Range;

use crate::entry::{Change, PartitionRecord};
use crate::format::{FormatError, StoredHeader};
use crate::log_id::PartitionLogIndex;
use crate::verdict::AcceptedRecord;

/// How far apart the first places are that are kept.
const POINT_INTERVAL_MIN: u64 = 64;

/// What is known of the records without reading them.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// The place of the next record.
    pub(super) next: u64,
    /// The last record; none if the log is empty, or was emptied by a crash.
    pub(super) last: Option<LastRecord>,
    pub(super) points: Points,
}

/// The last record, and where the rows go on behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LastRecord {
    pub(super) header: StoredHeader,
    pub(super) next_offset: u64,
}

impl LastRecord {
    pub(super) fn of(record: &AcceptedRecord) -> Self {
        let AcceptedRecord { index, first_offset, log_id, time_ms, ref record } = *record;
        let header = StoredHeader { index, first_offset, log_id, time_ms };
        Self { header, next_offset: first_offset.saturating_add(rows(record)) }
    }

    /// Whether `next` may stand behind this record: its place, offset, entry and time go on from here (LOG-2, APPLY-2).
    pub(super) fn is_followed_by(&self, next: &AcceptedRecord) -> Result<(), FormatError> {
        let wrong = |what, at, found| Err(FormatError::Value { what, at, found });
        if next.index != self.header.index.next() {
            return wrong("index of a stored record", 8, next.index.0);
        }
        if next.first_offset != self.next_offset {
            return wrong("first offset of a stored record", 16, next.first_offset);
        }
        let (entry, before) = (next.log_id, self.header.log_id);
        if entry.term < before.term || entry.index < before.index {
            return wrong("raft index of a stored record", 32, entry.index.0);
        }
        if next.time_ms < self.header.time_ms {
            return wrong("time of a stored record", 40, next.time_ms);
        }
        Ok(())
    }
}

/// How many rows a record has.
pub(crate) fn rows(record: &PartitionRecord) -> u64 {
    match &record.change {
        Change::Append(append) => u64::from(append.rows),
        _ => 0,
    }
}

/// What a record is found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) index: u64,
    pub(super) first_offset: u64,
    pub(super) raft_index: u64,
    pub(super) time_ms: u64,
}

impl From<&StoredHeader> for Point {
    fn from(header: &StoredHeader) -> Self {
        Self {
            index: header.index.0,
            first_offset: header.first_offset,
            raft_index: header.log_id.index.0,
            time_ms: header.time_ms,
        }
    }
}

/// Some records of the log, in order. When there are too many, every second one is forgotten.
#[derive(Debug)]
pub(super) struct Points {
    points: Vec<Point>,
    interval: u64,
}

impl Default for Points {
    fn default() -> Self {
        Self { points: Vec::new(), interval: POINT_INTERVAL_MIN }
    }
}

impl Points {
    /// How far apart records are kept that are appended.
    pub(super) fn interval(&self) -> u64 {
        self.interval
    }

    /// The place from which on an appended record is to be kept.
    pub(super) fn next_at(&self) -> u64 {
        self.points.last().map_or(0, |last| last.index + self.interval)
    }

    /// Keeps a record, and of the others every second one if they are too many.
    pub(super) fn keep(&mut self, point: Point, max: usize) {
        if self.points.len() >= max {
            let mut number = 0;
            self.points.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.interval = self.interval.saturating_mul(2);
        }
        if self.points.len() < max
            && let Err(at) = self.points.binary_search_by_key(&point.index, |other| other.index)
        {
            self.points.insert(at, point);
        }
    }

    /// Forgets what is not in the log any more.
    pub(super) fn retain(&mut self, indices: &Range<u64>) {
        self.points.retain(|point| indices.contains(&point.index));
    }

    /// The smallest range of `indices` that is known to hold the first record that `before` does not say yes to; its
    /// end stands for that record being there or further on nothing being left.
    pub(super) fn bracket(&self, indices: &Range<u64>, before: impl Fn(&Point) -> bool) -> Range<u64> {
        let inside = |index: u64| index.clamp(indices.start, indices.end);
        let at = self.points.partition_point(before);
        let low = at.checked_sub(1).map_or(indices.start, |below| self.points[below].index + 1);
        let high = self.points.get(at).map_or(indices.end, |point| point.index);
        inside(low)..inside(high)
    }
}

/// The place as the log's files have it.
pub(super) fn index(sequence: u64) -> PartitionLogIndex {
    PartitionLogIndex(sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(index: u64) -> Point {
        Point { index, first_offset: index * 10, raft_index: index, time_ms: index }
    }

    #[test]
    fn points_stay_few_and_still_bracket_what_is_looked_for() {
        let mut points = Points::default();
        let mut kept = 0;
        for index in 1..100_000 {
            if index >= points.next_at() {
                points.keep(point(index), 16);
                kept += 1;
            }
            assert!(points.points.len() <= 16);
        }
        assert!(kept < 200, "{kept} points were kept on the way");
        let indices = 5..100_000;
        for wanted in [1, 5, 6, 777, 50_000, 99_999, 100_000, 200_000] {
            let within = points.bracket(&indices, |point| point.index < wanted);
            let first = wanted.clamp(5, 100_000);
            assert!(within.start <= first && first <= within.end, "{wanted}: {within:?}");
            assert!(within.end - within.start <= 2 * points.interval(), "{wanted}: {within:?}");
        }
        points.retain(&(60_000..u64::MAX));
        assert_eq!(points.bracket(&(60_000..100_000), |_| false).start, 60_000);
        assert!(points.points.iter().all(|point| point.index >= 60_000));
    }

    #[test]
    fn no_room_for_points_keeps_none() {
        let mut points = Points::default();
        (0..3).for_each(|index| points.keep(point(index), 0));
        assert_eq!(points.bracket(&(1..9), |_| true), 1..9);
    }
}
