//! How many partitions fit into a node's memory, whichever they are: as many of the smallest as it takes.

use super::constraints::PartitionMemory;
use crate::ids::PartitionId;

/// What the partitions of a plan take.
pub(super) enum Sizes {
    /// All the same; 0 if memory sets no limit.
    Same(u64),
    /// How many take nothing, and what the smallest others take together: one of them, two, three, ...
    Sums(u32, Vec<u128>),
}

impl Sizes {
    /// The sizes of these partitions.
    pub(super) fn of(memory: &PartitionMemory, partitions: &[PartitionId]) -> Self {
        match memory {
            PartitionMemory::Map(_) => Self::of_each(partitions.iter().map(|id| memory.bytes(*id)).collect()),
            _ => Self::of_count(memory, partitions.len() as u32),
        }
    }

    /// The sizes of partitions of which only the number is known: those that a map names are taken to be among them.
    pub(super) fn of_count(memory: &PartitionMemory, partitions: u32) -> Self {
        match memory {
            PartitionMemory::None => Sizes::Same(0),
            PartitionMemory::One(bytes) => Sizes::Same(*bytes),
            PartitionMemory::Map(map) => {
                let named = u32::try_from(map.len()).unwrap_or(u32::MAX);
                Self::summed(partitions.saturating_sub(named), map.values().copied().collect())
            }
        }
    }

    /// The size of each partition.
    pub(super) fn of_each(sizes: Vec<u64>) -> Self {
        Self::summed(0, sizes)
    }

    fn summed(empty: u32, mut sizes: Vec<u64>) -> Self {
        sizes.sort_unstable();
        let mut sum = 0;
        let sums = sizes.into_iter().map(|bytes| {
            sum += u128::from(bytes);
            sum
        });
        Sizes::Sums(empty, sums.collect())
    }

    /// How many partitions fit into `limit` bytes at most.
    pub(super) fn fitting(&self, limit: u64) -> u32 {
        let narrow = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        match self {
            Sizes::Same(bytes) => narrow(limit.checked_div(*bytes).unwrap_or(u64::MAX)),
            Sizes::Sums(empty, sums) => {
                let fitting = sums.partition_point(|sum| *sum <= u128::from(limit));
                empty.saturating_add(narrow(fitting as u64))
            }
        }
    }
}
