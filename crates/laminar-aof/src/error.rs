//! What can go wrong with a log, and what to do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use laminar_core::error::ErrorKind;
use thiserror::Error;

/// A call to the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileOperation {
    /// Make a folder.
    CreateDir,
    /// List a folder.
    List,
    /// Make a file.
    Create,
    /// Open a file.
    Open,
    /// Reserve room for a file.
    Allocate,
    /// Ask for a file's length.
    Length,
    /// Change a file's length.
    SetLength,
    /// Read.
    Read,
    /// Write.
    Write,
    /// Bring a file's bytes to disk.
    Sync,
    /// Bring a folder's names to disk.
    SyncDir,
    /// Bring everything of a file system to disk.
    SyncAll,
    /// Give a file another name.
    Rename,
    /// Remove a file.
    Remove,
}

impl fmt::Display for FileOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileOperation::CreateDir => "create folder",
            FileOperation::List => "list folder",
            FileOperation::Create => "create",
            FileOperation::Open => "open",
            FileOperation::Allocate => "allocate",
            FileOperation::Length => "length",
            FileOperation::SetLength => "set length",
            FileOperation::Read => "read",
            FileOperation::Write => "write",
            FileOperation::Sync => "sync",
            FileOperation::SyncDir => "sync folder",
            FileOperation::SyncAll => "sync file system",
            FileOperation::Rename => "rename",
            FileOperation::Remove => "remove",
        })
    }
}

/// A part of a segment that is checked as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentPart {
    /// The first 64 bytes.
    Header,
    /// The index of a sealed segment.
    Index,
}

impl fmt::Display for SegmentPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SegmentPart::Header => "header",
            SegmentPart::Index => "index",
        })
    }
}

/// Why a log did not do what it was asked for.
///
/// Cloned to everyone who waits for the same group.
#[derive(Debug, Clone, Error)]
pub enum AofError {
    /// A file call failed.
    #[error("{}: {operation} failed; the log has stopped, clear the fault and reopen it", .path.display())]
    Io {
        /// Which call.
        operation: FileOperation,
        /// On which file or folder.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// No room is left on the disk.
    #[error("{}: {operation} failed, the disk is full; free some room and reopen the log, until then it can be read", .path.display())]
    DiskFull {
        /// Which call.
        operation: FileOperation,
        /// On which file or folder.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// An earlier write or sync failed, so nothing more is acknowledged (LOG-6).
    #[error("{}: log has failed, records from {synced} on are not known to be on disk; reopen it", .dir.display())]
    Failed {
        /// The log's folder.
        dir: PathBuf,
        /// The first sequence that is not known to be on disk.
        synced: u64,
        /// What failed.
        #[source]
        cause: Box<AofError>,
    },
    /// A record that was on disk is not there as it was written.
    #[error(
        "{}: segment {segment}, record {record} at byte {byte}: checksum {found:08x}, expected {expected:08x}; \
         the log is damaged below its synced mark {synced}, restore it from a replica", .dir.display()
    )]
    Corrupt {
        /// The log's folder.
        dir: PathBuf,
        /// The segment's id.
        segment: u64,
        /// The sequence that the record at this place has.
        record: u64,
        /// Where in the segment's file.
        byte: u64,
        /// The checksum of the bytes as they are.
        found: u32,
        /// The checksum written with them.
        expected: u32,
        /// Bytes of the segment that were known to be on disk.
        synced: u64,
    },
    /// A segment's header or index is not what was written.
    #[error(
        "{}: segment {segment}, {part} at byte {byte}: checksum {found:08x}, expected {expected:08x}; the segment is \
         damaged, restore it from a replica", .dir.display()
    )]
    CorruptSegment {
        /// The log's folder.
        dir: PathBuf,
        /// The segment's id.
        segment: u64,
        /// Which part of it.
        part: SegmentPart,
        /// Where in the segment's file.
        byte: u64,
        /// The checksum of the bytes as they are.
        found: u32,
        /// The checksum written with them.
        expected: u32,
    },
    /// A segment's file is shorter than it was made, and no trailer says that it was sealed.
    #[error(
        "{}: segment {segment} has {found} bytes of {expected} and no valid trailer; the file was shortened or damaged, \
         restore it from a replica",
        .dir.display()
    )]
    SegmentShortened {
        /// The log's folder.
        dir: PathBuf,
        /// The segment's id.
        segment: u64,
        /// How long it is.
        found: u64,
        /// How long it was made.
        expected: u64,
    },
    /// Records are missing between two segments, or before the first.
    #[error(
        "{}: records {from} to {to} are missing before segment {segment}; a file was removed, restore it from a replica",
        .dir.display()
    )]
    Missing {
        /// The log's folder.
        dir: PathBuf,
        /// The first missing record.
        from: u64,
        /// The first record that is there.
        to: u64,
        /// The segment that begins with it.
        segment: u64,
    },
    /// Written by a newer release.
    #[error(
        "{}: segment {segment} has version {found} and this release reads up to {newest}; upgrade laminar on this node",
        .dir.display()
    )]
    VersionTooNew {
        /// The log's folder.
        dir: PathBuf,
        /// The segment's id.
        segment: u64,
        /// The version found.
        found: u32,
        /// The newest version this release reads.
        newest: u32,
    },
    /// The log does not have this record.
    #[error("record {sequence} is not in the log, which has {first} to {end} (exclusive)")]
    OutOfRange {
        /// What was asked for.
        sequence: u64,
        /// The first record there is.
        first: u64,
        /// The one after the last.
        end: u64,
    },
    /// Too much waits to be written.
    #[error(
        "append refused, {pending} bytes wait to be written and {given} more would pass {limit} (pending_bytes_max); \
         wait for a ticket or raise it"
    )]
    Overloaded {
        /// What waits already.
        pending: u64,
        /// What was to be added.
        given: u64,
        /// The most that may wait.
        limit: u64,
    },
    /// More logs than the committer may serve.
    #[error("{logs} logs are open (logs_max); close one or raise it")]
    TooManyLogs {
        /// How many are open, which is the limit.
        logs: u32,
    },
    /// A record, or a batch, that can never be appended.
    #[error("{name} is {limit}; {given} bytes cannot be appended at once, make them fewer or raise it")]
    TooLarge {
        /// The setting that forbids it.
        name: &'static str,
        /// What was given.
        given: u64,
        /// The most that may be given.
        limit: u64,
    },
    /// A setting out of its range.
    #[error("{name} is {given}; it must be from {min} to {max}")]
    SettingOutOfRange {
        /// Which setting.
        name: &'static str,
        /// What was given.
        given: u64,
        /// The least it may be.
        min: u64,
        /// The most it may be.
        max: u64,
    },
    /// One log, opened twice.
    #[error("{}: log is open already in this process; use that handle, or close it first", .dir.display())]
    AlreadyOpen {
        /// The log's folder.
        dir: PathBuf,
    },
    /// The log was opened for reading only, or is closed.
    #[error("{}: log is closed or open for reading only; open it for writing", .dir.display())]
    ReadOnly {
        /// The log's folder.
        dir: PathBuf,
    },
    /// The time to wait is over. The outcome is unknown: the bytes may still reach the disk.
    #[error("no acknowledgement within {waited:?}, the outcome is unknown; keep waiting on the ticket")]
    TimedOut {
        /// How long the caller waited.
        waited: Duration,
    },
    /// The committer could not start a thread.
    #[error("no thread could be started for the committer; raise the limit of threads")]
    NoThread {
        /// What the system said.
        source: Arc<io::Error>,
    },
}

impl AofError {
    /// What the caller should do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            AofError::Io { .. } | AofError::TimedOut { .. } | AofError::NoThread { .. } => {
                ErrorKind::Unavailable
            }
            AofError::DiskFull { .. } | AofError::Overloaded { .. } | AofError::TooManyLogs { .. } => {
                ErrorKind::Overloaded
            }
            AofError::Failed { cause, .. } => cause.kind(),
            AofError::Corrupt { .. }
            | AofError::CorruptSegment { .. }
            | AofError::SegmentShortened { .. }
            | AofError::Missing { .. } => ErrorKind::Corrupt,
            AofError::VersionTooNew { .. }
            | AofError::OutOfRange { .. }
            | AofError::TooLarge { .. }
            | AofError::SettingOutOfRange { .. }
            | AofError::AlreadyOpen { .. }
            | AofError::ReadOnly { .. } => ErrorKind::Invalid,
        }
    }

    /// Whether the disk was full, also when the log failed of it.
    pub fn is_disk_full(&self) -> bool {
        match self {
            AofError::DiskFull { .. } => true,
            AofError::Failed { cause, .. } => cause.is_disk_full(),
            _ => false,
        }
    }

    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, AofError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// A file call that failed, as an error of the log it was for.
    pub fn io(operation: FileOperation, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let (path, source) = (path.into(), Arc::new(source));
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                AofError::DiskFull { operation, path, source }
            }
            _ => AofError::Io { operation, path, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pins the wording that users search for.
    #[test]
    fn errors_read_as_documented() {
        let dir = || PathBuf::from("/data/log");
        let io = |kind: io::ErrorKind| AofError::io(FileOperation::Sync, "/data/log/1.seg", kind.into());
        let cases = [
            (
                io(io::ErrorKind::Other),
                ErrorKind::Unavailable,
                "/data/log/1.seg: sync failed; the log has stopped, clear the fault and reopen it",
            ),
            (
                io(io::ErrorKind::StorageFull),
                ErrorKind::Overloaded,
                "/data/log/1.seg: sync failed, the disk is full; free some room and reopen the log, until then it can be read",
            ),
            (
                AofError::Failed { dir: dir(), synced: 7, cause: Box::new(io(io::ErrorKind::Other)) },
                ErrorKind::Unavailable,
                "/data/log: log has failed, records from 7 on are not known to be on disk; reopen it",
            ),
            (
                AofError::Corrupt {
                    dir: dir(),
                    segment: 12,
                    record: 518,
                    byte: 1_048_640,
                    found: 0x9f3c_11a2,
                    expected: 0x1b77_e004,
                    synced: 2_000_000,
                },
                ErrorKind::Corrupt,
                "/data/log: segment 12, record 518 at byte 1048640: checksum 9f3c11a2, expected 1b77e004; the log is damaged \
              below its synced mark 2000000, restore it from a replica",
            ),
            (
                AofError::CorruptSegment {
                    dir: dir(),
                    segment: 12,
                    part: SegmentPart::Header,
                    byte: 0,
                    found: 1,
                    expected: 2,
                },
                ErrorKind::Corrupt,
                "/data/log: segment 12, header at byte 0: checksum 00000001, expected 00000002; the segment is damaged, \
              restore it from a replica",
            ),
            (
                AofError::SegmentShortened { dir: dir(), segment: 12, found: 1, expected: 65536 },
                ErrorKind::Corrupt,
                "/data/log: segment 12 has 1 bytes of 65536 and no valid trailer; the file was shortened or damaged, restore it \
              from a replica",
            ),
            (
                AofError::Missing { dir: dir(), from: 3, to: 9, segment: 12 },
                ErrorKind::Corrupt,
                "/data/log: records 3 to 9 are missing before segment 12; a file was removed, restore it from a replica",
            ),
            (
                AofError::VersionTooNew { dir: dir(), segment: 12, found: 2, newest: 1 },
                ErrorKind::Invalid,
                "/data/log: segment 12 has version 2 and this release reads up to 1; upgrade laminar on this node",
            ),
            (
                AofError::OutOfRange { sequence: 4, first: 5, end: 9 },
                ErrorKind::Invalid,
                "record 4 is not in the log, which has 5 to 9 (exclusive)",
            ),
            (
                AofError::Overloaded { pending: 10, given: 7, limit: 16 },
                ErrorKind::Overloaded,
                "append refused, 10 bytes wait to be written and 7 more would pass 16 (pending_bytes_max); wait for a ticket \
              or raise it",
            ),
            (
                AofError::TooManyLogs { logs: 4 },
                ErrorKind::Overloaded,
                "4 logs are open (logs_max); close one or raise it",
            ),
            (
                AofError::TooLarge { name: "record_bytes_max", given: 99, limit: 64 },
                ErrorKind::Invalid,
                "record_bytes_max is 64; 99 bytes cannot be appended at once, make them fewer or raise it",
            ),
            (
                AofError::SettingOutOfRange {
                    name: "segment_bytes_max",
                    given: 512,
                    min: 65536,
                    max: 4_294_967_296,
                },
                ErrorKind::Invalid,
                "segment_bytes_max is 512; it must be from 65536 to 4294967296",
            ),
            (
                AofError::AlreadyOpen { dir: dir() },
                ErrorKind::Invalid,
                "/data/log: log is open already in this process; use that handle, or close it first",
            ),
            (
                AofError::ReadOnly { dir: dir() },
                ErrorKind::Invalid,
                "/data/log: log is closed or open for reading only; open it for writing",
            ),
            (
                AofError::TimedOut { waited: Duration::from_millis(1500) },
                ErrorKind::Unavailable,
                "no acknowledgement within 1.5s, the outcome is unknown; keep waiting on the ticket",
            ),
            (
                AofError::NoThread { source: Arc::new(io::ErrorKind::WouldBlock.into()) },
                ErrorKind::Unavailable,
                "no thread could be started for the committer; raise the limit of threads",
            ),
        ];
        for (error, kind, text) in cases {
            assert_eq!((error.to_string().as_str(), error.kind()), (text, kind));
        }
        let full =
            AofError::Failed { dir: dir(), synced: 0, cause: Box::new(io(io::ErrorKind::StorageFull)) };
        assert!(full.is_disk_full() && !io(io::ErrorKind::Other).is_disk_full());
    }
}
