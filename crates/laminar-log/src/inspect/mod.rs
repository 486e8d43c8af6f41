//! Looking at the logs of a replica without a trace: what is there, and whether all of it is as it was written.
//!
//! Every file is opened for reading only, through a file system that refuses everything else (`watch.rs`), so a folder
//! can be looked at while its replica runs. What an unsynced tail holds beyond its last intact record is told as a cut,
//! not as an error. `folder.rs` finds out what a folder is: a replica's, or that of one log.
//!
//! 1. [`inspect`] (`report.rs`) reads the segmented log, and of the partitions' logs the first and the last records.
//! 2. [`verify`] (`verify.rs`) reads everything once: first the snapshots, then it opens the partitions' logs, and the
//!    segmented log last. In this order a running replica never looks as if it had stored what it has not: what a
//!    snapshot names is in the partitions' logs, and what these hold is in the segmented log.
//! 3. Entries are read in windows (`entries.rs`), and each partition's log goes along (`partition.rs`): LOG-2, LOG-4,
//!    EPOCH-2, and times that do not go back.
//!
//! ```text
//!  segmented log    (purged) | entries 10 .. 90 | entries 91 .. 170 | ...      one window at a time in memory
//!  partition 0     r1 r2 r3  |   r4   r5        |       r6          |          read behind the window's end, once
//!  partition 1        r1     |                  |  r2 r3            |
//! ```

mod entries;
mod fault;
mod folder;
mod partition;
mod report;
mod snapshots;
mod verify;
mod watch;

pub use fault::{FaultReport, InspectError};
pub use report::{
    AheadReport, CutReport, FilesReport, Formats, InspectReport, LogKind, PartitionReport, SegmentReport,
    SegmentedLogReport, SnapshotReport, inspect,
};
pub use verify::{VerifyReport, verify};
pub use watch::Progress;
