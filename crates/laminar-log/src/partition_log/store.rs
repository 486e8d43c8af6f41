//! The log as a whole: opened, reopened, emptied and destroyed.

use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use laminar_aof::{AofError, Committer};
use laminar_core::ids::PartitionId;

use super::folder::{finish_removal, partition_folder, remove_partition};
use super::inner::{Inner, Slot};
use super::tail::{Tail, index};
use super::{PartitionLogConfig, PartitionOpened};
use crate::error::LogError;
use crate::log_id::PartitionLogIndex;

/// How long a new first place may take to reach the disk.
const RESET_WAIT: Duration = Duration::from_secs(30);

/// The log of one partition. Clones are the same log; all methods may be called from any thread.
///
/// Ends are those of Rust's ranges: the place behind the last record.
#[derive(Debug, Clone)]
pub struct PartitionLogStore {
    pub(super) inner: Arc<Inner>,
}

impl PartitionLogStore {
    /// Opens the log of a partition under `root`, or makes an empty one. What is reported is on disk.
    ///
    /// # Errors
    ///
    /// As `laminar_aof::Aof::open`; Corrupt also if the last record is none of this partition.
    pub fn open(
        committer: &Committer,
        root: &Path,
        partition: PartitionId,
        config: PartitionLogConfig,
    ) -> Result<(Self, PartitionOpened), LogError> {
        Self::open_as(committer, root, partition, config, true)
    }

    /// Opens the log of a partition to read it, and changes nothing.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_read_only(
        committer: &Committer,
        root: &Path,
        partition: PartitionId,
        config: PartitionLogConfig,
    ) -> Result<(Self, PartitionOpened), LogError> {
        Self::open_as(committer, root, partition, config, false)
    }

    /// Removes what there is of a partition's log, readable or not, and makes an empty one whose first record will have
    /// the place `first`. It must not be open. For a snapshot that brings its own records: a crash in between leaves
    /// the old log, no log, or the new one.
    ///
    /// # Errors
    ///
    /// Unavailable, if a file call fails; it can be called again.
    pub fn create_at(
        committer: &Committer,
        root: &Path,
        partition: PartitionId,
        config: PartitionLogConfig,
        first: PartitionLogIndex,
    ) -> Result<Self, LogError> {
        remove_partition(committer, root, partition)?;
        let (store, _) = Self::open(committer, root, partition, config)?;
        store.begin_at(first)?;
        Ok(store)
    }

    fn open_as(
        committer: &Committer,
        root: &Path,
        partition: PartitionId,
        config: PartitionLogConfig,
        writable: bool,
    ) -> Result<(Self, PartitionOpened), LogError> {
        let closed = AofError::ReadOnly { dir: partition_folder(root, partition) };
        let inner = Inner {
            committer: committer.clone(),
            root: root.to_owned(),
            partition,
            config,
            writable,
            slot: RwLock::new(Slot { opening: 0, log: Err(closed.into()), fault: None }),
            tail: Mutex::default(),
            pins: Arc::default(),
        };
        let opened = inner.open(&mut inner.slot_mut())?;
        Ok((Self { inner: Arc::new(inner) }, opened))
    }

    /// Closes the files, for all who have this log: nothing can be read or stored until it is reopened.
    pub fn close(&self) {
        let mut slot = self.inner.slot_mut();
        self.inner.close(&mut slot);
    }

    /// Closes the files and opens them again, which a failed log needs (LOG-6). Readers and pins stay. After a
    /// [`reset`](Self::reset) that failed the log may be empty and begin at 1.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open). The log can only be read then, if at all; this can be called again.
    pub fn reopen(&self) -> Result<PartitionOpened, LogError> {
        let mut slot = self.inner.slot_mut();
        self.inner.close(&mut slot);
        if self.inner.writable {
            finish_removal(&self.inner.committer, &self.inner.root, self.inner.partition)?;
        }
        self.inner.open(&mut slot)
    }

    /// Empties the log; its next record will have the place `first`. For a snapshot that brings its own records: a
    /// crash in between leaves the old log, no log, or the new one. When this returns the new one is on disk.
    ///
    /// # Errors
    ///
    /// Unavailable, if a file call fails; it can be called again.
    pub fn reset(&self, first: PartitionLogIndex) -> Result<(), LogError> {
        {
            let mut slot = self.inner.slot_mut();
            self.inner.close(&mut slot);
            remove_partition(&self.inner.committer, &self.inner.root, self.inner.partition)?;
            self.inner.open(&mut slot)?;
        }
        self.begin_at(first)
    }

    /// Has an empty log begin at `first`, durably.
    fn begin_at(&self, first: PartitionLogIndex) -> Result<(), LogError> {
        if first <= index(1) {
            return Ok(());
        }
        let slot = self.inner.slot();
        let ticket = slot.log()?.truncate_front(first.0)?;
        *self.inner.tail() = Tail { next: first.0, ..Tail::default() };
        Ok(ticket.wait(RESET_WAIT)?)
    }

    /// Removes the log with its folder for good. Clones of this one, and readers, answer that it is closed.
    ///
    /// # Errors
    ///
    /// Unavailable, if a file call fails: the log is closed then, and either whole, or gone but for what the next
    /// [`remove_partition`] or [`clean_root`](super::clean_root) removes.
    pub fn destroy(self) -> Result<(), LogError> {
        let inner = &self.inner;
        let mut slot = inner.slot_mut();
        // Closed first: what it still writes must not come after the folder was emptied.
        inner.close(&mut slot);
        remove_partition(&inner.committer, &inner.root, inner.partition)
    }
}
