//! What can go wrong with a replica, and what to do about it.

use std::time::Duration;

use laminar_core::error::ErrorKind;
use laminar_core::ids::NodeId;
use laminar_log::dispatcher::AdmissionRefusal;
use laminar_log::{LogError, SettingOutOfRange};
use openraft::ConfigError;
use thiserror::Error;

/// Why a replica cannot be opened.
#[derive(Debug, Error)]
pub enum ReplicaError {
    /// Its files.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A setting.
    #[error(transparent)]
    Setting(#[from] SettingOutOfRange),
    /// A setting of Raft.
    #[error("a setting of raft is out of its range")]
    Raft(#[from] ConfigError),
    /// openraft could not start.
    #[error("node {node}: raft did not start; look at the cause, and open the replica again")]
    NotStarted {
        /// This node.
        node: NodeId,
        /// What openraft says.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The group was given its members before, by this node or another.
    #[error("node {node}: the group has members already; it is initialised once")]
    Initialized {
        /// This node.
        node: NodeId,
    },
    /// The members do not make sense.
    #[error("node {node}: these are no members for a group")]
    BadMembers {
        /// This node.
        node: NodeId,
        /// What openraft says.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The replica does not serve now.
    #[error(transparent)]
    NotServing(#[from] NotServing),
}

impl ReplicaError {
    /// What the caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ReplicaError::Log(error) => error.kind(),
            ReplicaError::Setting(error) => error.kind(),
            ReplicaError::Raft(_) | ReplicaError::Initialized { .. } | ReplicaError::BadMembers { .. } => {
                ErrorKind::Invalid
            }
            ReplicaError::NotStarted { .. } => ErrorKind::Unavailable,
            ReplicaError::NotServing(error) => error.kind(),
        }
    }
}

/// Why a replica does nothing for its callers.
#[derive(Debug, Clone, Error)]
pub enum NotServing {
    /// Its storage failed, and it is being opened again (LOG-6).
    #[error("the replica is being rebuilt after a fault of its storage; try again")]
    Rebuilding,
    /// It has not yet everything again that was committed before it was opened.
    #[error(
        "the replica has not yet recovered what was committed before it was opened; wait, or look for a leader"
    )]
    Recovering,
    /// It cannot be opened again by itself.
    #[error(
        "the replica has stopped, its storage cannot be opened; look at the cause, or restore it from another"
    )]
    Failed(#[source] LogError),
    /// It was shut down.
    #[error("the replica was shut down")]
    ShutDown,
}

impl NotServing {
    /// What the caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            NotServing::Rebuilding | NotServing::Recovering | NotServing::ShutDown => ErrorKind::Unavailable,
            NotServing::Failed(error) => error.kind(),
        }
    }
}

/// Why a proposal has no verdict. An entry that was refused has one: that is no error.
#[derive(Debug, Clone, Error)]
pub enum ProposeError {
    /// Another node leads, or nobody does. Nothing was proposed.
    #[error("not proposed, this node does not lead the group ({}); ask the leader", leads(.leader))]
    NotLeader {
        /// Who leads, if that is known.
        leader: Option<NodeId>,
        /// Where it can be reached.
        address: Option<String>,
    },
    /// A limit was reached. Nothing was proposed.
    #[error(transparent)]
    Overloaded(#[from] AdmissionRefusal),
    /// The replica does not serve now. Nothing was proposed.
    #[error(transparent)]
    NotServing(#[from] NotServing),
    /// The entry was proposed, and nobody knows whether it took effect or still will: retry it under the same producer
    /// sequence or batch, or look.
    #[error(
        "proposed, and its outcome is unknown ({reason}); retry it with the same producer sequence or batch"
    )]
    Unknown {
        /// Why there is no verdict.
        reason: UnknownReason,
    },
}

pub(crate) fn leads(leader: &Option<NodeId>) -> String {
    leader.map_or_else(|| "nobody is known to".to_owned(), |leader| format!("node {leader} does"))
}

/// Why the outcome of a proposal is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum UnknownReason {
    /// The group ended on this node while the entry was under way.
    #[error("the group ended on this node")]
    Stopped,
    /// Another leader took over, and this node's copy of the entry was discarded.
    #[error("another leader took over")]
    LeaderChanged,
    /// It was applied, and so much since that its answer is not kept any more.
    #[error("its answer is not kept any more")]
    Forgotten,
    /// It took too long.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
}

impl ProposeError {
    /// What the caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ProposeError::NotLeader { .. } | ProposeError::Unknown { .. } => ErrorKind::Unavailable,
            ProposeError::Overloaded(refusal) => refusal.kind(),
            ProposeError::NotServing(error) => error.kind(),
        }
    }

    /// Whether the entry may have taken effect, or still may.
    pub fn is_unknown(&self) -> bool {
        matches!(self, ProposeError::Unknown { .. })
    }
}

/// Why a message of another node gets no answer. The network tells the sender that this node cannot be reached.
#[derive(Debug, Clone, Error)]
pub enum RpcRefusal {
    /// The replica does not serve now.
    #[error(transparent)]
    NotServing(#[from] NotServing),
    /// Its log was cut, and it has not caught up with a leader since.
    #[error("not yet: the log of this replica was cut, and it catches up first")]
    CatchingUp,
    /// The group ended while it was asked.
    #[error("the group ended on this node")]
    Stopped,
}
