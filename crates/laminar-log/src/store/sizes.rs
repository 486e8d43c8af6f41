//! How many bytes of the files entries take, by stretches of the log: enough to tell when a snapshot is worth its while,
//! and what may go after it.

use std::collections::VecDeque;

/// A stretch ends with the entry that brings it to so many bytes.
const STRETCH_BYTES: u64 = 64 << 10;
/// What an entry takes in the files beside its payload, about.
const HEADER_BYTES: u64 = 64;

/// Entries that follow each other.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    /// The index of the first.
    first: u64,
    /// The bytes of all entries before it, also of those that are gone.
    begin: u64,
}

/// The bytes of all entries of the log. What is taken back stays in the files until it is purged, and counts until then.
#[derive(Debug, Clone, Default)]
pub(super) struct Sizes {
    stretches: VecDeque<Stretch>,
    end: u64,
}

impl Sizes {
    pub(super) fn push(&mut self, index: u64, payload_bytes: u64) {
        if self.stretches.back().is_none_or(|last| self.end - last.begin >= STRETCH_BYTES) {
            self.stretches.push_back(Stretch { first: index, begin: self.end });
        }
        self.end += HEADER_BYTES + payload_bytes;
    }

    /// Takes away the entries from `from` on.
    pub(super) fn truncate(&mut self, from: u64) {
        while self.stretches.back().is_some_and(|last| last.first >= from) {
            self.stretches.pop_back();
        }
    }

    /// Takes away the entries before `before`.
    pub(super) fn purge(&mut self, before: u64) {
        while self.stretches.get(1).is_some_and(|second| second.first <= before) {
            self.stretches.pop_front();
        }
    }

    /// Where the first stretch begins that has only entries after this one.
    fn begin_after(&self, index: u64) -> u64 {
        let behind = self.stretches.partition_point(|stretch| stretch.first <= index);
        self.stretches.get(behind).map_or(self.end, |stretch| stretch.begin)
    }

    /// The bytes of the entries after one and up to another, but for a part of a stretch at both ends.
    pub(super) fn between(&self, after: u64, through: u64) -> u64 {
        self.begin_after(through).saturating_sub(self.begin_after(after))
    }

    /// The last entry up to `through` behind which there are no more than `kept_bytes` up to there; none if all of them
    /// are no more.
    pub(super) fn before_last(&self, through: u64, kept_bytes: u64) -> Option<u64> {
        let from = self.begin_after(through).checked_sub(kept_bytes)?;
        match self.stretches.partition_point(|stretch| stretch.begin < from) {
            0 => None,
            kept => Some(self.stretches.get(kept).map_or(through, |kept| through.min(kept.first - 1))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Entries of a mebibyte, each a stretch of its own.
    fn large(indices: std::ops::Range<u64>) -> Sizes {
        let mut sizes = Sizes::default();
        indices.for_each(|index| sizes.push(index, MIB - HEADER_BYTES));
        sizes
    }

    #[test]
    fn bytes_between_entries_are_counted_also_behind_a_purge_and_a_truncation() {
        let mut sizes = large(1..11);
        assert_eq!(
            (sizes.between(0, 10), sizes.between(4, 10), sizes.between(4, 6)),
            (10 * MIB, 6 * MIB, 2 * MIB)
        );
        assert_eq!((sizes.between(10, 10), sizes.between(10, 4)), (0, 0));
        sizes.purge(4);
        assert_eq!(sizes.between(5, 10), 5 * MIB);
        // What was taken back is still in the files.
        sizes.truncate(8);
        sizes.push(8, MIB - HEADER_BYTES);
        assert_eq!(sizes.between(5, 8), 6 * MIB);
        sizes.purge(100);
        sizes.push(100, 0);
        assert_eq!(sizes.between(100, 100), 0);
    }

    #[test]
    fn small_entries_share_a_stretch_and_are_counted_too() {
        let mut sizes = Sizes::default();
        (1..=100_000).for_each(|index| sizes.push(index, 0));
        let all = 100_000 * HEADER_BYTES;
        let counted = sizes.between(0, 100_000);
        assert!(counted <= all && counted + STRETCH_BYTES > all, "{counted} of {all}");
        assert!(sizes.stretches.len() as u64 <= all / STRETCH_BYTES + 1);
    }

    #[test]
    fn what_may_go_leaves_no_more_than_is_to_be_kept() {
        let sizes = large(1..11);
        assert_eq!(sizes.before_last(10, 3 * MIB), Some(7));
        assert_eq!(sizes.before_last(6, 3 * MIB), Some(3));
        // An entry that would be more than may be kept goes.
        assert_eq!((sizes.before_last(6, MIB - 1), sizes.before_last(6, 0)), (Some(6), Some(6)));
        assert_eq!((sizes.before_last(10, 10 * MIB), sizes.before_last(10, u64::MAX)), (None, None));
        assert_eq!(Sizes::default().before_last(10, 0), None);
        let mut small = Sizes::default();
        (1..=5).for_each(|index| small.push(index, 10));
        assert_eq!((small.before_last(5, 0), small.before_last(5, 5 * 74)), (Some(5), None));
        // What of it is behind entry 3 is not known, and nothing may go that a snapshot lacks.
        assert_eq!(small.before_last(3, 0), Some(3));
    }
}
