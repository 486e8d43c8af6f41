//! The folder of a replica's snapshots.

use std::path::Path;
use std::sync::Arc;

use laminar_aof::fs::FileSystem;

use super::error::SnapshotError;
use super::file::{FileSink, SnapshotDir, TEMPORARY};
use super::frame::{SnapshotForm, SnapshotHead, SnapshotSummary};
use super::reader::SnapshotReader;
use super::writer::SnapshotWriter;
use crate::log_id::LogId;

const LOCAL: &str = ".snap";

/// The name of a file of the snapshot at this entry. Names are in the order of entries.
pub(super) fn file_name(log_id: LogId, suffix: &str) -> String {
    format!("{:016x}-{:016x}{suffix}", log_id.index.0, log_id.term)
}

/// The entry that a name is of.
fn parse(name: &str, suffix: &str) -> Option<LogId> {
    let (index, term) = name.strip_suffix(suffix)?.split_once('-')?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    let log_id = LogId::new(number(term)?, number(index)?);
    // Only the name that would be written, and no other way to write the numbers.
    (name == file_name(log_id, suffix)).then_some(log_id)
}

/// The snapshots of a replica, in a folder of their own. Clones are the same folder.
#[derive(Debug, Clone)]
pub struct SnapshotStore {
    pub(super) dir: SnapshotDir,
}

impl SnapshotStore {
    /// Opens the folder, or makes it, and removes what was never finished. To be called once a process.
    ///
    /// # Errors
    ///
    /// Unavailable, if a file call fails.
    pub fn open(fs: Arc<dyn FileSystem>, dir: &Path) -> Result<Self, SnapshotError> {
        let store = Self::open_read_only(fs, dir);
        store.dir.create_dir()?;
        for name in store.dir.list()?.iter().filter(|name| name.ends_with(TEMPORARY)) {
            store.dir.remove(name)?;
        }
        Ok(store)
    }

    /// The folder as it is.
    pub fn open_read_only(fs: Arc<dyn FileSystem>, dir: &Path) -> Self {
        Self { dir: SnapshotDir { fs, dir: dir.into() } }
    }

    /// Writes a snapshot of this replica: `build` adds everything behind the head. When this returns it is on disk; if
    /// it fails, or in a crash, the older ones are as they were.
    ///
    /// # Errors
    ///
    /// Those of `build`. Overloaded, if the disk is full. Unavailable, if a file call fails. Internal, if the parts are
    /// not in order or not as many as the head says.
    pub fn write_new<E: From<SnapshotError>>(
        &self,
        head: SnapshotHead,
        build: impl FnOnce(&mut SnapshotWriter<FileSink>) -> Result<(), E>,
    ) -> Result<SnapshotSummary, E> {
        let mut writer = self.begin_new(head)?;
        build(&mut writer)?;
        Ok(self.commit_new(writer)?)
    }

    /// Begins a snapshot of this replica that is written over some time.
    ///
    /// # Errors
    ///
    /// As [`write_new`](Self::write_new).
    pub fn begin_new(&self, head: SnapshotHead) -> Result<SnapshotWriter<FileSink>, SnapshotError> {
        SnapshotWriter::new(self.dir.create_temporary()?, SnapshotForm::Local, head)
    }

    /// Ends it. When this returns it is on disk.
    ///
    /// # Errors
    ///
    /// As [`write_new`](Self::write_new).
    pub fn commit_new(&self, writer: SnapshotWriter<FileSink>) -> Result<SnapshotSummary, SnapshotError> {
        let log_id = writer.log_id();
        let (file, summary) = writer.finish()?;
        file.commit(&file_name(log_id, LOCAL))?;
        Ok(summary)
    }

    /// The entries that there are snapshots of, in order.
    ///
    /// # Errors
    ///
    /// Unavailable, if the folder cannot be read.
    pub fn list(&self) -> Result<Vec<LogId>, SnapshotError> {
        self.list_suffix(LOCAL)
    }

    pub(super) fn list_suffix(&self, suffix: &str) -> Result<Vec<LogId>, SnapshotError> {
        let names = self.dir.list()?;
        let mut found: Vec<LogId> = names.iter().filter_map(|name| parse(name, suffix)).collect();
        found.sort_unstable_by_key(|log_id| (log_id.index, log_id.term));
        Ok(found)
    }

    /// The newest snapshot, which was read once and is whole. None if there never was one.
    ///
    /// # Errors
    ///
    /// Corrupt, if the newest one is damaged: an older one in its place would undo what Raft has purged since. Invalid,
    /// if a newer release wrote it. Unavailable, if a file call fails.
    pub fn newest(&self) -> Result<Option<(SnapshotHead, SnapshotReader)>, SnapshotError> {
        let Some(log_id) = self.list()?.pop() else { return Ok(None) };
        self.read(log_id)?.validate(SnapshotForm::Local, log_id).map(Some)
    }

    /// The snapshot at this entry, which is verified as it is read.
    ///
    /// # Errors
    ///
    /// Unavailable, if there is none or it cannot be opened.
    pub fn read(&self, log_id: LogId) -> Result<SnapshotReader, SnapshotError> {
        SnapshotReader::open(&self.dir, &file_name(log_id, LOCAL))
    }

    /// Removes the snapshots that are older than this one; says how many.
    ///
    /// # Errors
    ///
    /// Unavailable, if a file call fails; what is left goes with the next call.
    pub fn remove_older(&self, than: LogId) -> Result<usize, SnapshotError> {
        let older = |log_id: &LogId| (log_id.index, log_id.term) < (than.index, than.term);
        let names: Vec<String> =
            self.list()?.into_iter().filter(older).map(|log_id| file_name(log_id, LOCAL)).collect();
        names.iter().try_for_each(|name| self.dir.remove(name))?;
        if !names.is_empty() {
            self.dir.sync()?;
        }
        Ok(names.len())
    }
}
