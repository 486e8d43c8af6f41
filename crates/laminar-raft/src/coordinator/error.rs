//! What can go wrong with the metadata group, and what to do about it.

use std::time::Duration;

use laminar_core::error::{ErrorKind, FormatError};
use laminar_core::ids::{LogIndex, NodeId, RequestId};
use laminar_log::LogError;
use laminar_log::dispatcher::AdmissionRefusal;
use laminar_log::verdict::Refusal;
use thiserror::Error;

use crate::replica::{NotServing, ReplicaError, UnknownReason, leads};

/// Why the metadata group did not answer. A change that was rejected has an answer: that is no error.
#[derive(Debug, Error)]
pub enum CoordinationError {
    /// The group could not be opened or given its members.
    #[error("the metadata group is not started; look at the cause")]
    Raft {
        /// Why.
        #[source]
        source: Box<ReplicaError>,
    },
    /// Another node leads, or nobody did in time. Nothing was done.
    #[error("refused, this node does not lead the metadata group ({}); ask the leader", leads(.leader))]
    NotLeader {
        /// Who leads, if that is known.
        leader: Option<NodeId>,
        /// Where it can be reached.
        address: Option<String>,
    },
    /// The group has no members yet. Nothing was done.
    #[error("the metadata group has no members after {waited:?}; initialise it on one of them")]
    NotInitialized {
        /// How long it was waited.
        waited: Duration,
    },
    /// A limit was reached. Nothing was done.
    #[error(transparent)]
    Overloaded(#[from] AdmissionRefusal),
    /// The replica does not serve. Nothing was done.
    #[error(transparent)]
    NotServing(#[from] NotServing),
    /// The change was proposed, and nobody knows whether it took effect or still will.
    #[error(
        "metadata request {request_id}: proposed, and its outcome is unknown ({reason}); retry it with the same request id"
    )]
    Unknown {
        /// The request.
        request_id: RequestId,
        /// Why there is no answer.
        reason: UnknownReason,
    },
    /// The entry was committed and cannot be read; no replica has applied it.
    #[error("metadata entry {index} was committed and cannot be read; nothing of it was applied")]
    Unreadable {
        /// The entry.
        index: LogIndex,
        /// What is wrong with it.
        #[source]
        source: FormatError,
    },
    /// The log of the group refused the entry; nothing of it was applied.
    #[error("the log of the metadata group refused the entry; report it")]
    Refused {
        /// Why.
        #[source]
        source: Box<Refusal>,
    },
    /// Too few nodes confirm that this one still leads.
    #[error("no quorum of the metadata group has answered within {waited:?}; try again")]
    Network {
        /// How long it was waited.
        waited: Duration,
    },
    /// This node has not applied the entry in time that a read needs.
    #[error(
        "metadata entry {index} is not applied on this node after {waited:?} (it is at {applied}); try again"
    )]
    Behind {
        /// The entry.
        index: LogIndex,
        /// How far this node is.
        applied: LogIndex,
        /// How long it was waited.
        waited: Duration,
    },
    /// A snapshot was not there in time; the one before stays, and it is tried again.
    #[error(
        "no snapshot of the metadata up to entry {index} after {waited:?} ({}); the one before stays, and it is tried \
         again", .fault.as_deref().unwrap_or("it is still being built")
    )]
    Snapshot {
        /// The entry that it should reach.
        index: LogIndex,
        /// How long it was waited.
        waited: Duration,
        /// What failed last.
        fault: Option<String>,
    },
    /// What was written last could not be synced when the group ended.
    #[error("the metadata group has ended, and what was written last may not be on disk")]
    Shutdown(#[source] LogError),
}

impl CoordinationError {
    /// What the caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            CoordinationError::Raft { source } => source.kind(),
            CoordinationError::Overloaded(refusal) => refusal.kind(),
            CoordinationError::NotServing(error) => error.kind(),
            CoordinationError::Unreadable { .. } => ErrorKind::Invalid,
            CoordinationError::Refused { .. } => ErrorKind::Internal,
            CoordinationError::Shutdown(error) => error.kind(),
            CoordinationError::NotLeader { .. }
            | CoordinationError::NotInitialized { .. }
            | CoordinationError::Unknown { .. }
            | CoordinationError::Network { .. }
            | CoordinationError::Behind { .. }
            | CoordinationError::Snapshot { .. } => ErrorKind::Unavailable,
        }
    }

    /// Whether the change may have taken effect, or still may.
    pub fn is_unknown(&self) -> bool {
        matches!(self, CoordinationError::Unknown { .. })
    }
}

impl From<ReplicaError> for CoordinationError {
    fn from(error: ReplicaError) -> Self {
        match error {
            ReplicaError::NotServing(error) => CoordinationError::NotServing(error),
            error => CoordinationError::Raft { source: Box::new(error) },
        }
    }
}
