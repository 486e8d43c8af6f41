//! What all partitions of a replica share.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use laminar_aof::Committer;
use laminar_core::ids::{LogIndex, PartitionId};

use super::config::SegmentedConfig;
use super::events::Events;
use super::partition::Place;
use crate::dispatcher::PartitionDispatcher;
use crate::entry::{Change, MachineKind, Record, TrimTo};
use crate::error::LogError;
use crate::format::decode_entry;
use crate::log_id::{LogId, PartitionLogIndex};
use crate::machine::{KvMachine, LogMachine, PartitionStateMachine};
use crate::partition_log::{PartitionLogStore, remove_partition};
use crate::runtime::Runtime;
use crate::verdict::AcceptedRecord;

/// Gives back entries that were committed: the segmented log.
pub trait EntrySource: Send + Sync {
    /// The id and the bytes of a normal entry.
    ///
    /// # Errors
    ///
    /// It is not there, or cannot be read.
    fn committed_entry(&self, index: LogIndex) -> Result<(LogId, Bytes), LogError>;
}

/// Makes the machine of a new partition.
pub trait MachineFactory: Send + Sync {
    /// A machine of this kind, empty.
    fn make(&self, partition: PartitionId, kind: MachineKind) -> Box<dyn PartitionStateMachine>;
}

/// Makes the built-in machines. A kind that is not built in keeps its records only.
#[derive(Debug, Default, Clone, Copy)]
pub struct BuiltInMachines;

impl MachineFactory for BuiltInMachines {
    fn make(&self, _partition: PartitionId, kind: MachineKind) -> Box<dyn PartitionStateMachine> {
        match kind {
            MachineKind::Kv => Box::new(KvMachine::default()),
            MachineKind::Log | MachineKind::Custom(_) => Box::new(LogMachine),
        }
    }
}

/// What a replica's partitions are built on.
#[derive(Clone)]
pub struct Parts {
    /// Writes for all logs of the process.
    pub committer: Committer,
    /// Spawns, sleeps, tells the time.
    pub runtime: Arc<dyn Runtime>,
    /// Where entries can be read again: the segmented log.
    pub source: Arc<dyn EntrySource>,
    /// Admission, which the backlog of each partition is reported to.
    pub dispatcher: Arc<PartitionDispatcher>,
    /// Makes the machines.
    pub machines: Arc<dyn MachineFactory>,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

pub(crate) struct Shared {
    pub(crate) config: SegmentedConfig,
    pub(crate) committer: Committer,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) source: Arc<dyn EntrySource>,
    pub(crate) dispatcher: Arc<PartitionDispatcher>,
    pub(crate) machines: Arc<dyn MachineFactory>,
    pub(crate) events: Events,
    /// The folder of the partitions' logs.
    pub(crate) partitions_dir: PathBuf,
    /// Entries above this were not known to be committed when the replica was opened.
    committed_at_open: AtomicU64,
    decided: AtomicU64,
}

impl Shared {
    pub(crate) fn new(
        config: SegmentedConfig,
        parts: Parts,
        partitions_dir: PathBuf,
        committed_at_open: LogIndex,
    ) -> Arc<Self> {
        Arc::new(Self {
            events: Events::new(config.events_max),
            config,
            committer: parts.committer,
            runtime: parts.runtime,
            source: parts.source,
            dispatcher: parts.dispatcher,
            machines: parts.machines,
            partitions_dir,
            committed_at_open: AtomicU64::new(committed_at_open.0),
            decided: AtomicU64::new(0),
        })
    }

    /// The last entry whose records all partitions have taken.
    pub(crate) fn decided(&self) -> LogIndex {
        // ORDER: acquire, with the release of `set_decided`: whoever sees the index finds the records in the partitions.
        LogIndex(self.decided.load(Ordering::Acquire))
    }

    pub(crate) fn set_decided(&self, index: LogIndex) {
        self.decided.store(index.0, Ordering::Release);
    }

    /// A snapshot was installed: what its logs hold is committed.
    pub(crate) fn raise_committed(&self, index: LogIndex) {
        self.committed_at_open.fetch_max(index.0, Ordering::AcqRel);
    }

    /// Opens a partition's own log, without the tail that is ahead of the committed log.
    pub(crate) fn open_log(&self, partition: PartitionId) -> Result<PartitionLogStore, LogError> {
        let (log, _) = PartitionLogStore::open(
            &self.committer,
            &self.partitions_dir,
            partition,
            self.config.partition_log.clone(),
        )?;
        log.cut_above(LogIndex(self.committed_at_open.load(Ordering::Acquire)))?;
        Ok(log)
    }

    /// Removes the files of a partition's log, which is not open.
    pub(crate) fn remove_log(&self, partition: PartitionId) -> Result<(), LogError> {
        remove_partition(&self.committer, &self.partitions_dir, partition)
    }

    /// A record once more, as it was accepted.
    pub(crate) fn redo(
        &self,
        partition: PartitionId,
        index: PartitionLogIndex,
        place: Place,
    ) -> Result<AcceptedRecord, LogError> {
        let (log_id, bytes) = self.source.committed_entry(place.raft)?;
        let mut entry =
            decode_entry(&bytes).map_err(|source| LogError::BadRecord { sequence: place.raft.0, source })?;
        let lost = LogError::NoRecord { partition, index, entry: log_id };
        if place.position as usize >= entry.records.len() {
            return Err(lost);
        }
        let Record::Partition(mut record) = entry.records.swap_remove(place.position as usize) else {
            return Err(lost);
        };
        if record.partition != partition {
            return Err(lost);
        }
        if let Change::Trim(to) = &mut record.change {
            // As the verdict handed it on: to an offset, and not beyond the end.
            *to = TrimTo::Offset(match to {
                TrimTo::End => place.first_offset,
                TrimTo::Offset(offset) => place.first_offset.min(*offset),
            });
        }
        Ok(AcceptedRecord { index, first_offset: place.first_offset, log_id, time_ms: place.time_ms, record })
    }
}
