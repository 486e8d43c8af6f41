//! The lock that makes one process the node of a folder.
//!
//! `flock` belongs to an open file and not to a process: a forked child would keep it when its parent is gone. So the
//! files stand in a table from which a forked child closes them all; closing its copy does not unlock the parent's.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::error::FolderError;

static HELD: Mutex<BTreeMap<u64, File>> = Mutex::new(BTreeMap::new());
static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// The lock of a folder. Dropped, it is free.
#[derive(Debug)]
pub struct FolderLock {
    key: u64,
    process: u32,
}

impl FolderLock {
    /// Takes the lock; `None` if somebody has it.
    pub(super) fn take(folder: &Path) -> Result<Option<Self>, FolderError> {
        let path = folder.join("lock");
        let file = open(&path)?;
        if !try_lock(&file, &path)? {
            return Ok(None);
        }
        // Whoever opens the file again must not get the lock as well.
        if try_lock(&open(&path)?, &path)? {
            return Err(FolderError::NoLocks { path: folder.to_owned() });
        }
        // ORDER: relaxed; only that numbers differ matters.
        let key = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        held().insert(key, file);
        Ok(Some(FolderLock { key, process: std::process::id() }))
    }

    /// Whether any process has it. Nothing is made: where there is no lock, nobody has it.
    pub(super) fn is_taken(folder: &Path) -> Result<bool, FolderError> {
        let path = folder.join("lock");
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(false);
            }
            Err(error) => return Err(FolderError::call("open", &path, error)),
        };
        // Shared, so that those who look do not see each other.
        Ok(!flock_now(&file, &path, FlockOperation::NonBlockingLockShared)?)
    }

    /// Whether this process holds it: a forked child does not.
    pub fn is_held(&self) -> bool {
        self.process == std::process::id() && held().contains_key(&self.key)
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            held().remove(&self.key);
        }
    }
}

/// Closes the copies of locks that a forked child got from its parent. To be called in the child, before anything else.
pub fn close_locks_in_forked_child() {
    match HELD.try_lock() {
        Ok(mut held) => held.clear(),
        Err(TryLockError::Poisoned(held)) => held.into_inner().clear(),
        // Somebody was opening or closing a folder at that moment, and never will be done with it here.
        Err(TryLockError::WouldBlock) => {}
    }
}

fn held() -> MutexGuard<'static, BTreeMap<u64, File>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(path: &PathBuf) -> Result<File, FolderError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(path).map_err(|error| FolderError::call("open", path, error))
}

fn try_lock(file: &File, path: &Path) -> Result<bool, FolderError> {
    flock_now(file, path, FlockOperation::NonBlockingLockExclusive)
}

/// Takes a lock if that is possible at once; tells whether it was.
fn flock_now(file: &File, path: &Path, operation: FlockOperation) -> Result<bool, FolderError> {
    match flock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) => {
            Err(FolderError::NoLocks { path: path.parent().unwrap_or(path).to_owned() })
        }
        Err(error) => Err(FolderError::call("lock", path, error.into())),
    }
}
