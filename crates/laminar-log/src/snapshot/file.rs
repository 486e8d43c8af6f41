//! Files of a snapshot's folder, with errors that say which call failed on which file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use laminar_aof::FileOperation;
use laminar_aof::fs::{File, FileSystem};

use super::error::SnapshotError;
use super::format::PART_BYTES;
use super::writer::SnapshotSink;

pub(super) const TEMPORARY: &str = ".tmp";

/// The folder.
#[derive(Debug, Clone)]
pub(super) struct SnapshotDir {
    pub(super) fs: Arc<dyn FileSystem>,
    pub(super) dir: Arc<Path>,
}

impl SnapshotDir {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn call<T>(operation: FileOperation, path: &Path, result: io::Result<T>) -> Result<T, SnapshotError> {
        result.map_err(|error| SnapshotError::file(operation, path, error))
    }

    pub(super) fn create_dir(&self) -> Result<(), SnapshotError> {
        Self::call(FileOperation::CreateDir, &self.dir, self.fs.create_dir(&self.dir))
    }

    pub(super) fn list(&self) -> Result<Vec<String>, SnapshotError> {
        Self::call(FileOperation::List, &self.dir, self.fs.list(&self.dir))
    }

    pub(super) fn remove(&self, name: &str) -> Result<(), SnapshotError> {
        let path = self.path(name);
        Self::call(FileOperation::Remove, &path, self.fs.remove(&path))
    }

    pub(super) fn sync(&self) -> Result<(), SnapshotError> {
        Self::call(FileOperation::SyncDir, &self.dir, self.fs.sync_dir(&self.dir))
    }

    /// A file under a name that was never used, which a start removes.
    pub(super) fn create_temporary(&self) -> Result<FileSink, SnapshotError> {
        let number = Self::call(FileOperation::Create, &self.dir, self.fs.entropy())?;
        let path = self.path(&format!("{number:016x}{TEMPORARY}"));
        let file = Self::call(FileOperation::Create, &path, self.fs.create(&path))?;
        Ok(FileSink { dir: self.clone(), file, path, at: 0, buffer: Vec::new(), named: false })
    }
}

/// A file that a snapshot is written to. It is removed unless it gets a name.
#[derive(Debug)]
pub struct FileSink {
    dir: SnapshotDir,
    file: Arc<dyn File>,
    path: PathBuf,
    at: u64,
    buffer: Vec<u8>,
    named: bool,
}

impl FileSink {
    fn flush(&mut self) -> Result<(), SnapshotError> {
        SnapshotDir::call(FileOperation::Write, &self.path, self.file.write_at(&self.buffer, self.at))?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Brings everything to disk, and only then under its name, durably.
    pub(super) fn commit(mut self, name: &str) -> Result<(), SnapshotError> {
        self.flush()?;
        SnapshotDir::call(FileOperation::Sync, &self.path, self.file.sync())?;
        let renamed = self.dir.fs.rename(&self.path, &self.dir.path(name));
        SnapshotDir::call(FileOperation::Rename, &self.path, renamed)?;
        self.named = true;
        self.dir.sync()
    }
}

impl SnapshotSink for FileSink {
    fn write(&mut self, bytes: Bytes) -> Result<(), SnapshotError> {
        self.buffer.extend_from_slice(&bytes);
        if self.buffer.len() >= PART_BYTES { self.flush() } else { Ok(()) }
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        if !self.named {
            // What fails here is removed at the next start.
            drop(self.dir.fs.remove(&self.path));
        }
    }
}
