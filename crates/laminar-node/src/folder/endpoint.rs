//! Where the node of a folder listens, for other processes of this user.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::FolderError;
use super::identity::write_durably;

const NAME: &str = "node.json";

/// Where a node listens, and the secret that it asks for. Only this user can read the file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// `host:port` on the loopback interface.
    pub address: String,
    /// What every call must carry.
    pub secret: String,
    /// The node's process.
    pub pid: u32,
    /// The epoch of the folder that it began.
    pub folder_epoch: u64,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("address", &self.address)
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}

impl Endpoint {
    /// What stands in the folder, if anything does.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn read(folder: &Path) -> Result<Option<Self>, FolderError> {
        let path = folder.join(NAME);
        match fs::read(&path) {
            Ok(bytes) => {
                let unreadable = |source| FolderError::Unreadable { path: path.clone(), source };
                serde_json::from_slice(&bytes).map(Some).map_err(unreadable)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            Err(error) => Err(FolderError::call("read", &path, error)),
        }
    }

    /// Tells others where the node is.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), FolderError> {
        let text = serde_json::to_vec_pretty(self).expect("four plain fields");
        write_durably(folder, NAME, &text, 0o600)
    }

    /// Removes what a node left that was killed: its port may be anybody's by now.
    pub(super) fn forget(folder: &Path) {
        drop(fs::remove_file(folder.join(NAME)));
    }

    /// The node is going. A file of another node stays.
    pub(crate) fn remove(&self, folder: &Path) {
        if Self::read(folder).is_ok_and(|found| found.as_ref() == Some(self)) {
            drop(fs::remove_file(folder.join(NAME)));
        }
    }
}
