//! Whoever is at the other end of a link.

use std::fmt::Display;
use std::future::Future;

use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::storage::{RaftStateMachine, Snapshot};
use openraft::{AppDataResponse, AsyncRuntime};

use crate::machine::SnapshotData;
use crate::replica::DataReplica;
use crate::types::{CommittedLeaderId, DataConfig, Group, GroupConfig, Node, RaftVote, Response};

type Config<R, P> = GroupConfig<R, <P as Peer<R>>::Answer>;
pub(super) type PeerSnapshot<R, P> = Snapshot<CommittedLeaderId, u64, Node, <P as Peer<R>>::SnapshotData>;

/// What a node does with what others send it.
pub trait Peer<R: AsyncRuntime>: Clone + Send + Sync + 'static {
    /// What its group answers to entries.
    type Answer: AppDataResponse;
    /// A snapshot of its group.
    type SnapshotData: Send + 'static;
    /// Why it gives no answer.
    type Refusal: Display + Send;

    /// Appends entries.
    fn append(
        self,
        request: AppendEntriesRequest<Config<R, Self>>,
    ) -> impl Future<Output = Result<AppendEntriesResponse<Config<R, Self>>, Self::Refusal>> + Send;

    /// Votes.
    fn vote(
        self,
        request: VoteRequest<Config<R, Self>>,
    ) -> impl Future<Output = Result<VoteResponse<Config<R, Self>>, Self::Refusal>> + Send;

    /// Says whether it would vote.
    fn pre_vote(
        self,
        request: VoteRequest<Config<R, Self>>,
    ) -> impl Future<Output = Result<VoteResponse<Config<R, Self>>, Self::Refusal>> + Send;

    /// Installs a snapshot.
    fn install(
        self,
        vote: RaftVote,
        snapshot: PeerSnapshot<R, Self>,
    ) -> impl Future<Output = Result<SnapshotResponse<Config<R, Self>>, Self::Refusal>> + Send;

    /// Takes over.
    fn take_over(
        self,
        request: TransferLeaderRequest<Config<R, Self>>,
    ) -> impl Future<Output = Result<TransferLeaderResponse<Config<R, Self>>, Self::Refusal>> + Send;
}

impl<R, A, M> Peer<R> for Group<R, A, M>
where
    R: AsyncRuntime,
    A: AppDataResponse,
    M: RaftStateMachine<GroupConfig<R, A>>,
{
    type Answer = A;
    type SnapshotData = M::SnapshotData;
    type Refusal = String;

    async fn append(
        self,
        request: AppendEntriesRequest<GroupConfig<R, A>>,
    ) -> Result<AppendEntriesResponse<GroupConfig<R, A>>, String> {
        self.append_entries(request).await.map_err(|error| error.to_string())
    }

    async fn vote(
        self,
        request: VoteRequest<GroupConfig<R, A>>,
    ) -> Result<VoteResponse<GroupConfig<R, A>>, String> {
        openraft::Raft::vote(&self, request).await.map_err(|error| error.to_string())
    }

    async fn pre_vote(
        self,
        request: VoteRequest<GroupConfig<R, A>>,
    ) -> Result<VoteResponse<GroupConfig<R, A>>, String> {
        openraft::Raft::pre_vote(&self, request).await.map_err(|error| error.to_string())
    }

    async fn install(
        self,
        vote: RaftVote,
        snapshot: Snapshot<CommittedLeaderId, u64, Node, M::SnapshotData>,
    ) -> Result<SnapshotResponse<GroupConfig<R, A>>, String> {
        self.install_full_snapshot(vote, snapshot).await.map_err(|error| error.to_string())
    }

    async fn take_over(
        self,
        request: TransferLeaderRequest<GroupConfig<R, A>>,
    ) -> Result<TransferLeaderResponse<GroupConfig<R, A>>, String> {
        self.handle_transfer_leader(request).await.map_err(|error| error.to_string())
    }
}

impl<R: AsyncRuntime> Peer<R> for DataReplica<R> {
    type Answer = Response;
    type SnapshotData = SnapshotData;
    type Refusal = crate::replica::RpcRefusal;

    async fn append(
        self,
        request: AppendEntriesRequest<DataConfig<R>>,
    ) -> Result<AppendEntriesResponse<DataConfig<R>>, Self::Refusal> {
        self.handle_append(request).await
    }

    async fn vote(
        self,
        request: VoteRequest<DataConfig<R>>,
    ) -> Result<VoteResponse<DataConfig<R>>, Self::Refusal> {
        self.handle_vote(request).await
    }

    async fn pre_vote(
        self,
        request: VoteRequest<DataConfig<R>>,
    ) -> Result<VoteResponse<DataConfig<R>>, Self::Refusal> {
        self.handle_pre_vote(request).await
    }

    async fn install(
        self,
        vote: RaftVote,
        snapshot: crate::machine::DataSnapshot,
    ) -> Result<SnapshotResponse<DataConfig<R>>, Self::Refusal> {
        self.handle_snapshot(vote, snapshot).await
    }

    async fn take_over(
        self,
        request: TransferLeaderRequest<DataConfig<R>>,
    ) -> Result<TransferLeaderResponse<DataConfig<R>>, Self::Refusal> {
        self.handle_transfer_leader(request).await
    }
}
