//! What can go wrong with a store.

use std::io;
use std::path::PathBuf;

use laminar_core::error::ErrorKind;
use thiserror::Error;

/// Why a store could not be opened or used.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The store lets a second writer replace what is there.
    #[error(
        "object store {store}: it accepted the same new name {path} twice, so it cannot keep writers apart; use another"
    )]
    NotCreateOnly {
        /// The store.
        store: String,
        /// The probe.
        path: String,
    },
    /// The folder of a local store cannot be made or reached.
    #[error("folder {}: it could not be {doing}; check that it exists and may be written", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What was done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The name of a block is taken by another content.
    #[error(
        "block {path}: the name is taken by {found_length} bytes with checksum {found:016x}, to be written were \
         {length} with {expected:016x}; stage it under a new id"
    )]
    BlockTaken {
        /// The block.
        path: String,
        /// The length of what is there.
        found_length: u64,
        /// The checksum of what is there.
        found: u64,
        /// The length of what was to be written.
        length: u64,
        /// The checksum of what was to be written.
        expected: u64,
    },
    /// A block is not there.
    #[error("block {path}: it is not there; it expired, or another store is meant")]
    Missing {
        /// The block.
        path: String,
    },
    /// A block is shorter than a pointer to it says.
    #[error("block {path}: bytes {begin} to {end} asked for, and it has {length}; restore it from a copy")]
    TooShort {
        /// The block.
        path: String,
        /// Where the part begins.
        begin: u64,
        /// Where it ends.
        end: u64,
        /// How long the block is.
        length: u64,
    },
    /// A block's bytes are not what was written.
    #[error(
        "block {path}, bytes {begin} to {end}: checksum {found:016x}, expected {expected:016x}; restore it from a copy"
    )]
    Corrupt {
        /// The block.
        path: String,
        /// Where the part begins.
        begin: u64,
        /// Where it ends.
        end: u64,
        /// The checksum of what is there.
        found: u64,
        /// The checksum that was asked for.
        expected: u64,
    },
    /// No name of a block.
    #[error("block path {path:?}: a block is at stage/ and 32 hex digits; pass a path that staging gave")]
    BadPath {
        /// What was passed.
        path: String,
    },
    /// A range that ends before it begins.
    #[error("block {path}: bytes {begin} to {end} asked for; a range begins before it ends")]
    BadRange {
        /// The block.
        path: String,
        /// Where the range begins.
        begin: u64,
        /// Where it ends.
        end: u64,
    },
    /// The store did not answer, or refused.
    #[error("{path}: it could not be {doing}; a write may have happened, repeat it with the same id")]
    Access {
        /// The object.
        path: String,
        /// What was done.
        doing: &'static str,
        /// What the store said.
        source: object_store::Error,
    },
    /// No random numbers for an id.
    #[error("the system gave no random numbers for the id of a block; try again")]
    NoRandom {
        /// What the system said.
        source: io::Error,
    },
}

impl StoreError {
    /// What the caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            StoreError::NotCreateOnly { .. } | StoreError::BadPath { .. } | StoreError::BadRange { .. } => {
                ErrorKind::Invalid
            }
            // Ids are random: whoever used this one twice has a bug.
            StoreError::BlockTaken { .. } => ErrorKind::Internal,
            StoreError::Missing { .. } | StoreError::TooShort { .. } | StoreError::Corrupt { .. } => {
                ErrorKind::Corrupt
            }
            StoreError::Folder { .. } | StoreError::Access { .. } | StoreError::NoRandom { .. } => {
                ErrorKind::Unavailable
            }
        }
    }
}
