//! What can go wrong with the segmented log, and what to do about it.

use laminar_aof::AofError;
use laminar_core::error::ErrorKind;
use laminar_core::ids::PartitionId;
use thiserror::Error;

use crate::format::FormatError;
use crate::log_id::{LogId, PartitionLogIndex};
use crate::machine::MachineError;
use crate::setting::SettingOutOfRange;
use crate::snapshot::SnapshotError;
use crate::verdict::VerdictSnapshotError;

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
    /// A snapshot.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The verdict state of a snapshot cannot be read.
    #[error("the verdict state of the newest snapshot cannot be read; restore the replica from another")]
    BadVerdictState(#[from] VerdictSnapshotError),
    /// The state of a partition's machine cannot be restored.
    #[error("partition {partition}: the state of its machine cannot be restored; restore it from a replica")]
    BadMachineState {
        /// The partition.
        partition: PartitionId,
        /// What is wrong with it.
        #[source]
        source: MachineError,
    },
    /// A setting.
    #[error(transparent)]
    Setting(#[from] SettingOutOfRange),
    /// The log of a partition was not on disk in time for a snapshot.
    #[error(
        "partition {partition}: its log was not on disk up to record {index} in time for a snapshot; the snapshot before stays"
    )]
    NotSyncedInTime {
        /// The partition.
        partition: PartitionId,
        /// The record.
        index: PartitionLogIndex,
    },
    /// Another snapshot is being built.
    #[error("a snapshot is being built already; wait for it")]
    SnapshotUnderWay,
    /// A partition was destroyed or replaced while its snapshot was built or sent.
    #[error("partition {partition}: it went away while its snapshot was built or sent; take a newer one")]
    SnapshotOvertaken {
        /// The partition.
        partition: PartitionId,
    },
    /// A partition's log lacks records that were synced.
    #[error(
        "partition {partition}: its log ends before record {from}, and records up to {to} were on disk; restore it from a replica"
    )]
    RecordsMissing {
        /// The partition.
        partition: PartitionId,
        /// The first record that is missing.
        from: PartitionLogIndex,
        /// The first that is not, or can be redone.
        to: PartitionLogIndex,
    },
    /// A partition's log lost records in a fault, and they are not stored again yet.
    #[error(
        "partition {partition}: its own log has records before {stored_end} and is being repaired, record {last} is its last; try again"
    )]
    NotStoredAgain {
        /// The partition.
        partition: PartitionId,
        /// The first record that its log does not have.
        stored_end: PartitionLogIndex,
        /// The last record that it must have.
        last: PartitionLogIndex,
    },
    /// An entry that a newer release wrote.
    #[error("entry {entry}: a newer release wrote it; upgrade this replica")]
    EntryTooNew {
        /// The entry.
        entry: LogId,
        /// What it has that this release does not know.
        #[source]
        source: FormatError,
    },
    /// An entry that does not have the record that was accepted from it.
    #[error("partition {partition}, record {index}: entry {entry} does not have it; report this as a bug")]
    NoRecord {
        /// The partition.
        partition: PartitionId,
        /// The place.
        index: PartitionLogIndex,
        /// The entry.
        entry: LogId,
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
            LogError::BadRecord { .. }
            | LogError::BadStoredRecord { .. }
            | LogError::WrongTuple { .. }
            | LogError::RecordsMissing { .. } => ErrorKind::Corrupt,
            LogError::Snapshot(error) => error.kind(),
            LogError::BadVerdictState(_) | LogError::BadMachineState { .. } => ErrorKind::Corrupt,
            LogError::NotSyncedInTime { .. }
            | LogError::NotStoredAgain { .. }
            | LogError::SnapshotOvertaken { .. }
            | LogError::SnapshotUnderWay => ErrorKind::Unavailable,
            LogError::Setting(_) => ErrorKind::Invalid,
            LogError::EntryTooNew { .. } => ErrorKind::Invalid,
            LogError::NotConsecutive { .. } | LogError::NoEntry { .. } | LogError::NoRecord { .. } => {
                ErrorKind::Internal
            }
        }
    }
}
