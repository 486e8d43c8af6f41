//! The one way to the disk: a small trait, so that tests can fail, tear, delay or lie about any call.

mod faulty;
mod memory;
mod real;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{AofError, FileOperation};

pub use faulty::{DiskFault, FaultyFileSystem};
pub use memory::{Fault, FileCall, MemoryFileSystem, Survival};
pub use real::RealFileSystem;

/// Folders and files by name, the clock and the dice of the machine.
///
/// Names become durable with [`sync_dir`](Self::sync_dir), bytes with [`File::sync`], and both with
/// [`sync_device`](Self::sync_device); with nothing else.
pub trait FileSystem: fmt::Debug + Send + Sync {
    /// Makes a folder and those above it that are missing, durably.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes a folder, if it is missing. Its name becomes durable with its parent's [`sync_dir`](Self::sync_dir); those
    /// above it that are missing are made durably. To make it durable at once is right, and slow.
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        self.create_dir(dir)
    }
    /// The names of the files and folders in a folder, in any order; `NotFound` if there is no such folder.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Makes an empty file, open for reading and writing; `AlreadyExists` if there is one.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// Opens a file, for writing too where `writable`.
    fn open(&self, path: &Path, writable: bool) -> io::Result<Arc<dyn File>>;
    /// Gives a file another name, replacing what had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a name. Whoever has the file open can still read it.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder; `NotFound` if there is no such folder.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes the names of the files and folders in a folder durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// The device that a folder is on. Asked before anything is written to the folder.
    fn device(&self, dir: &Path) -> io::Result<u64>;
    /// Makes all bytes and all names of a device durable; reports any bytes that were lost since the device was first
    /// asked for. `Unsupported` where only single files and folders can be synced.
    fn sync_device(&self, device: u64) -> io::Result<()>;
    /// A number that will not come again.
    fn entropy(&self) -> io::Result<u64>;
    /// Time since a fixed moment; never goes back.
    fn now(&self) -> Duration;
}

/// An open file. Every call names its place, so that readers and the writer need no common position.
pub trait File: fmt::Debug + Send + Sync {
    /// How long it is.
    fn length(&self) -> io::Result<u64>;
    /// Fills `buffer` from `offset` on, as far as there are bytes; returns how many.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `bytes` at `offset`. After an error any part of them may be written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes the file at least `length` long, with room on the disk for all of it.
    fn allocate(&self, length: u64) -> io::Result<()>;
    /// Makes the file exactly `length` long.
    fn set_length(&self, length: u64) -> io::Result<()>;
    /// Returns when bytes and length are on disk. After an error nothing is known about either.
    fn sync(&self) -> io::Result<()>;
}

/// A log's folder, with errors that say which call failed on which file.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) dir: PathBuf,
}

impl Folder {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes the folder, whose name is durable only after [`sync_parent`](Self::sync_parent).
    pub(crate) fn make(&self) -> Result<(), AofError> {
        self.fs.make_dir(&self.dir).map_err(|e| AofError::io(FileOperation::CreateDir, &self.dir, e))
    }

    /// The names in the folder; none if there is no such folder.
    pub(crate) fn list(&self) -> Result<Vec<String>, AofError> {
        match self.fs.list(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            listed => listed.map_err(|e| AofError::io(FileOperation::List, &self.dir, e)),
        }
    }

    pub(crate) fn create(&self, name: &str) -> Result<OpenFile, AofError> {
        let path = self.path(name);
        let file = self.fs.create(&path).map_err(|e| AofError::io(FileOperation::Create, &path, e))?;
        Ok(OpenFile { file, path: path.into() })
    }

    pub(crate) fn open(&self, name: &str, writable: bool) -> Result<OpenFile, AofError> {
        let path = self.path(name);
        let file = self.fs.open(&path, writable).map_err(|e| AofError::io(FileOperation::Open, &path, e))?;
        Ok(OpenFile { file, path: path.into() })
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), AofError> {
        let from = self.path(from);
        self.fs.rename(&from, &self.path(to)).map_err(|e| AofError::io(FileOperation::Rename, from, e))
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), AofError> {
        let path = self.path(name);
        self.fs.remove(&path).map_err(|e| AofError::io(FileOperation::Remove, path, e))
    }

    pub(crate) fn sync_dir(&self) -> Result<(), AofError> {
        self.fs.sync_dir(&self.dir).map_err(|e| AofError::io(FileOperation::SyncDir, &self.dir, e))
    }

    /// Makes the folder's own name durable.
    pub(crate) fn sync_parent(&self) -> Result<(), AofError> {
        let Some(parent) = self.dir.parent() else { return Ok(()) };
        self.fs.sync_dir(parent).map_err(|e| AofError::io(FileOperation::SyncDir, parent, e))
    }

    pub(crate) fn device(&self) -> Result<u64, AofError> {
        self.fs.device(&self.dir).map_err(|e| AofError::io(FileOperation::Open, &self.dir, e))
    }

    pub(crate) fn entropy(&self) -> Result<u64, AofError> {
        self.fs.entropy().map_err(|e| AofError::io(FileOperation::Create, &self.dir, e))
    }
}

/// An open file that knows its name, for errors.
#[derive(Debug, Clone)]
pub(crate) struct OpenFile {
    file: Arc<dyn File>,
    path: Arc<Path>,
}

impl OpenFile {
    /// The same file after a rename.
    pub(crate) fn renamed(self, path: PathBuf) -> Self {
        Self { file: self.file, path: path.into() }
    }

    fn named<T>(&self, operation: FileOperation, result: io::Result<T>) -> Result<T, AofError> {
        result.map_err(|e| AofError::io(operation, &*self.path, e))
    }

    pub(crate) fn length(&self) -> Result<u64, AofError> {
        self.named(FileOperation::Length, self.file.length())
    }

    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, AofError> {
        self.named(FileOperation::Read, self.file.read_at(buffer, offset))
    }

    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), AofError> {
        self.named(FileOperation::Write, self.file.write_at(bytes, offset))
    }

    pub(crate) fn allocate(&self, length: u64) -> Result<(), AofError> {
        self.named(FileOperation::Allocate, self.file.allocate(length))
    }

    pub(crate) fn set_length(&self, length: u64) -> Result<(), AofError> {
        self.named(FileOperation::SetLength, self.file.set_length(length))
    }

    pub(crate) fn sync(&self) -> Result<(), AofError> {
        self.named(FileOperation::Sync, self.file.sync())
    }
}
