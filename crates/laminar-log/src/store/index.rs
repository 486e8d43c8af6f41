//! Where in the files each entry is, in few bytes: entries of one term, written one after the other, are one run.

use std::collections::VecDeque;
use std::ops::Range;

use crate::log_id::LogId;

/// Entries of one term that follow each other in the log and in the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// The index of the first.
    pub(super) first: u64,
    /// Its sequence in the files.
    pub(super) sequence: u64,
    pub(super) count: u64,
    pub(super) term: u64,
}

impl Run {
    fn end(&self) -> u64 {
        self.first + self.count
    }

    fn last_id(&self) -> LogId {
        LogId::new(self.term, self.end() - 1)
    }

    /// The part of it within `range`.
    fn within(&self, range: &Range<u64>) -> Option<Run> {
        let (begin, end) = (self.first.max(range.start), self.end().min(range.end));
        (begin < end).then(|| Run {
            first: begin,
            sequence: self.sequence + (begin - self.first),
            count: end - begin,
            term: self.term,
        })
    }
}

/// All entries of the log. Later entries have higher sequences.
#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    runs: VecDeque<Run>,
}

impl Index {
    pub(super) fn first(&self) -> Option<u64> {
        self.runs.front().map(|run| run.first)
    }

    pub(super) fn first_sequence(&self) -> Option<u64> {
        self.runs.front().map(|run| run.sequence)
    }

    pub(super) fn last(&self) -> Option<LogId> {
        self.runs.back().map(Run::last_id)
    }

    /// Indices that have an entry.
    pub(super) fn range(&self) -> Range<u64> {
        match (self.runs.front(), self.runs.back()) {
            (Some(front), Some(back)) => front.first..back.end(),
            _ => 0..0,
        }
    }

    pub(super) fn push(&mut self, id: LogId, sequence: u64) {
        if let Some(last) = self.runs.back_mut() {
            assert!(last.end() == id.index.0, "entries are consecutive");
            if last.term == id.term && last.sequence + last.count == sequence {
                last.count += 1;
                return;
            }
        }
        self.runs.push_back(Run { first: id.index.0, sequence, count: 1, term: id.term });
    }

    /// Takes away the entries from `from` on.
    pub(super) fn truncate(&mut self, from: u64) {
        while let Some(last) = self.runs.back_mut() {
            if last.end() <= from {
                return;
            }
            if last.first < from {
                last.count = from - last.first;
                return;
            }
            self.runs.pop_back();
        }
    }

    /// Takes away the entries before `before`.
    pub(super) fn purge(&mut self, before: u64) {
        while let Some(front) = self.runs.front_mut() {
            if let Some(kept) = front.within(&(before..u64::MAX)) {
                *front = kept;
                return;
            }
            self.runs.pop_front();
        }
    }

    fn position(&self, index: u64) -> usize {
        self.runs.partition_point(|run| run.end() <= index)
    }

    pub(super) fn id(&self, index: u64) -> Option<LogId> {
        let run = self.runs.get(self.position(index))?;
        (run.first <= index).then(|| LogId::new(run.term, index))
    }

    /// The stretches of the files that hold these entries.
    pub(super) fn runs(&self, range: Range<u64>) -> Vec<Run> {
        let runs = self.runs.iter().skip(self.position(range.start));
        runs.map_while(|run| run.within(&range)).collect()
    }

    /// The last entry before this sequence of the files.
    pub(super) fn last_before(&self, sequence: u64) -> Option<LogId> {
        let runs = self.runs.partition_point(|run| run.sequence < sequence);
        let run = self.runs.get(runs.checked_sub(1)?)?;
        let count = run.count.min(sequence - run.sequence);
        Some(LogId::new(run.term, run.first + count - 1))
    }

    /// The last entry of each term, of those in `range`.
    pub(super) fn last_of_terms(&self, range: Range<u64>) -> Vec<LogId> {
        let mut ids: Vec<LogId> = Vec::new();
        for run in self.runs(range) {
            match ids.last_mut() {
                Some(last) if last.term == run.term => *last = run.last_id(),
                _ => ids.push(run.last_id()),
            }
        }
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(entries: &[(u64, u64, u64)]) -> Index {
        let mut index = Index::default();
        for (term, at, sequence) in entries {
            index.push(LogId::new(*term, *at), *sequence);
        }
        index
    }

    #[test]
    fn runs_are_found_cut_and_joined() {
        let mut index = index(&[(1, 5, 10), (1, 6, 11), (1, 7, 13), (2, 8, 14), (2, 9, 15), (2, 10, 16)]);
        assert_eq!((index.runs.len(), index.range(), index.first_sequence()), (3, 5..11, Some(10)));
        assert_eq!(index.id(7), Some(LogId::new(1, 7)));
        assert_eq!((index.id(4), index.id(11)), (None, None));
        let found = index.runs(6..9);
        assert_eq!(
            found.iter().map(|run| (run.first, run.sequence, run.count)).collect::<Vec<_>>(),
            [(6, 11, 1), (7, 13, 1), (8, 14, 1)]
        );
        assert_eq!(index.last_before(10), None);
        assert_eq!(index.last_before(12), Some(LogId::new(1, 6)));
        assert_eq!(index.last_before(15), Some(LogId::new(2, 8)));
        assert_eq!(index.last_before(99), Some(LogId::new(2, 10)));
        assert_eq!(index.last_of_terms(5..10), [LogId::new(1, 7), LogId::new(2, 9)]);
        index.purge(6);
        index.truncate(9);
        assert_eq!((index.range(), index.last()), (6..9, Some(LogId::new(2, 8))));
        index.truncate(0);
        assert_eq!((index.range(), index.last(), index.first()), (0..0, None, None));
    }

    #[test]
    fn purging_everything_leaves_nothing() {
        let mut index = index(&[(1, 0, 0), (3, 1, 1)]);
        index.purge(2);
        assert_eq!((index.range(), index.last_before(9)), (0..0, None));
    }
}
