//! What all clones of a partition's log share: its files, opened and closed, and what is known of them.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use laminar_aof::{Aof, AofError, Committer};
use laminar_core::ids::PartitionId;

use super::folder::partition_folder;
use super::pins::{Pins, RecordPin};
use super::tail::{LastRecord, Tail, index};
use super::{PartitionLogConfig, PartitionOpened};
use crate::error::LogError;
use crate::format::{FormatError, STORED_HEADER_BYTES, SegmentedRecordHeader, StoredHeader, decode_stored};
use crate::verdict::AcceptedRecord;

/// ORDER: `slot`, then `tail`; `pins` is taken while `tail` is not held.
pub(super) struct Inner {
    pub(super) committer: Committer,
    pub(super) root: PathBuf,
    pub(super) partition: PartitionId,
    pub(super) config: PartitionLogConfig,
    pub(super) writable: bool,
    pub(super) slot: RwLock<Slot>,
    pub(super) tail: Mutex<Tail>,
    pub(super) pins: Arc<Pins>,
}

/// The files, or why they are closed.
pub(super) struct Slot {
    /// How often they were opened.
    pub(super) opening: u64,
    pub(super) log: Result<Aof, LogError>,
    /// Why the files could not be opened for writing; then they are open for reading.
    pub(super) fault: Option<LogError>,
}

impl Slot {
    pub(super) fn log(&self) -> Result<&Aof, LogError> {
        self.log.as_ref().map_err(Clone::clone)
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartitionLogStore").field("partition", &self.partition).finish_non_exhaustive()
    }
}

impl Inner {
    pub(super) fn slot(&self) -> RwLockReadGuard<'_, Slot> {
        self.slot.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn slot_mut(&self) -> RwLockWriteGuard<'_, Slot> {
        self.slot.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn pin(&self, log: &Aof, from: u64) -> RecordPin {
        let mut pins = self.pins.lock();
        let first = log.sequences().start;
        pins.add(&self.pins, from.max(first))
    }

    pub(super) fn bad(&self, sequence: u64, source: FormatError) -> LogError {
        LogError::BadStoredRecord { partition: self.partition, index: index(sequence), source }
    }

    /// The stored headers, if they are of this place and partition.
    pub(super) fn decode_header(&self, sequence: u64, bytes: &Bytes) -> Result<StoredHeader, LogError> {
        let header = StoredHeader::decode(bytes).map_err(|e| self.bad(sequence, e))?;
        let record =
            SegmentedRecordHeader::decode(bytes, STORED_HEADER_BYTES).map_err(|e| self.bad(sequence, e))?;
        let wrong = |what, at, found| self.bad(sequence, FormatError::Value { what, at, found });
        if header.index.0 != sequence {
            return Err(wrong("index of a stored record", 8, header.index.0));
        }
        if record.partition != self.partition.0 {
            let at = STORED_HEADER_BYTES + 4;
            return Err(wrong("partition of a stored record", at, u64::from(record.partition)));
        }
        Ok(header)
    }

    pub(super) fn decode(&self, sequence: u64, bytes: &Bytes) -> Result<AcceptedRecord, LogError> {
        self.decode_header(sequence, bytes)?;
        decode_stored(bytes).map_err(|e| self.bad(sequence, e))
    }

    /// Opens the files into the slot.
    pub(super) fn open(&self, slot: &mut Slot) -> Result<PartitionOpened, LogError> {
        slot.opening += 1;
        slot.fault = None;
        match self.open_files(self.writable) {
            Ok((log, opened)) => {
                slot.log = Ok(log);
                Ok(opened)
            }
            Err(error) => {
                // A full disk keeps nobody from reading.
                slot.log = self.open_files(false).map(|(log, _)| log).map_err(|_| error.clone());
                slot.fault = Some(error.clone());
                Err(error)
            }
        }
    }

    fn open_files(&self, writable: bool) -> Result<(Aof, PartitionOpened), LogError> {
        let dir = partition_folder(&self.root, self.partition);
        let open = if writable { Aof::open } else { Aof::open_read_only };
        let (log, opened) = open(&self.committer, &dir, self.config.files())?;
        let tail = self.read_tail(&log, log.sequences())?;
        let opened = PartitionOpened {
            first: index(opened.sequences.start),
            end: index(opened.sequences.end),
            last: tail.last.map(|last| last.header),
            cut: opened.cut,
            records_rewritten: opened.records_rewritten,
        };
        *self.tail() = tail;
        Ok((log, opened))
    }

    /// What memory has to know of a log that holds these records.
    pub(super) fn read_tail(&self, log: &Aof, indices: Range<u64>) -> Result<Tail, LogError> {
        let mut tail = Tail { next: indices.end, ..Tail::default() };
        if !indices.is_empty() {
            let last = indices.end - 1;
            tail.last = Some(LastRecord::of(&self.decode(last, &log.read(last)?)?));
        }
        Ok(tail)
    }

    /// Closes the files: nothing can be asked of them until they are opened again.
    pub(super) fn close(&self, slot: &mut Slot) {
        let dir = partition_folder(&self.root, self.partition);
        slot.log = Err(AofError::ReadOnly { dir }.into());
    }
}
