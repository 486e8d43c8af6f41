//! What other nodes ask of this one. The network calls these, and not openraft itself: a replica that catches up after
//! a cut answers less (`hold.rs`).

use laminar_log::LogId;
use openraft::AsyncRuntime;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};

use super::DataReplica;
use super::error::RpcRefusal;
use super::hold::{Answer, HoldState, has_caught_up, may_answer};
use super::life::Life;
use crate::convert::{from_log_id, to_log_id, to_vote};
use crate::machine::DataSnapshot;
use crate::types::{DataConfig, RaftVote};

impl<R: AsyncRuntime> DataReplica<R> {
    /// Appends what a leader sends.
    ///
    /// # Errors
    ///
    /// The replica does not serve, or catches up: the sender tries again.
    pub async fn handle_append(
        &self,
        request: AppendEntriesRequest<DataConfig<R>>,
    ) -> Result<AppendEntriesResponse<DataConfig<R>>, RpcRefusal> {
        let life = self.inner.serving()?;
        let seen = Seen::of(&request);
        let answer = life.raft.append_entries(request).await.map_err(|_| RpcRefusal::Stopped)?;
        if !life.hold.is_held() || !answer.is_success() {
            return Ok(answer);
        }
        if has_caught_up(&life.store, seen.commit, seen.term) {
            life.release(HoldState::Free);
            return Ok(answer);
        }
        match may_answer(seen.previous, seen.last, seen.commit) {
            Answer::Whole => Ok(answer),
            Answer::UpTo(committed) => {
                Ok(AppendEntriesResponse::PartialSuccess(Some(from_log_id(committed))))
            }
            Answer::NotYet => Err(RpcRefusal::CatchingUp),
        }
    }

    /// Votes, or does not.
    ///
    /// # Errors
    ///
    /// As [`handle_append`](Self::handle_append).
    pub async fn handle_vote(
        &self,
        request: VoteRequest<DataConfig<R>>,
    ) -> Result<VoteResponse<DataConfig<R>>, RpcRefusal> {
        let life = self.voting()?;
        life.raft.vote(request).await.map_err(|_| RpcRefusal::Stopped)
    }

    /// Says whether it would vote.
    ///
    /// # Errors
    ///
    /// As [`handle_append`](Self::handle_append).
    pub async fn handle_pre_vote(
        &self,
        request: VoteRequest<DataConfig<R>>,
    ) -> Result<VoteResponse<DataConfig<R>>, RpcRefusal> {
        let life = self.voting()?;
        life.raft.pre_vote(request).await.map_err(|_| RpcRefusal::Stopped)
    }

    /// Installs a snapshot that a leader sends. All it holds is committed, so it may be acknowledged at any time.
    ///
    /// # Errors
    ///
    /// As [`handle_append`](Self::handle_append).
    pub async fn handle_snapshot(
        &self,
        vote: RaftVote,
        snapshot: DataSnapshot,
    ) -> Result<SnapshotResponse<DataConfig<R>>, RpcRefusal> {
        let life = self.inner.serving()?;
        life.raft.install_full_snapshot(vote, snapshot).await.map_err(|_| RpcRefusal::Stopped)
    }

    /// Takes over from a leader that asks for it.
    ///
    /// # Errors
    ///
    /// As [`handle_append`](Self::handle_append).
    pub async fn handle_transfer_leader(
        &self,
        request: TransferLeaderRequest<DataConfig<R>>,
    ) -> Result<TransferLeaderResponse<DataConfig<R>>, RpcRefusal> {
        let life = self.voting()?;
        life.raft.handle_transfer_leader(request).await.map_err(|_| RpcRefusal::Stopped)
    }

    fn voting(&self) -> Result<std::sync::Arc<Life<R>>, RpcRefusal> {
        let life = self.inner.serving()?;
        if life.hold.is_held() { Err(RpcRefusal::CatchingUp) } else { Ok(life) }
    }
}

/// What an append says about the leader's log.
struct Seen {
    term: u64,
    previous: Option<LogId>,
    last: Option<LogId>,
    commit: Option<LogId>,
}

impl Seen {
    fn of<R: AsyncRuntime>(request: &AppendEntriesRequest<DataConfig<R>>) -> Self {
        let previous = request.prev_log_id.as_ref().map(to_log_id);
        Self {
            term: to_vote(&request.vote).term,
            previous,
            last: request.entries.last().map(|entry| to_log_id(&entry.log_id)).or(previous),
            commit: request.leader_commit.as_ref().map(to_log_id),
        }
    }
}
