//! The ids of dropped partitions, as ranges: they are never given out again (EPOCH-1).

use std::collections::BTreeMap;

use crate::ids::{PartitionId, PartitionRange};

/// A set of partition ids kept as the fewest ranges that hold it, so equal sets have equal forms.
///
/// It stays small: between two ranges lies at least one partition that still exists or was never used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct RetiredIds {
    /// First id to last id of each range; no two overlap or touch.
    ranges: BTreeMap<u32, u32>,
}

impl RetiredIds {
    pub(super) fn contains(&self, partition_id: PartitionId) -> bool {
        self.ranges.range(..=partition_id.0).next_back().is_some_and(|(_, last)| partition_id.0 <= *last)
    }

    /// Adds a range of which no id is in the set.
    pub(super) fn insert(&mut self, range: PartitionRange) {
        let (mut first, mut last) = (range.first().0, range.last().0);
        if let Some((&before, &end)) = self.ranges.range(..first).next_back() {
            assert!(end < first, "EPOCH-1: partition {first} was retired twice");
            if end + 1 == first {
                first = before;
            }
        }
        if let Some((&start, &end)) = self.ranges.range(range.first().0..).next() {
            assert!(start > last, "EPOCH-1: partition {start} was retired twice");
            if start == last + 1 {
                self.ranges.remove(&start);
                last = end;
            }
        }
        self.ranges.insert(first, last);
    }

    /// Takes back an [`insert`](Self::insert): every id of the range is in the set.
    pub(super) fn remove(&mut self, range: PartitionRange) {
        let (&first, &last) = self
            .ranges
            .range(..=range.first().0)
            .next_back()
            .expect("a range is taken back only after it was inserted");
        assert!(last >= range.last().0, "a range is taken back only after it was inserted");
        self.ranges.remove(&first);
        if first < range.first().0 {
            self.ranges.insert(first, range.first().0 - 1);
        }
        if last > range.last().0 {
            self.ranges.insert(range.last().0 + 1, last);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = PartitionRange> {
        self.ranges.iter().map(|(first, last)| {
            PartitionRange::new(PartitionId(*first), PartitionId(*last))
                .expect("a range ends after it starts")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u32, last: u32) -> PartitionRange {
        PartitionRange::new(PartitionId(first), PartitionId(last)).unwrap()
    }

    #[test]
    fn neighbouring_ranges_become_one_in_any_order() {
        let mut forwards = RetiredIds::default();
        let mut backwards = RetiredIds::default();
        let parts = [range(0, 3), range(4, 4), range(5, 9), range(u32::MAX, u32::MAX)];
        parts.iter().for_each(|part| forwards.insert(*part));
        parts.iter().rev().for_each(|part| backwards.insert(*part));
        assert_eq!(forwards, backwards);
        assert_eq!(forwards.iter().collect::<Vec<_>>(), [range(0, 9), range(u32::MAX, u32::MAX)]);
        for (id, inside) in [(0, true), (9, true), (10, false), (u32::MAX - 1, false), (u32::MAX, true)] {
            assert_eq!(forwards.contains(PartitionId(id)), inside, "{id}");
        }
    }

    #[test]
    fn removing_an_inserted_range_restores_the_set_before_it() {
        let mut ids = RetiredIds::default();
        ids.insert(range(0, 3));
        ids.insert(range(8, 9));
        let before = ids.clone();
        ids.insert(range(4, 7));
        assert_eq!(ids.iter().collect::<Vec<_>>(), [range(0, 9)]);
        ids.remove(range(4, 7));
        assert_eq!(ids, before);
    }
}
