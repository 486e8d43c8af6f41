//! Where the node of a folder listens, for other processes of this user.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::FolderError;
use super::identity::write_durably;

const NAME: &str = "node.json";
/// The socket of each node has a name of its own: a connection that comes back by itself must not find the next node, which
/// asks for another secret.
const SOCKET_BEGIN: &str = "node.";
const SOCKET_END: &str = ".sock";
/// The longest path of a socket that Linux takes; macOS takes four bytes less.
const SOCKET_PATH_MAX: usize = 103;

/// Where a node listens, and the secret that it asks for. Only this user can read the file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// `host:port` on the loopback interface.
    pub address: String,
    /// The name of the socket in the folder that it listens on too; it is faster, and not every file system has it.
    #[serde(default)]
    pub socket: Option<String>,
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
        let text = serde_json::to_vec_pretty(self).expect("five plain fields");
        write_durably(folder, NAME, &text, 0o600)
    }

    /// The name of a socket for the node that began this epoch of a folder, if its path can be that of a socket.
    pub(crate) fn socket_name(folder: &Path, folder_epoch: u64) -> Option<String> {
        let name = format!("{SOCKET_BEGIN}{folder_epoch}{SOCKET_END}");
        let length = folder.join(&name).to_str()?.len();
        (length <= SOCKET_PATH_MAX).then_some(name)
    }

    /// Where the socket is, as seen through this path of the folder.
    pub(crate) fn socket_path(&self, folder: &Path) -> Option<PathBuf> {
        let path = folder.join(self.socket.as_ref()?);
        (path.to_str()?.len() <= SOCKET_PATH_MAX).then_some(path)
    }

    /// Removes what a node left that was killed: its port may be anybody's by now.
    pub(super) fn forget(folder: &Path) {
        drop(fs::remove_file(folder.join(NAME)));
        let Ok(entries) = fs::read_dir(folder) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let is_socket = name
                .to_str()
                .is_some_and(|name| name.starts_with(SOCKET_BEGIN) && name.ends_with(SOCKET_END));
            if is_socket {
                drop(fs::remove_file(entry.path()));
            }
        }
    }

    /// The node is going. A file of another node stays.
    pub(crate) fn remove(&self, folder: &Path) {
        if Self::read(folder).is_ok_and(|found| found.as_ref() == Some(self)) {
            Self::forget(folder);
        }
    }
}
