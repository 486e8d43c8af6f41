//! What can be wrong with a folder, said in one line and in fields.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use laminar_aof::AofError;
use laminar_core::error::ErrorKind;
use laminar_core::ids::PartitionId;
use serde::Serialize;
use thiserror::Error;

use crate::error::LogError;
use crate::format::FormatError;
use crate::log_id::{LogId, PartitionLogIndex};
use crate::snapshot::SnapshotError;

/// Why a folder could not be looked at.
#[derive(Debug, Clone, Error)]
pub enum InspectError {
    /// The folder cannot be listed.
    #[error("{}: the folder cannot be listed", .dir.display())]
    Folder {
        /// The folder.
        dir: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The folder holds nothing of ours.
    #[error(
        "{}: there is no log here; give the folder of a replica (it has raft, partitions and snapshots in it), or one \
         with segment files", .dir.display()
    )]
    NotALog {
        /// The folder.
        dir: PathBuf,
    },
    /// Whoever waited asked to stop.
    #[error("the reading was stopped")]
    Stopped,
    /// A file could not be read.
    #[error(transparent)]
    Log(#[from] LogError),
}

impl InspectError {
    /// What the caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            InspectError::NotALog { .. } => ErrorKind::Invalid,
            InspectError::Folder { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                ErrorKind::Invalid
            }
            InspectError::Folder { .. } | InspectError::Stopped => ErrorKind::Unavailable,
            InspectError::Log(error) => error.kind(),
        }
    }

    /// The error and what caused it, in one line.
    pub fn line(&self) -> String {
        line(self)
    }
}

/// Something wrong with what a folder holds.
#[derive(Debug, Clone, Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("entry {entry}: it cannot be read; restore the log from a replica")]
    BadEntry {
        entry: LogId,
        #[source]
        source: FormatError,
    },
    #[error(
        "partition {partition}, record {index}: {what} is {found}, expected {expected}; restore the partition from a \
         replica"
    )]
    Wrong {
        partition: PartitionId,
        index: PartitionLogIndex,
        what: &'static str,
        found: u64,
        expected: Expected,
    },
    #[error(
        "partition {partition}, record {index}: entry {entry}, which it names, has no such record (LOG-4); restore the \
         partition from a replica"
    )]
    NotInEntry { partition: PartitionId, index: PartitionLogIndex, entry: LogId },
    #[error(
        "partition {partition}, record {index}: it was stored from entry {entry}, and the segmented log ends with {} \
         (LOG-1); a file of it was removed, restore the replica from another",
        .last.map_or_else(|| "none".to_owned(), |last| last.to_string())
    )]
    Ahead { partition: PartitionId, index: PartitionLogIndex, entry: LogId, last: Option<LogId> },
}

/// What a value should be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Expected {
    Exactly(u64),
    AtLeast(u64),
}

impl Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Expected::Exactly(value) => value.fmt(f),
            Expected::AtLeast(value) => write!(f, "{value} or more"),
        }
    }
}

impl From<AofError> for Fault {
    fn from(error: AofError) -> Self {
        Fault::Log(error.into())
    }
}

impl From<SnapshotError> for Fault {
    fn from(error: SnapshotError) -> Self {
        Fault::Log(error.into())
    }
}

impl Fault {
    /// Whether it is about what the files hold; else about reading them.
    pub(super) fn is_in_the_files(&self) -> bool {
        match self {
            Fault::Log(error) => !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Overloaded),
            _ => true,
        }
    }
}

/// The error and its sources, in one line.
pub(super) fn line(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        line.push_str(": ");
        line.push_str(&error.to_string());
        source = error.source();
    }
    line
}

/// A bad place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FaultReport {
    /// The log or file that it is in, within the folder.
    pub log: String,
    /// All of it in one line.
    pub message: String,
    /// The partition, of a partition's log.
    pub partition: Option<u32>,
    /// The segment's id.
    pub segment: Option<u64>,
    /// The record: its sequence in the files, which in a partition's log is its index.
    pub record: Option<u64>,
    /// Where in the segment's or snapshot's file, or in the record if the segment's checksums are right.
    pub byte: Option<u64>,
    /// What is there: a checksum, an entry, or another value.
    pub found: Option<String>,
    /// What should be there.
    pub expected: Option<String>,
}

impl FaultReport {
    pub(super) fn new(log: String, fault: &Fault) -> Self {
        let message = line(fault);
        let none = Self {
            log,
            message,
            partition: None,
            segment: None,
            record: None,
            byte: None,
            found: None,
            expected: None,
        };
        none.with(fault)
    }

    fn with(self, fault: &Fault) -> Self {
        match fault {
            Fault::Log(error) => self.with_log(error),
            Fault::BadEntry { source, .. } => self.with_format(source),
            Fault::Wrong { partition, index, found, expected, .. } => Self {
                found: Some(found.to_string()),
                expected: Some(expected.to_string()),
                ..self.at(*partition, *index)
            },
            Fault::Ahead { partition, index, entry, last } => Self {
                found: Some(entry.to_string()),
                expected: last.map(|last| last.to_string()),
                ..self.at(*partition, *index)
            },
            Fault::NotInEntry { partition, index, entry } => {
                Self { expected: Some(entry.to_string()), ..self.at(*partition, *index) }
            }
        }
    }

    fn with_log(self, error: &LogError) -> Self {
        match error {
            LogError::Files(error) => self.with_files(error),
            LogError::BadRecord { sequence, source } => {
                Self { record: Some(*sequence), ..self.with_format(source) }
            }
            LogError::BadStoredRecord { partition, index, source } => {
                self.with_format(source).at(*partition, *index)
            }
            LogError::WrongTuple { partition, index, found, expected } => Self {
                found: Some(found.to_string()),
                expected: Some(expected.to_string()),
                ..self.at(*partition, *index)
            },
            LogError::RecordsMissing { partition, from, .. } => self.at(*partition, *from),
            LogError::Snapshot(SnapshotError::Unusable { source, .. }) => self.with_snapshot(source),
            _ => self,
        }
    }

    fn with_files(self, error: &AofError) -> Self {
        let checksum = |value: u32| Some(format!("{value:08x}"));
        match *error {
            AofError::Corrupt { segment, record, byte, found, expected, .. } => Self {
                segment: Some(segment),
                record: Some(record),
                byte: Some(byte),
                found: checksum(found),
                expected: checksum(expected),
                ..self
            },
            AofError::CorruptSegment { segment, byte, found, expected, .. } => Self {
                segment: Some(segment),
                byte: Some(byte),
                found: checksum(found),
                expected: checksum(expected),
                ..self
            },
            AofError::SegmentShortened { segment, found, expected, .. } => Self {
                segment: Some(segment),
                byte: Some(found),
                found: Some(found.to_string()),
                expected: Some(expected.to_string()),
                ..self
            },
            AofError::Missing { segment, from, .. } => {
                Self { segment: Some(segment), record: Some(from), ..self }
            }
            AofError::VersionTooNew { segment, found, newest, .. } => Self {
                segment: Some(segment),
                byte: Some(0),
                found: Some(found.to_string()),
                expected: Some(newest.to_string()),
                ..self
            },
            _ => self,
        }
    }

    fn with_snapshot(self, error: &SnapshotError) -> Self {
        match *error {
            SnapshotError::Damaged { at, found, expected } => Self {
                byte: Some(at),
                found: Some(format!("{found:08x}")),
                expected: Some(format!("{expected:08x}")),
                ..self
            },
            SnapshotError::WrongValue { at, found, expected, .. } => Self {
                byte: Some(at),
                found: Some(found.to_string()),
                expected: Some(expected.to_string()),
                ..self
            },
            SnapshotError::BadFrame { at, .. }
            | SnapshotError::OutOfOrder { at, .. }
            | SnapshotError::CutShort { at }
            | SnapshotError::TooLong { at } => Self { byte: Some(at), ..self },
            _ => self,
        }
    }

    fn with_format(self, error: &FormatError) -> Self {
        let (at, found, expected) = match *error {
            FormatError::Damaged { at, found, expected, .. } => {
                (at, format!("{found:08x}"), Some(format!("{expected:08x}")))
            }
            FormatError::Length { at, found, expected, .. } => {
                (at, found.to_string(), Some(expected.to_string()))
            }
            FormatError::Value { at, found, .. } => (at, found.to_string(), None),
            FormatError::VersionTooNew { at, found, .. } => (at, found.to_string(), None),
        };
        Self { byte: Some(at as u64), found: Some(found), expected, ..self }
    }

    fn at(self, partition: PartitionId, index: PartitionLogIndex) -> Self {
        Self { partition: Some(partition.0), record: Some(index.0), ..self }
    }
}
