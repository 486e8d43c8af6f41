//! Where rows landed.

use std::collections::BTreeMap;

/// What became of an append. It is on disk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Appended {
    /// The place of the entry in the data group's log; 0 if there was nothing to append.
    pub global_index: u64,
    /// It had landed before, and this is where.
    pub duplicate: bool,
    /// How many rows.
    pub rows: u64,
    /// First offset and count of rows, by partition of the stream.
    pub offsets: BTreeMap<u32, RowRange>,
}

/// Rows of one partition that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowRange {
    /// The offset of the first.
    pub first: u64,
    /// How many.
    pub rows: u64,
}

impl Appended {
    /// Adds rows that landed right behind those that are known of the partition.
    pub(crate) fn add(&mut self, partition: u32, first: u64, rows: u32) {
        let rows = u64::from(rows);
        self.rows += rows;
        let range = self.offsets.entry(partition).or_insert(RowRange { first, rows: 0 });
        range.first = range.first.min(first);
        range.rows += rows;
    }
}
