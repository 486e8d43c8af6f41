//! What a folder is: its format, its cluster, and how often it was opened.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::FolderError;

/// The newest format of a folder that this release knows, and the one it makes.
pub const FORMAT_VERSION: u32 = 1;
const NAME: &str = "folder.json";
/// What a folder may hold before it is one of laminar's: what a crash in the middle of making it leaves.
const EARLY: [&str; 3] = ["lock", "folder.json.new", "lost+found"];

/// The identity of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The layout of the folder.
    pub format: u32,
    /// Tells one cluster from all others: 32 hexadecimal digits.
    pub cluster_id: String,
    /// One more whenever a process becomes the node.
    pub folder_epoch: u64,
}

impl Identity {
    /// The identity of a folder, if it has one.
    ///
    /// # Errors
    ///
    /// Invalid, if a newer release made it; Corrupt, if it cannot be read.
    pub fn read(folder: &Path) -> Result<Option<Self>, FolderError> {
        let path = folder.join(NAME);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(FolderError::call("read", &path, error)),
        };
        // The format is looked at first: of a newer one nothing else may be understood.
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let unreadable = |source| FolderError::Unreadable { path: path.clone(), source };
        let Format { format } = serde_json::from_slice(&bytes).map_err(unreadable)?;
        if format > FORMAT_VERSION {
            return Err(FolderError::TooNew {
                path: folder.to_owned(),
                found: format,
                known: FORMAT_VERSION,
            });
        }
        serde_json::from_slice(&bytes).map(Some).map_err(unreadable)
    }

    /// Begins the next epoch of a folder whose lock is held: on disk when this returns.
    pub(super) fn next(folder: &Path) -> Result<Self, FolderError> {
        let identity = match Self::read(folder)? {
            Some(identity) => Identity { folder_epoch: identity.folder_epoch.saturating_add(1), ..identity },
            None => Identity { format: FORMAT_VERSION, cluster_id: random_hex()?, folder_epoch: 1 },
        };
        let text = serde_json::to_vec_pretty(&identity).expect("three plain fields");
        write_durably(folder, NAME, &text, 0o644)?;
        Ok(identity)
    }
}

/// Refuses a path where a cluster is no more.
pub(super) fn check_cluster(path: &Path, expected: &str) -> Result<(), FolderError> {
    let (path, expected) = (path.to_owned(), expected.to_owned());
    match Identity::read(&path)? {
        None => Err(FolderError::Gone { path, expected }),
        Some(Identity { cluster_id: found, .. }) if found != expected => {
            Err(FolderError::OtherCluster { path, found, expected })
        }
        Some(_) => Ok(()),
    }
}

/// Refuses a path at which no node can be found, now or soon. A folder that is only being made has its lock.
pub(super) fn check_there(path: &Path) -> Result<(), FolderError> {
    check_text(path)?;
    if !is_folder(path)? {
        return Err(FolderError::Missing { path: path.to_owned() });
    }
    if Identity::read(path)?.is_some() || path.join("lock").exists() {
        return Ok(());
    }
    Err(FolderError::NotLaminar { path: path.to_owned() })
}

/// Refuses a path that is not ours to use, before anything is made there.
pub(super) fn check_before_use(path: &Path) -> Result<(), FolderError> {
    check_text(path)?;
    if !is_folder(path)? || Identity::read(path)?.is_some() {
        return Ok(());
    }
    let entries = fs::read_dir(path).map_err(|error| FolderError::call("list", path, error))?;
    for entry in entries {
        let entry = entry.map_err(|error| FolderError::call("list", path, error))?;
        let found = entry.file_name().to_string_lossy().into_owned();
        if !EARLY.contains(&found.as_str()) {
            return Err(FolderError::Foreign { path: path.to_owned(), found });
        }
    }
    Ok(())
}

/// Refuses a path that is not text, also behind links. The object store cannot be opened in one, and clients are told where
/// blocks are as text.
fn check_text(path: &Path) -> Result<(), FolderError> {
    // What is not there yet is no link.
    let real = path.ancestors().find_map(|there| there.canonicalize().ok());
    for path in [Some(path), real.as_deref()].into_iter().flatten() {
        if path.to_str().is_none() {
            return Err(FolderError::NotText { path: path.to_owned() });
        }
    }
    Ok(())
}

/// Whether a folder is at a path, and not nothing. Anything else is refused.
fn is_folder(path: &Path) -> Result<bool, FolderError> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(true),
        Ok(_) => Err(FolderError::NotAFolder { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(FolderError::call("look at", path, error)),
    }
}

/// Replaces a small file so that a crash leaves the old one or the new one.
pub(super) fn write_durably(folder: &Path, name: &str, bytes: &[u8], mode: u32) -> Result<(), FolderError> {
    let (new, path) = (folder.join(format!("{name}.new")), folder.join(name));
    let write = || -> io::Result<()> {
        // A file left over keeps the mode it has.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|error| FolderError::call("write", &path, error))
}

/// 128 bits of chance as hexadecimal digits.
pub(super) fn random_hex() -> Result<String, FolderError> {
    Ok(format!("{:032x}", crate::random::bits128()))
}
