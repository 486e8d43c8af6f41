//! Bytes that cannot be read.

use thiserror::Error;

use super::ErrorKind;

/// Bytes that should be an entry, a response or a snapshot, and are not.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FormatError {
    /// The bytes do not start as a snapshot does.
    #[error(
        "not a metadata snapshot: it does not start with \"LAMIMETA\"; check which file or object this is"
    )]
    NotASnapshot,
    /// Written by a newer release.
    #[error("{what} has version {found} and this release reads up to {newest}; upgrade laminar on this node")]
    VersionTooNew {
        /// What the bytes are.
        what: &'static str,
        /// The version found.
        found: u32,
        /// The newest version this release reads.
        newest: u32,
    },
    /// Bytes are missing at the end.
    #[error("metadata snapshot: {found} bytes, expected {expected}; fetch it again from a replica")]
    Truncated {
        /// How many bytes there are.
        found: u64,
        /// How many there should be.
        expected: u64,
    },
    /// The bytes changed since they were written.
    #[error(
        "metadata snapshot: {part} checksum {found:08x}, expected {expected:08x}; fetch it again from a replica"
    )]
    Checksum {
        /// Header or body.
        part: &'static str,
        /// The checksum of the bytes as they are.
        found: u32,
        /// The checksum written with them.
        expected: u32,
    },
    /// Not a message of ours.
    #[error("{what}: the bytes are not the message they should be; fetch it again from a replica")]
    Undecodable {
        /// What the bytes should be.
        what: &'static str,
        /// Where decoding stopped.
        source: prost::DecodeError,
    },
    /// A message of ours whose content cannot be right.
    #[error("{what}: {reason}; fetch it again from a replica")]
    Malformed {
        /// What the bytes are.
        what: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl FormatError {
    /// Invalid where the release is too old for the bytes, else Corrupt.
    pub fn kind(&self) -> ErrorKind {
        match self {
            FormatError::VersionTooNew { .. } => ErrorKind::Invalid,
            FormatError::NotASnapshot
            | FormatError::Truncated { .. }
            | FormatError::Checksum { .. }
            | FormatError::Undecodable { .. }
            | FormatError::Malformed { .. } => ErrorKind::Corrupt,
        }
    }
}
