//! The folders of all partitions, and how one of them goes away for good.
//!
//! A folder is emptied file by file, which a crash may interrupt. So a marker is put beside it first: from then on the
//! partition is gone, and whoever finds the marker finishes the work.

use std::io;
use std::path::{Path, PathBuf};

use laminar_aof::{AofError, Committer, FileOperation};
use laminar_core::ids::PartitionId;

use crate::error::LogError;

const DEAD: &str = ".dead";

/// Where the log of a partition is.
pub fn partition_folder(root: &Path, partition: PartitionId) -> PathBuf {
    root.join(format!("{:08x}", partition.0))
}

fn marker(root: &Path, partition: PartitionId) -> PathBuf {
    root.join(format!("{:08x}{DEAD}", partition.0))
}

fn parse(name: &str) -> Option<PartitionId> {
    let digits = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if name.len() != 8 || !name.bytes().all(digits) {
        return None;
    }
    u32::from_str_radix(name, 16).ok().map(PartitionId)
}

/// The partitions that have a log under `root`, in order; not those that are being destroyed.
///
/// # Errors
///
/// Unavailable, if the folder cannot be read.
pub fn list_partitions(committer: &Committer, root: &Path) -> Result<Vec<PartitionId>, LogError> {
    let names = list(committer, root)?;
    let dead = dead(&names);
    let mut found: Vec<PartitionId> = names.iter().filter_map(|name| parse(name)).collect();
    found.retain(|partition| !dead.contains(partition));
    found.sort_unstable();
    Ok(found)
}

/// Finishes what a crash interrupted: removes the partitions that were being destroyed, and says which. To be called
/// before any log under `root` is opened.
///
/// # Errors
///
/// Unavailable, if a file call fails; it can be called again.
pub fn clean_root(committer: &Committer, root: &Path) -> Result<Vec<PartitionId>, LogError> {
    let dead = dead(&list(committer, root)?);
    dead.iter().try_for_each(|partition| remove_marked(committer, root, *partition))?;
    Ok(dead)
}

/// Removes the log of a partition, whatever it holds. It must not be open. Once this returns, or once a crash came
/// after the marker was there and [`clean_root`] ran, nothing of it is left; before, all of it is.
///
/// # Errors
///
/// Unavailable, if a file call fails; it can be called again.
pub fn remove_partition(committer: &Committer, root: &Path, partition: PartitionId) -> Result<(), LogError> {
    mark(committer, root, partition)?;
    remove_marked(committer, root, partition)
}

/// Finishes a removal of this partition that failed before, at whichever step: what comes now must not go with it.
pub(super) fn finish_removal(
    committer: &Committer,
    root: &Path,
    partition: PartitionId,
) -> Result<(), LogError> {
    let (fs, path) = (committer.file_system(), marker(root, partition));
    match fs.open(&path, false) {
        // It may be gone and not durably so.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            call(FileOperation::SyncDir, root, fs.sync_dir(root))
        }
        opened => {
            call(FileOperation::Open, &path, opened)?;
            remove_marked(committer, root, partition)
        }
    }
}

/// From here on the partition is gone.
fn mark(committer: &Committer, root: &Path, partition: PartitionId) -> Result<(), LogError> {
    let (fs, path) = (committer.file_system(), marker(root, partition));
    call(FileOperation::CreateDir, root, fs.create_dir(root))?;
    match fs.create(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => drop(call(FileOperation::Create, &path, created)?),
    }
    call(FileOperation::SyncDir, root, fs.sync_dir(root))
}

/// Removes the folder, then the marker; in this order also after a power cut.
fn remove_marked(committer: &Committer, root: &Path, partition: PartitionId) -> Result<(), LogError> {
    let (fs, dir) = (committer.file_system(), partition_folder(root, partition));
    match fs.list(&dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        names => {
            for name in call(FileOperation::List, &dir, names)? {
                let path = dir.join(name);
                call(FileOperation::Remove, &path, fs.remove(&path))?;
            }
            call(FileOperation::SyncDir, &dir, fs.sync_dir(&dir))?;
            call(FileOperation::Remove, &dir, fs.remove_dir(&dir))?;
        }
    }
    call(FileOperation::SyncDir, root, fs.sync_dir(root))?;
    let path = marker(root, partition);
    call(FileOperation::Remove, &path, fs.remove(&path))?;
    call(FileOperation::SyncDir, root, fs.sync_dir(root))
}

fn dead(names: &[String]) -> Vec<PartitionId> {
    let mut dead: Vec<PartitionId> =
        names.iter().filter_map(|name| name.strip_suffix(DEAD).and_then(parse)).collect();
    dead.sort_unstable();
    dead
}

/// The names in a folder; none if there is no such folder.
fn list(committer: &Committer, dir: &Path) -> Result<Vec<String>, LogError> {
    match committer.file_system().list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => call(FileOperation::List, dir, listed),
    }
}

fn call<T>(operation: FileOperation, path: &Path, result: io::Result<T>) -> Result<T, LogError> {
    result.map_err(|error| AofError::io(operation, path, error).into())
}
