//! The segmented log: one durable log for all partitions, one log and one state machine for each.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

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
pub use store::{EntryPayload, LogEntry, SegmentedLogConfig, SegmentedLogStore, StoreOpened, StoreState};
