//! The ids of destroyed partitions, as ranges: they are never used again (EPOCH-1).

use std::collections::BTreeMap;

use laminar_core::ids::PartitionId;

/// A set of partition ids kept as the fewest ranges that hold it, so equal sets have equal forms.
///
/// It stays small: between two ranges lies at least one partition that exists or was never used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Tombstones {
    /// First id to last id of each range; no two overlap or touch.
    ranges: BTreeMap<u32, u32>,
    count: u64,
}

impl Tombstones {
    pub(super) fn contains(&self, partition: PartitionId) -> bool {
        self.ranges.range(..=partition.0).next_back().is_some_and(|(_, last)| partition.0 <= *last)
    }

    /// Adds an id. Nothing happens if it is there.
    pub(super) fn insert(&mut self, partition: PartitionId) {
        if self.contains(partition) {
            return;
        }
        let (mut first, mut last) = (partition.0, partition.0);
        let before = self.ranges.range(..first).next_back().map(|(first, last)| (*first, *last));
        if let Some((before, _)) = before.filter(|(_, end)| end.checked_add(1) == Some(first)) {
            first = before;
        }
        let behind = last.checked_add(1).and_then(|next| self.ranges.remove(&next));
        last = behind.unwrap_or(last);
        self.ranges.insert(first, last);
        self.count += 1;
    }

    /// Takes an id out again. Nothing happens if it is not there.
    pub(super) fn remove(&mut self, partition: PartitionId) {
        let id = partition.0;
        let range = self.ranges.range(..=id).next_back().map(|(first, last)| (*first, *last));
        let Some((first, last)) = range.filter(|(_, last)| id <= *last) else {
            return;
        };
        self.ranges.remove(&first);
        if first < id {
            self.ranges.insert(first, id - 1);
        }
        if id < last {
            self.ranges.insert(id + 1, last);
        }
        self.count -= 1;
    }

    /// Adds a range behind all there are, with a gap before it; else it is not added.
    #[must_use]
    pub(super) fn push_range(&mut self, first: u32, last: u32) -> bool {
        let follows = match self.ranges.last_key_value() {
            None => true,
            Some((_, end)) => end.checked_add(1).is_some_and(|touching| touching < first),
        };
        if !follows || last < first {
            return false;
        }
        self.ranges.insert(first, last);
        self.count += u64::from(last - first) + 1;
        true
    }

    /// First and last id of each range, in order.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.ranges.iter().map(|(first, last)| (*first, *last))
    }

    /// How many ids.
    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn of(ids: &[u32]) -> Tombstones {
        let mut tombstones = Tombstones::default();
        ids.iter().for_each(|id| tombstones.insert(PartitionId(*id)));
        tombstones
    }

    #[test]
    fn neighbours_become_one_range_also_at_both_ends_of_the_ids() {
        let tombstones = of(&[0, 2, 1, u32::MAX, u32::MAX - 1, 7, 7]);
        let ranges: Vec<_> = tombstones.ranges().collect();
        assert_eq!(ranges, [(0, 2), (7, 7), (u32::MAX - 1, u32::MAX)]);
        assert_eq!(tombstones.count(), 6);
        for (id, inside) in [(0, true), (2, true), (3, false), (8, false), (u32::MAX, true)] {
            assert_eq!(tombstones.contains(PartitionId(id)), inside, "{id}");
        }
    }

    #[test]
    fn only_ranges_that_follow_with_a_gap_are_pushed() {
        let mut tombstones = Tombstones::default();
        assert!(tombstones.push_range(3, 5));
        for (first, last) in [(0, 1), (5, 6), (6, 6), (8, 7)] {
            assert!(!tombstones.push_range(first, last), "{first} to {last}");
        }
        assert!(tombstones.push_range(7, u32::MAX));
        assert!(!tombstones.push_range(0, 0));
        assert!(!tombstones.push_range(u32::MAX, u32::MAX));
        assert_eq!(tombstones.count(), 3 + u64::from(u32::MAX) - 6);
    }

    proptest! {
        #[test]
        fn they_are_the_set_of_their_ids(steps in vec((any::<bool>(), 0..24_u32), 0..60)) {
            let (mut tombstones, mut set) = (Tombstones::default(), BTreeSet::new());
            for (insert, id) in steps {
                if insert {
                    tombstones.insert(PartitionId(id));
                    set.insert(id);
                } else {
                    tombstones.remove(PartitionId(id));
                    set.remove(&id);
                }
                let held: Vec<_> = (0..30).filter(|id| tombstones.contains(PartitionId(*id))).collect();
                prop_assert_eq!(&held, &set.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(&tombstones, &of(&held));
                prop_assert_eq!(tombstones.count(), set.len() as u64);
            }
        }
    }
}
