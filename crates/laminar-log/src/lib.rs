//! The segmented log: one durable log for all partitions, one log and one state machine for each.
//!
//! Raft replicates entries ([`entry`]), each with records for one or more partitions, and every replica does the same with
//! them. This crate knows neither openraft nor a network; it takes its runtime from outside ([`Runtime`]).
//!
//! # One entry, through the modules in order
//!
//! 1. [`dispatcher`] admits it, before anything is proposed (ADM-1).
//! 2. [`SegmentedLogStore`] (`store/`) is the Raft log: operations in one append-only file set, votes among them.
//! 3. [`verdict`] decides what becomes of it, once, in log order, for all its partitions: epoch and owner, duplicates,
//!    places and offsets.
//! 4. [`SegmentedStateMachine`] (`segmented/`) hands the accepted records to their partitions: into their own logs
//!    ([`partition_log`]), and to their machines ([`machine`]), one record in flight a partition (APPLY-1). The reply is sent
//!    when all of them have applied it.
//! 5. [`snapshot`] holds what all of that comes to at one index, in a file and on its way to another replica.
//! 6. [`cut`](mod@cut) finds how far a reader may go over many partitions without seeing half of an entry.
//! 7. [`tracking`] and [`metrics`] tell how far everybody is; [`inspect`] looks at a folder from outside.
//!
//! Every byte that is stored or sent is drawn in [`format`](mod@format), `store/format.rs` and `snapshot/format.rs`. What must
//! always hold has an id, and `docs/invariants.md` says where it is enforced and tested.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod cut;
pub mod dispatcher;
pub mod entry;
mod error;
pub mod format;
pub mod inspect;
pub mod layout;
mod log_id;
pub mod machine;
pub mod metrics;
pub mod partition_log;
mod runtime;
mod segmented;
mod setting;
pub mod snapshot;
mod store;
pub mod tracking;
pub mod verdict;

pub use error::LogError;
pub use log_id::{LogId, PartitionLogIndex, Vote};
pub use runtime::Runtime;
pub use segmented::{
    BarrierError, BuiltInMachines, EntrySource, MachineFactory, Membership, PartitionEvent, PartitionStatus,
    Parts, Reply, SegmentedConfig, SegmentedStateMachine, SnapshotBuild, SnapshotPieces, SnapshotStream,
};
pub use setting::SettingOutOfRange;
pub use store::{EntryPayload, LogEntry, SegmentedLogConfig, SegmentedLogStore, StoreOpened, StoreState};
