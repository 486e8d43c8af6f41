//! Compacts a partition of a stream of keys: its rows become the newest one of each key, in few large parts.
//!
//! 1. `fold.rs` reads the rows from the start to the end E and keeps the newest operation of each key. Nothing is
//!    decoded: keys and values are bytes.
//! 2. `stage.rs` writes them in the order of their offsets into large parts. Nothing of it can be read.
//! 3. `commit.rs` appends the parts, on the condition that the partition still ends where it was looked at last. If it does
//!    not, the rows that came are looked at: keys that they name are taken out of the parts, and it is tried again.
//! 4. Whoever called trims the partition to E, at once or later.
//!
//! Why no value is lost, and none goes back:
//!
//! - An append of step 3 lands at an end X. Its rows are the newest before E, and their keys have no row from E to X. So each
//!   is the newest row of its key at X: the machine of keys sets what it has, and whoever follows sees nothing old.
//! - The condition is decided with the append, in the log. A writer that comes in between moves the end, and the append is
//!   refused as a whole.
//! - When all parts have landed, every key with a row before E has its newest row at or behind E, but for removed keys that
//!   were left out. So the trim loses nothing, however late it comes.
//! - A removed key is left out only together with all its rows: they are before E, and the trim takes a prefix, so its
//!   removal goes last.
//!
//! Whoever dies before step 3 leaves blocks that nothing names, which are collected. Whoever dies before step 4, or between
//! two appends of step 3, leaves rows twice: the later one is the newest, and the next compaction takes away the rest. Two
//! compactions at once find each other's rows as they find any writer's.

mod commit;
mod fold;
mod stage;

use std::time::Duration;

use bytes::Bytes;
use laminar_rpc::Failure;
use laminar_rpc::proto::TaskParts;

pub use commit::{CompactCommit, CompactOutcome};

use crate::chance;
use crate::description::StreamInfo;
use crate::stream::StreamHandle;
use crate::task::message;
use fold::Fold;

/// How a partition is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactOptions {
    /// The removal of a key stays while its record is younger, so that whoever folds the rows learns of it.
    pub keep_removed: Duration,
    /// How many bytes make a block; 32 MiB if none is named.
    pub block_bytes: Option<usize>,
}

/// The newest rows of a partition, staged and not committed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompactedRows {
    /// The rows, for [`StreamHandle::commit_compacted`].
    pub message: Bytes,
    /// The offset of the first row that was read.
    pub start: u64,
    /// The offset after the last: E.
    pub end: u64,
    /// Records that were read.
    pub records: u64,
    /// Rows that were read.
    pub rows: u64,
    /// Encoded bytes that were read.
    pub bytes: u64,
    /// Rows that are left.
    pub rows_kept: u64,
    /// Their encoded bytes.
    pub bytes_kept: u64,
    /// Removed keys that were left out.
    pub removed_dropped: u64,
    /// Nothing would be won: every row is the newest of its key, and they lie in few large parts. Nothing was staged.
    pub already_compact: bool,
}

impl StreamHandle {
    /// Reads the rows of a partition as they are now and stages the newest of each key. Nothing of it can be read before
    /// [`commit_compacted`](Self::commit_compacted).
    ///
    /// # Errors
    /// Invalid: the stream is not of keys. Corrupt: rows are not what was written. Unknown partition. Unavailable.
    pub async fn compact(&self, partition: u32, options: CompactOptions) -> Result<CompactedRows, Failure> {
        let info = self.refresh_within(self.limit()).await?;
        check_machine(&info)?;
        let named = |failure| info.name(failure);
        let fold = Fold::read(self, &info, partition).await.map_err(named)?;
        let mut found = CompactedRows {
            start: fold.range.start,
            end: fold.range.end,
            records: fold.records,
            rows: fold.rows,
            bytes: fold.bytes,
            ..CompactedRows::default()
        };
        let age_ms = u64::try_from(options.keep_removed.as_millis()).unwrap_or(u64::MAX);
        let keep_from_ms = chance::now_ms().saturating_sub(age_ms);
        let (newest, dropped) = fold.newest(keep_from_ms);
        found.removed_dropped = dropped;
        found.rows_kept = newest.len() as u64;
        found.bytes_kept = newest.iter().map(fold::Newest::bytes).sum();
        // A compaction writes one part more than it must if somebody appends meanwhile, so twice as many are few.
        if found.rows_kept == found.rows && found.records <= 2 * stage::parts_of(&newest) {
            found.already_compact = true;
            return Ok(found);
        }
        let parts = stage::stage(self, &info, partition, newest, options.block_bytes).await.map_err(named)?;
        let rows = found.rows_kept;
        found.message =
            message::encode(&TaskParts { stream_id: info.stream_id, partition_count: 0, rows, parts });
        Ok(found)
    }
}

fn check_machine(info: &StreamInfo) -> Result<(), Failure> {
    if info.machine == "kv" {
        return Ok(());
    }
    let (path, machine) = (info.path.as_str(), &info.machine);
    let message = format!(
        "stream {path}: compaction refused, it keeps the newest row of each key and the machine of the stream is {machine:?}; \
         only streams with machine=\"kv\" are compacted"
    );
    Err(Failure::invalid(message).with("stream", path))
}
