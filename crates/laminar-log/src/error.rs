//! What can go wrong with the segmented log, and what to do about it.

use laminar_aof::AofError;
use laminar_core::error::ErrorKind;
use laminar_core::ids::PartitionId;
use thiserror::Error;

use crate::format::FormatError;
use crate::log_id::{LogId, PartitionLogIndex};

/// An error of the segmented log or of a partition's.
#[derive(Debug, Clone, Error)]
pub enum LogError {
    /// The files.
    #[error(transparent)]
    Files(#[from] AofError),
    /// A record of the segmented log that passes its checksum and still cannot be read.
    #[error("segmented log, record {sequence}: it cannot be read; restore the log from a replica")]
    BadRecord {
        /// Its place in the files.
        sequence: u64,
        /// What is wrong with it.
        #[source]
        source: FormatError,
    },
    /// A record of a partition's log that passes its checksum and still cannot be read.
    #[error("partition {partition}, record {index}: it cannot be read; restore the partition from a replica")]
    BadStoredRecord {
        /// The partition.
        partition: PartitionId,
        /// Its place.
        index: PartitionLogIndex,
        /// What is wrong with it.
        #[source]
        source: FormatError,
    },
    /// LOG-4 does not hold.
    #[error(
        "partition {partition}, record {index}: it was stored from entry {found}, and entry {expected} was accepted \
         there; restore the partition from a replica"
    )]
    WrongTuple {
        /// The partition.
        partition: PartitionId,
        /// The place.
        index: PartitionLogIndex,
        /// The entry that the stored record names.
        found: LogId,
        /// The entry that it should name.
        expected: LogId,
    },
    /// Entries that do not follow the last one.
    #[error("segmented log: entry {given} does not follow {}", .last.map_or_else(|| "an empty log".to_owned(), |last| last.to_string()))]
    NotConsecutive {
        /// The entry.
        given: LogId,
        /// The last entry there is.
        last: Option<LogId>,
    },
    /// An entry that was purged, or is not there yet.
    #[error("segmented log: it has no entry {index} (it has {first} to {last})")]
    NoEntry {
        /// The index.
        index: u64,
        /// The first there is.
        first: u64,
        /// The last there is.
        last: u64,
    },
}

impl LogError {
    /// What the caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            LogError::Files(error) => error.kind(),
            LogError::BadRecord { .. } | LogError::BadStoredRecord { .. } | LogError::WrongTuple { .. } => {
                ErrorKind::Corrupt
            }
            LogError::NotConsecutive { .. } | LogError::NoEntry { .. } => ErrorKind::Internal,
        }
    }
}
