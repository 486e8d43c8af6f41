//! Snapshots of a data group: verdict state, the state of every partition's machine, and, for another replica, the
//! rows that are kept. One stream of checksummed frames, in a file or on its way to a peer.
//!
//! ```text
//!  <dir>/<16-hex raft index>-<16-hex term>.snap      a snapshot of this replica, in the local form
//!  <dir>/<16-hex raft index>-<16-hex term>.install   one that came from a peer, in the streamed form, and is to be
//!                                                    installed: from here on this replica has no other state
//!  <dir>/<16-hex number>.tmp                         one that is being written; removed at the next start
//! ```
//!
//! 1. [`SnapshotWriter`] (`writer.rs`) turns parts into frames (`format.rs`) in the one order there is (`order.rs`).
//! 2. [`SnapshotStore::write_new`] (`store.rs`) writes them to a file, syncs it, and only then gives it its name.
//! 3. [`SnapshotReader`] and [`SnapshotDecoder`] (`reader.rs`, `decoder.rs`) read a file or a stream, and verify.
//! 4. [`SnapshotStore::begin_install`] (`install.rs`) receives a stream, and [`SnapshotStore::commit_install`] makes it
//!    the one to be installed. Whoever finds it rewrites the partitions' logs, writes the local form, and calls
//!    [`SnapshotStore::finish_install`]; all of that may be done twice.

mod decoder;
mod error;
mod file;
mod format;
mod frame;
mod install;
mod order;
mod reader;
mod store;
mod writer;

pub use decoder::SnapshotDecoder;
pub use error::SnapshotError;
pub use file::FileSink;
pub use format::{FRAME_BYTES_MAX, SNAPSHOT_VERSION};
pub use frame::{Frame, SnapshotForm, SnapshotHead, SnapshotPartition, SnapshotSummary};
pub use install::IncomingSnapshot;
pub use reader::SnapshotReader;
pub use store::SnapshotStore;
pub use writer::{SnapshotSink, SnapshotWriter};
