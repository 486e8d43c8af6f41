//! The laminar node: both Raft groups, the services, and the folder they live in.
//!
//! Embedded and server are the same node. An embedded one is the only voter of its groups, lives in the process that
//! opened the folder, and answers other processes of this user over a loopback port.
//!
//! # One append, through the files in order
//!
//! 1. `service.rs` takes the call, over gRPC (`connection.rs`) or from this process.
//! 2. `node/append.rs` checks it, finds owner and epoch, and proposes one entry to the data group.
//! 3. The data group's apply refuses any record whose epoch is not the partition's at that place of the log (wall 2).
//! 4. The verdict comes back with offsets, or with who took over and when.
//!
//! # One claim
//!
//! 1. `ownership/claim.rs` takes the partitions in the metadata: one compare-and-set over all of them.
//! 2. `ownership/carry.rs` carries the new epochs into the data log as fences, and again after a crash.
//! 3. Only then has the writer its guards; the watch tells the old one's that they are over.
//!
//! # Invariants
//!
//! 1. Two processes are never both the node of a folder (`folder/lock.rs`).
//! 2. **EPOCH-2**: nothing of an epoch lands after the fence that ends it; the node only carries the fence, the log refuses.
//! 3. **OWN-2**: every change of the metadata names what it expects, and has a request id.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod clock;
mod config;
mod connection;
mod detached;
pub mod embedded;
mod error;
pub mod folder;
mod machines;
mod metrics;
mod node;
mod ownership;
mod random;
mod refused;
mod running;
mod serve;
mod service;
mod staged_kv;

pub use config::NodeConfig;
pub use embedded::{FolderConnector, Role};
pub use machines::{ApplicationMachines, NoMachines};
pub use node::Node;
