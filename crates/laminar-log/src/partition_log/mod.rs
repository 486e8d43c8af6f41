//! The log of one partition: every record that `apply` accepted for it, one file set in a folder of its own.
//!
//! ```text
//!  <root>/0000002a/       the log of partition 42: record n of the files is record n of the partition, from 1
//!  <root>/0000002a.dead   it is being destroyed; `clean_root` finishes that after a crash
//! ```
//!
//! It is written behind the segmented log and synced in the background: whatever a crash takes can be redone from
//! there. What is below [`synced_end`](PartitionLogStore::synced_end) need not be.
//!
//! 1. A worker stores accepted records with [`PartitionLogStore::append`] (`access.rs`), which refuses a gap (LOG-2).
//! 2. Records are read by place (`access.rs`), in order (`reader.rs`), or found by offset and time (`search.rs`).
//! 3. [`PartitionLogStore::trim`] and [`PartitionLogStore::compact`] drop the oldest, but nothing that is pinned
//!    (`pins.rs`).
//! 4. The log is opened, reopened and emptied in `store.rs`; folders are listed and destroyed in `folder.rs`.

mod access;
mod folder;
mod inner;
mod pins;
mod reader;
mod search;
mod store;
mod tail;

use laminar_aof::{AofConfig, CutTail, Durability};

pub use folder::{clean_root, list_partitions, partition_folder, remove_partition};
pub use pins::RecordPin;
pub use reader::PartitionReader;
pub use store::PartitionLogStore;
pub(crate) use tail::rows;

use crate::format::StoredHeader;
use crate::log_id::PartitionLogIndex;

/// How the log of a partition is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionLogConfig {
    /// How long the file of a small log is made; from 65,536. Files grow with the log.
    pub segment_bytes_min: u64,
    /// How long the file of a large log is made; up to 4 GiB.
    pub segment_bytes_max: u64,
    /// The largest record, with its headers; up to 1 GiB.
    pub record_bytes_max: u64,
    /// What may wait to be written.
    pub pending_bytes_max: u64,
    /// Removed files of full size that are kept to be used again.
    pub recycled_files_max: u32,
    /// Verify every record when opening, also those that were known to be on disk.
    pub verify_all: bool,
    /// Places kept in memory to find offsets and times by, of 32 bytes each.
    pub points_max: u32,
}

impl Default for PartitionLogConfig {
    fn default() -> Self {
        Self {
            segment_bytes_min: 64 << 10,
            segment_bytes_max: 64 << 20,
            record_bytes_max: 16 << 20,
            pending_bytes_max: 32 << 20,
            recycled_files_max: 0,
            verify_all: false,
            points_max: 64,
        }
    }
}

impl PartitionLogConfig {
    fn files(&self) -> AofConfig {
        AofConfig {
            durability: Durability::Background,
            first_sequence: 1,
            segment_bytes_min: self.segment_bytes_min,
            segment_bytes_max: self.segment_bytes_max,
            record_bytes_max: self.record_bytes_max,
            pending_bytes_max: self.pending_bytes_max,
            recycled_files_max: self.recycled_files_max,
            verify_sealed: self.verify_all,
            ..AofConfig::default()
        }
    }
}

/// What opening a partition's log found. All of it is on disk, unless the log was opened to be read only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionOpened {
    /// The first record there is, or the place of the next one.
    pub first: PartitionLogIndex,
    /// The place of the next record.
    pub end: PartitionLogIndex,
    /// What `apply` gave the last record, if there is one.
    pub last: Option<StoredHeader>,
    /// Where something was cut that had never been synced.
    pub cut: Option<CutTail>,
    /// Records that were not known to be on disk, and were written once more and synced.
    pub records_rewritten: u64,
}
