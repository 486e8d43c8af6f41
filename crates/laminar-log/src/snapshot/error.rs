//! What can go wrong with a snapshot, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use laminar_aof::FileOperation;
use laminar_core::error::ErrorKind;
use thiserror::Error;

use super::format::SNAPSHOT_VERSION;
use crate::format::FormatError;
use crate::log_id::LogId;

/// An error of a snapshot.
#[derive(Debug, Clone, Error)]
pub enum SnapshotError {
    /// A file call failed. What was there before is whole.
    #[error("{}: {operation} failed; the snapshot was not finished, clear the fault and try again", .path.display())]
    File {
        /// Which call.
        operation: FileOperation,
        /// On which file or folder.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// A snapshot in a file that is not what was written.
    #[error("{}: the snapshot cannot be used; restore this replica from another", .path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<SnapshotError>,
    },
    /// A frame is not what was written.
    #[error("snapshot, frame at byte {at}: checksum {found:08x}, expected {expected:08x}")]
    Damaged {
        /// Where the frame begins.
        at: u64,
        /// The checksum of the bytes as they are.
        found: u32,
        /// The checksum written with them.
        expected: u32,
    },
    /// A frame that passes its checksum and cannot be read.
    #[error("snapshot, {frame} frame at byte {at}: it cannot be read")]
    BadFrame {
        /// Where the frame begins.
        at: u64,
        /// What it is.
        frame: &'static str,
        /// What is wrong with it.
        #[source]
        source: FormatError,
    },
    /// A frame where it must not be.
    #[error("snapshot, {frame} frame at byte {at}: it must not come {after}")]
    OutOfOrder {
        /// Where the frame begins.
        at: u64,
        /// What it is.
        frame: &'static str,
        /// What came before it.
        after: &'static str,
    },
    /// A value that does not fit what came before.
    #[error("snapshot, frame at byte {at}: {what} is {found}, expected {expected}")]
    WrongValue {
        /// Where the frame begins.
        at: u64,
        /// Which value.
        what: &'static str,
        /// What it is.
        found: u64,
        /// What it should be.
        expected: u64,
    },
    /// It has no end.
    #[error("snapshot: it ends at byte {at}, before its last frame")]
    CutShort {
        /// Where it ends.
        at: u64,
    },
    /// There is more behind its end.
    #[error("snapshot: there are bytes behind its last frame, from byte {at} on")]
    TooLong {
        /// Where it should end.
        at: u64,
    },
    /// A newer release wrote it.
    #[error(
        "snapshot: version {found}, and this release reads up to {SNAPSHOT_VERSION}; upgrade laminar on this node"
    )]
    VersionTooNew {
        /// Its version.
        found: u8,
    },
    /// A part that does not fit a frame.
    #[error("snapshot: a part of {given} bytes does not fit a frame of {limit}; make smaller pieces")]
    TooLarge {
        /// Its length.
        given: u64,
        /// The longest there may be.
        limit: u64,
    },
    /// The snapshot that came is not the one that was announced.
    #[error("snapshot: it is of entry {found}, and that of entry {expected} was announced; ask for it again")]
    OtherSnapshot {
        /// Its last entry.
        found: LogId,
        /// The announced one.
        expected: LogId,
    },
    /// Whoever writes a snapshot did so in a wrong order.
    #[error("a snapshot was written wrongly; please report this")]
    Misused {
        /// What is wrong.
        #[source]
        source: Box<SnapshotError>,
    },
}

impl SnapshotError {
    /// What the caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            SnapshotError::File { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::Overloaded,
                _ => ErrorKind::Unavailable,
            },
            SnapshotError::Unusable { source, .. } => source.kind(),
            SnapshotError::Damaged { .. }
            | SnapshotError::BadFrame { .. }
            | SnapshotError::OutOfOrder { .. }
            | SnapshotError::WrongValue { .. }
            | SnapshotError::CutShort { .. }
            | SnapshotError::TooLong { .. } => ErrorKind::Corrupt,
            SnapshotError::VersionTooNew { .. } | SnapshotError::TooLarge { .. } => ErrorKind::Invalid,
            SnapshotError::OtherSnapshot { .. } => ErrorKind::Unavailable,
            SnapshotError::Misused { .. } => ErrorKind::Internal,
        }
    }

    pub(super) fn file(operation: FileOperation, path: &Path, source: io::Error) -> Self {
        SnapshotError::File { operation, path: path.to_owned(), source: Arc::new(source) }
    }

    /// The same, found in this file.
    pub(super) fn in_file(self, path: &Path) -> Self {
        match self {
            SnapshotError::File { .. } => self,
            other => SnapshotError::Unusable { path: path.to_owned(), source: Box::new(other) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_where_what_and_what_to_do() {
        let path = || PathBuf::from("/data/9.snap");
        let io = |kind: io::ErrorKind| SnapshotError::file(FileOperation::Sync, &path(), kind.into());
        let damaged = || SnapshotError::Damaged { at: 51, found: 1, expected: 2 };
        let (what, expected) = ("the number of frames", LogId::new(3, 9));
        let source = FormatError::Value { what: "frame", at: 12, found: 7 };
        let cases = [
            (
                io(io::ErrorKind::Other),
                ErrorKind::Unavailable,
                "/data/9.snap: sync failed; the snapshot was not finished, clear the fault and try again",
            ),
            (
                io(io::ErrorKind::StorageFull).in_file(&path()),
                ErrorKind::Overloaded,
                "/data/9.snap: sync failed; the snapshot was not finished, clear the fault and try again",
            ),
            (
                damaged().in_file(&path()),
                ErrorKind::Corrupt,
                "/data/9.snap: the snapshot cannot be used; restore this replica from another",
            ),
            (
                damaged(),
                ErrorKind::Corrupt,
                "snapshot, frame at byte 51: checksum 00000001, expected 00000002",
            ),
            (
                SnapshotError::BadFrame { at: 51, frame: "rows", source },
                ErrorKind::Corrupt,
                "snapshot, rows frame at byte 51: it cannot be read",
            ),
            (
                SnapshotError::OutOfOrder { at: 51, frame: "state", after: "after the head" },
                ErrorKind::Corrupt,
                "snapshot, state frame at byte 51: it must not come after the head",
            ),
            (
                SnapshotError::WrongValue { at: 51, what, found: 3, expected: 4 },
                ErrorKind::Corrupt,
                "snapshot, frame at byte 51: the number of frames is 3, expected 4",
            ),
            (
                SnapshotError::CutShort { at: 51 },
                ErrorKind::Corrupt,
                "snapshot: it ends at byte 51, before its last frame",
            ),
            (
                SnapshotError::TooLong { at: 51 },
                ErrorKind::Corrupt,
                "snapshot: there are bytes behind its last frame, from byte 51 on",
            ),
            (
                SnapshotError::VersionTooNew { found: 2 },
                ErrorKind::Invalid,
                "snapshot: version 2, and this release reads up to 1; upgrade laminar on this node",
            ),
            (
                SnapshotError::TooLarge { given: 99, limit: 64 },
                ErrorKind::Invalid,
                "snapshot: a part of 99 bytes does not fit a frame of 64; make smaller pieces",
            ),
            (
                SnapshotError::OtherSnapshot { found: LogId::new(2, 9), expected },
                ErrorKind::Unavailable,
                "snapshot: it is of entry 2-9, and that of entry 3-9 was announced; ask for it again",
            ),
            (
                SnapshotError::Misused { source: Box::new(damaged()) },
                ErrorKind::Internal,
                "a snapshot was written wrongly; please report this",
            ),
        ];
        for (error, kind, text) in cases {
            assert_eq!((error.to_string().as_str(), error.kind()), (text, kind));
        }
    }
}
