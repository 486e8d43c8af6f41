//! Raft for laminar: openraft over the segmented log. No other crate knows openraft.
//!
//! # One write, through the files in order
//!
//! 1. [`DataReplica::propose`] admits an entry and hands it over, with whatever else waits (`replica/propose.rs`), as
//!    [`Data`]: an encoded entry (`types.rs`).
//! 2. openraft hands its entries to [`RaftLog`] (`log_storage.rs`), which puts them into the
//!    [`SegmentedLogStore`](laminar_log::SegmentedLogStore); the flush callback comes after the fsync and never before.
//! 3. Replication and apply read them back through the same type (`log_reader.rs`), in pieces of bounded size.
//! 4. [`RaftMachine`] (`machine.rs`) waits until an entry is on this disk, and has it decided.
//! 5. What apply answers is the group's response type, for a data group [`Response`]: a verdict, or the promise of one
//!    (`late.rs`) while the partitions still apply it.
//!
//! Everything is generic over openraft's `AsyncRuntime`, so that the same code runs on tokio and on the simulated one;
//! [`OpenraftRuntime`] (`runtime.rs`) hands that runtime on to the log below.
//!
//! The metadata group is such a group too, with one partition: [`RaftCoordinator`] (`coordinator/`).
//!
//! # Invariants
//!
//! 1. **LOG-3**: an append is reported as flushed, and a vote as saved, only when it is on disk.
//! 2. **LOG-1**: an entry is applied only when it is on this disk, whatever a quorum of others has.
//! 3. **LOG-6**: when the log fails, openraft ends; the replica opens the log again and starts it anew
//!    (`replica/supervise.rs`).
//! 4. At most one leader a term (openraft's standard leader ids), so a log id is a term and an index.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod blocking;
mod config;
mod convert;
mod coordinator;
mod crew_runtime;
mod late;
mod log_reader;
mod log_storage;
mod machine;
mod membership;
mod replica;
mod retire;
mod runtime;
mod sole_network;
mod source;
#[doc(hidden)]
pub mod testing;
mod types;
mod watch;

pub use config::{RaftSettings, raft_config};
pub use convert::{from_log_id, to_log_id};
pub use coordinator::{
    CoordinationError, CoordinatorParts, CoordinatorStatus, OwnershipWatch, RaftCoordinator,
    RaftCoordinatorConfig, Registration, WatchEvent, Written,
};
pub use crew_runtime::CrewRuntime;
pub use late::LateVerdict;
pub use log_storage::RaftLog;
pub use machine::{DataSnapshot, RaftMachine, SnapshotData};
pub use membership::{MembershipError, decode_membership, encode_membership};
pub use openraft_rt_tokio::TokioRuntime;
pub use replica::{
    DataReplica, Decided, NotServing, ProposeError, ReadIndexError, ReplicaConfig, ReplicaError,
    ReplicaParts, ReplicaPhase, ReplicaStatus, RpcRefusal, UnknownReason, WallClock,
};
pub use runtime::OpenraftRuntime;
pub use sole_network::{SoleLink, SoleNetwork};
pub use source::LogSource;
pub use types::{
    CommittedLeaderId, Data, DataConfig, DataGroup, Group, GroupConfig, LeaderId, Node, RaftEntry, RaftLogId,
    RaftMembership, RaftPayload, RaftVote, Response,
};
pub use watch::{CrewWatch, CrewWatchReceiver, CrewWatchSender};
