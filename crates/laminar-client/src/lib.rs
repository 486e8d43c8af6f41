//! The client of laminar: streams, writers and readers over a node in this process or another.
//!
//! It does what users see; the Python module converts and calls it. It runs on the tokio runtime of whoever calls, makes
//! none of its own, and keeps no global state.
//!
//! One append, file by file:
//!
//! 1. `stream.rs` takes rows; `codec.rs` places them in partitions and encodes them, `staging.rs` writes large ones as a
//!    block of the store.
//! 2. `producer/` sends them: one request in flight for each handle, everything that waits goes with the next.
//! 3. `session.rs` calls the node over `transport.rs`, found by a [`Connector`]; `retry.rs` decides what is sent again. To
//!    another process they go over a call that stays open (`open_appends.rs`).
//!
//! A writer (`writer.rs`, `batch.rs`) is a registered run (`run.rs`) with guards (`ownership.rs`) that `guards.rs` keeps fresh.
//! A run of many processes keeps nothing here: each of them asks for its batch (`begin.rs`).
//! A reader (`reader.rs`) has one place for each partition (`cursor.rs`), which outlives connections. `cut.rs` says how far
//! to read without half of a commit, `verify.rs` checks what is stored, and `compact/` leaves the newest row of each key.
//!
//! What holds:
//!
//! 1. An error whose `outcome_unknown` is false left nothing behind; what may have landed is never called refused.
//! 2. A retry is the same request: same producer and sequence, or same query and number (TXN-1, TXN-2).
//! 3. Every wait has an end: the time limit of the handle. Only a reader that follows waits for rows without one.
//! 4. No answer of a node makes it panic.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod appended;
mod batch;
mod begin;
mod chance;
mod cluster;
mod codec;
mod compact;
mod config;
mod connector;
mod cursor;
mod cut;
mod description;
mod growth;
mod guards;
mod open_appends;
mod ownership;
mod presence;
mod producer;
mod reader;
mod retry;
mod run;
mod scan;
mod session;
mod staging;
mod stored;
mod stream;
mod task;
mod transport;
mod verify;
mod writer;

pub use appended::{Appended, RowRange};
pub use batch::Batch;
pub use begin::{BegunBatch, HeldEpoch, NewBatch};
pub use cluster::{Alteration, Cluster, MetadataSnapshot, NewStream};
pub use codec::Pair;
pub use compact::{CompactCommit, CompactOptions, CompactOutcome, CompactedRows};
pub use config::{ClientConfig, ClusterPin};
pub use connector::{Connected, ConnectionId, Connector, RemoteConnector};
pub use cut::{Cut, CutOptions};
pub use description::StreamInfo;
pub use laminar_rpc::{ErrorClass, Failure, Field, proto};
pub use open_appends::OpenAppends;
pub use reader::{End, ReadOptions, RowReader, Start};
pub use scan::ScanReader;
pub use stream::{Barrier, OffsetRange, StreamHandle};
pub use task::{Commit, TaskOptions, TaskWriter};
pub use transport::{Answers, Bearer, MESSAGE_BYTES_MAX, NodeService, RemoteNode, Transport};
pub use verify::{Verified, VerifyFault};
pub use writer::Writer;
