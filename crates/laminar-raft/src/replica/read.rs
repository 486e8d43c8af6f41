//! Where a linearizable read has to look.

use laminar_core::error::ErrorKind;
use laminar_core::ids::{LogIndex, NodeId};
use openraft::AsyncRuntime;
use openraft::ReadPolicy;
use openraft::errors::{LinearizableReadError, RaftError};
use thiserror::Error;

use super::DataReplica;
use super::error::{NotServing, leads};

/// Why a read has no index to wait for.
#[derive(Debug, Clone, Error)]
pub enum ReadIndexError {
    /// Another node leads, or nobody does.
    #[error("read refused, this node does not lead the group ({}); ask the leader", leads(.leader))]
    NotLeader {
        /// Who leads, if that is known.
        leader: Option<NodeId>,
        /// Where it can be reached.
        address: Option<String>,
    },
    /// Too few nodes confirm that this one still leads.
    #[error("read refused, no quorum has confirmed that this node leads the group; try again")]
    NoQuorum,
    /// The replica does not serve now.
    #[error(transparent)]
    NotServing(#[from] NotServing),
}

impl ReadIndexError {
    /// What the caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ReadIndexError::NotLeader { .. } | ReadIndexError::NoQuorum => ErrorKind::Unavailable,
            ReadIndexError::NotServing(error) => error.kind(),
        }
    }
}

impl<R: AsyncRuntime> DataReplica<R> {
    /// The entry that a replica must have applied for what it shows to have everything that was acknowledged before
    /// this was called. A quorum has confirmed that this node leads when it returns.
    ///
    /// A linearizable read waits at a [`barrier`](laminar_log::SegmentedStateMachine::barrier) at this index, here or on
    /// another replica, and then reads.
    ///
    /// # Errors
    ///
    /// Unavailable: this node does not lead or serve, or no quorum answers within `proposal_timeout`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn read_index(&self) -> Result<LogIndex, ReadIndexError> {
        let life = self.inner.serving()?;
        let asked = life.raft.get_read_linearizer(ReadPolicy::ReadIndex);
        match R::timeout(self.inner.config.proposal_timeout, asked).await {
            Ok(Ok(read)) => Ok(LogIndex(read.read_log_id().index())),
            Ok(Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(to)))) => {
                Err(ReadIndexError::NotLeader {
                    leader: to.leader_id.map(NodeId),
                    address: to.leader_node.map(|node| node.address),
                })
            }
            Ok(Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_)))) | Err(_) => {
                Err(ReadIndexError::NoQuorum)
            }
            Ok(Err(RaftError::Fatal(_))) => Err(NotServing::Rebuilding.into()),
        }
    }
}
