//! The rules of laminar as pure computation: who owns a partition, since which epoch, and who should.
//!
//! Nothing here opens a file, starts a task, reads a clock or draws a random number. The log, Raft, the object store
//! and Python stand on this crate; it stands on none of them.
//!
//! # One ownership, through the files in order
//!
//! 1. [`assign`] decides which node should own which partition: the ring prefers, the band balances.
//! 2. [`metadata`] records it: a [`MetadataLogEntry`](metadata::MetadataLogEntry) names what it expects, and
//!    [`DeltaMetadata::apply`](metadata::DeltaMetadata::apply) accepts or rejects it the same way on every replica.
//! 3. [`guard`] proves it: the owner makes a [`PartitionGuard`](guard::PartitionGuard) and checks it before each write.
//! 4. [`error`] says what to do when the proof fails.
//!
//! # Invariants
//!
//! 1. **EPOCH-1**: epochs of a partition only grow, across drops and re-creations too.
//! 2. **EPOCH-3**: a guard never goes from stale back to fresh.
//! 3. **OWN-1**: a partition has at most one owner at any applied index.
//! 4. **OWN-2**: changes are compare-and-set; a delayed or repeated request changes nothing.
//! 5. **APPLY-2** (for the metadata): the same entries give the same bytes.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod assign;
pub mod error;
pub mod guard;
pub mod ids;
pub mod metadata;
pub mod node;
