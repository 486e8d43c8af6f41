//! Where a replica keeps what, in its one folder.
//!
//! ```text
//!  <dir>/raft/                       the segmented log: one append-only file set
//!  <dir>/partitions/<8 hex digits>/  the logs of the partitions, one file set each
//!  <dir>/snapshots/                  snapshots, one file each
//! ```

use std::path::{Path, PathBuf};

pub(crate) const RAFT: &str = "raft";
pub(crate) const PARTITIONS: &str = "partitions";
pub(crate) const SNAPSHOTS: &str = "snapshots";

/// The folder of the segmented log.
pub fn raft_dir(dir: &Path) -> PathBuf {
    dir.join(RAFT)
}

/// The folder that the partitions' logs are in.
pub fn partitions_dir(dir: &Path) -> PathBuf {
    dir.join(PARTITIONS)
}

/// The folder of the snapshots.
pub fn snapshots_dir(dir: &Path) -> PathBuf {
    dir.join(SNAPSHOTS)
}
