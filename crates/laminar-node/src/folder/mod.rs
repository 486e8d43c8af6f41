//! The folder that a node lives in.
//!
//! ```text
//!  ./data
//!    lock            held by the process that is the node, and by nobody else (lock.rs)
//!    folder.json     format, cluster id, how often the folder was opened (identity.rs)
//!    node.json       where the node listens and its secret, readable by this user alone (endpoint.rs)
//!    node.N.sock     where the node of epoch N listens too, if the path is short enough for a socket
//!    metadata/       the metadata group: raft/, partitions/, snapshots/
//!    data/           the data group, alike
//!    objects/        staged blocks
//! ```
//!
//! Two processes can never both be the node of a folder: the lock decides. Should a file system break its word about
//! locks, the epoch in `folder.json` has moved on, and a node that finds it moved stops serving.

mod endpoint;
mod error;
mod identity;
mod lock;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use endpoint::Endpoint;
pub use error::FolderError;
pub use identity::{FORMAT_VERSION, Identity};
pub use lock::{FolderLock, close_locks_in_forked_child};

/// A folder that this process may be the node of.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    identity: Identity,
    /// Held until it is released.
    lock: Mutex<Option<FolderLock>>,
}

impl Folder {
    /// Takes a folder for this process: that of a cluster, or any, and then it is made if there is none. `None` if another
    /// process has it.
    ///
    /// # Errors
    ///
    /// Invalid: it is no folder of laminar, or of another cluster, or a newer release made it, or its file system has no
    /// working locks. Unavailable: the folder of a cluster is gone, or a file call failed.
    pub fn take(path: &Path, cluster: Option<&str>) -> Result<Option<Self>, FolderError> {
        make(path, cluster)?;
        let path = path.canonicalize().map_err(|error| FolderError::call("find", path, error))?;
        let Some(lock) = FolderLock::take(&path)? else { return Ok(None) };
        // Another may have come between the first look and the lock.
        cluster.map_or(Ok(()), |cluster| identity::check_cluster(&path, cluster))?;
        Endpoint::forget(&path);
        let identity = Identity::next(&path)?;
        Ok(Some(Folder { path, identity, lock: Mutex::new(Some(lock)) }))
    }

    /// Tells whether nobody is the node of a folder. Somebody may be a moment later. It is made as by [`take`](Self::take).
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    pub fn is_free(path: &Path, cluster: Option<&str>) -> Result<bool, FolderError> {
        make(path, cluster)?;
        Ok(FolderLock::take(path)?.is_some())
    }

    /// Whether some process is the node of a folder. Changes nothing, and makes nothing. The folder of a cluster may be away
    /// for a while; without one, something that is no folder of laminar's is an error.
    ///
    /// # Errors
    ///
    /// Invalid: there is no folder or it is not laminar's, or its file system has no working locks. Unavailable: a file call
    /// failed.
    pub fn has_node(path: &Path, cluster: Option<&str>) -> Result<bool, FolderError> {
        if cluster.is_none() {
            identity::check_there(path)?;
        }
        FolderLock::is_taken(path)
    }

    /// Its absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its identity.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether it is still this process' folder: not removed, replaced, or opened by another in spite of the lock.
    pub fn is_ours(&self) -> bool {
        let held = self.lock().as_ref().is_some_and(FolderLock::is_held);
        held && Identity::read(&self.path).is_ok_and(|identity| identity.as_ref() == Some(&self.identity))
    }

    /// Lets another process have it. Everything in it must be closed.
    pub fn release(&self) {
        drop(self.lock().take());
    }

    fn lock(&self) -> MutexGuard<'_, Option<FolderLock>> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a folder if there is none, unless that of a cluster is wanted.
fn make(path: &Path, cluster: Option<&str>) -> Result<(), FolderError> {
    if let Some(cluster) = cluster {
        return identity::check_cluster(path, cluster);
    }
    identity::check_before_use(path)?;
    std::fs::create_dir_all(path).map_err(|error| FolderError::call("make", path, error))
}
