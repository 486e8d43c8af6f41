//! What can be wrong with a folder.

use std::io;
use std::path::{Path, PathBuf};

use laminar_core::error::ErrorKind;
use laminar_rpc::{ErrorClass, Failure};
use thiserror::Error;

/// Why a folder cannot be used.
#[derive(Debug, Error)]
pub enum FolderError {
    /// Something else is in it.
    #[error("{path}: not a laminar folder ({found} is in it and folder.json is not); name an empty or a new folder", path = .path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// Something that is in it.
        found: String,
    },
    /// There is nothing at the path.
    #[error(
        "{path}: there is no such folder; name another, or make it with laminar.open",
        path = .path.display()
    )]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// Nothing of laminar's is in it.
    #[error(
        "{path}: not a laminar folder (folder.json is not in it); name another, or make it one with laminar.open",
        path = .path.display()
    )]
    NotLaminar {
        /// The folder.
        path: PathBuf,
    },
    /// Its name cannot be written down as text.
    #[error(
        "path {path:?}: its name is not UTF-8, which the object store and node.json need; use another name"
    )]
    NotText {
        /// The path.
        path: PathBuf,
    },
    /// It was there, and is no more.
    #[error(
        "{path}: the folder is gone, and with it cluster {expected} of this handle; put it back, or open another",
        path = .path.display()
    )]
    Gone {
        /// The folder.
        path: PathBuf,
        /// The cluster that was in it.
        expected: String,
    },
    /// Another cluster is in it.
    #[error(
        "{path}: it now belongs to another cluster, id {found}, and this handle is of cluster {expected}; open it anew",
        path = .path.display()
    )]
    OtherCluster {
        /// The folder.
        path: PathBuf,
        /// The cluster that is in it.
        found: String,
        /// The cluster that was in it.
        expected: String,
    },
    /// A newer release made it.
    #[error(
        "{path}: the folder has format {found} and this release knows up to {known}; use the release that made it, or a newer one",
        path = .path.display()
    )]
    TooNew {
        /// The folder.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest that is known.
        known: u32,
    },
    /// A file of it cannot be understood.
    #[error("{path}: it cannot be read as what laminar wrote; restore it from a copy", path = .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// The path is a file.
    #[error("{path}: not a folder; name a folder", path = .path.display())]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// Two locks on one file were both granted.
    #[error(
        "{path}: its file system grants one lock twice, so two nodes could both write; use a local file system",
        path = .path.display()
    )]
    NoLocks {
        /// The folder.
        path: PathBuf,
    },
    /// A file call failed.
    #[error("{path}: could not {what} it; look at the cause", path = .path.display())]
    Call {
        /// What was tried.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl FolderError {
    pub(super) fn call(what: &'static str, path: &Path, source: io::Error) -> Self {
        FolderError::Call { what, path: path.to_owned(), source }
    }

    /// What the caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            FolderError::Foreign { .. }
            | FolderError::Missing { .. }
            | FolderError::NotLaminar { .. }
            | FolderError::NotText { .. }
            | FolderError::OtherCluster { .. }
            | FolderError::TooNew { .. }
            | FolderError::NotAFolder { .. }
            | FolderError::NoLocks { .. } => ErrorKind::Invalid,
            FolderError::Gone { .. } => ErrorKind::Unavailable,
            FolderError::Unreadable { .. } => ErrorKind::Corrupt,
            FolderError::Call { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied
                | io::ErrorKind::NotFound
                | io::ErrorKind::ReadOnlyFilesystem
                | io::ErrorKind::NotADirectory
                | io::ErrorKind::InvalidInput
                | io::ErrorKind::InvalidFilename => ErrorKind::Invalid,
                _ => ErrorKind::Unavailable,
            },
        }
    }
}

impl From<FolderError> for Failure {
    fn from(error: FolderError) -> Self {
        let class = match error.kind() {
            ErrorKind::Invalid => ErrorClass::Invalid,
            ErrorKind::Corrupt => ErrorClass::Corruption,
            _ => ErrorClass::Unavailable,
        };
        Failure::new(class, crate::error::with_causes(&error))
    }
}
