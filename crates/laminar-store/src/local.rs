//! The folder of a local store.
//!
//! `LocalFileSystem::with_fsync` syncs a new file, the folder it is linked into and the folders it makes on the way. What is
//! left to do here: the folder of blocks is made durable before the first block, because of two writers that make it at
//! once only one would sync it; and a block that a writer finds already there is synced again, because the one
//! that linked it may have died before its sync.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::block::{BlockId, STAGE};
use crate::error::StoreError;

/// The folder of a local store.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes the folder and the one of blocks in it, durably.
    pub(crate) async fn create(path: PathBuf) -> Result<Self, StoreError> {
        let made = path.clone();
        blocking(move || create_synced(&made.join(STAGE))).await.map_err(|source| StoreError::Folder {
            path: path.clone(),
            doing: "made",
            source,
        })?;
        // Absolute: the process may change its folder later.
        let absolute = fs::canonicalize(&path).map_err(|source| StoreError::Folder {
            path,
            doing: "found again",
            source,
        })?;
        Ok(Self { path: absolute })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Syncs a block that is there already, and its name.
    pub(crate) async fn sync(&self, block: BlockId) -> Result<(), StoreError> {
        let path = self.path.join(block.path());
        let synced = path.clone();
        blocking(move || {
            File::open(&synced)?.sync_all()?;
            sync_folder(synced.parent())
        })
        .await
        .map_err(|source| StoreError::Folder { path, doing: "synced", source })
    }
}

async fn blocking(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Makes a folder and those above it, and syncs each folder that has got a new entry.
fn create_synced(path: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut folder = path;
    while !folder.exists() {
        missing.push(folder);
        match folder.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => folder = parent,
            _ => break,
        }
    }
    fs::create_dir_all(path)?;
    // From the inside out: a name is durable only after what it leads to.
    missing.into_iter().try_for_each(|made| sync_folder(made.parent()))?;
    sync_folder(path.parent())
}

fn sync_folder(folder: Option<&Path>) -> io::Result<()> {
    match folder {
        Some(folder) if folder.as_os_str().is_empty() => File::open(".")?.sync_all(),
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
