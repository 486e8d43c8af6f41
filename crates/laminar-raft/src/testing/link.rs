//! The way from one node to another.

use std::fmt;
use std::future::Future;

use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::{RPCOption, RPCTypes, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::storage::{RaftStateMachine, Snapshot};
use openraft::{AppDataResponse, AsyncRuntime, OptionalSend, RaftNetworkFactory};

use super::{Lost, Router};
use crate::types::{CommittedLeaderId, Group, GroupConfig, Node, RaftVote};

/// Makes the links of one life of a node.
#[derive(Debug)]
pub struct Factory<R: AsyncRuntime, A: AppDataResponse, M: RaftStateMachine<GroupConfig<R, A>>> {
    pub(super) router: Router<R, A, M>,
    pub(super) from: u64,
    pub(super) life: u64,
}

impl<R, A, M> RaftNetworkFactory<GroupConfig<R, A>> for Factory<R, A, M>
where
    R: AsyncRuntime,
    A: AppDataResponse,
    M: RaftStateMachine<GroupConfig<R, A>>,
{
    type Network = Link<R, A, M>;

    async fn new_client(&mut self, target: u64, _: &Node) -> Self::Network {
        Link { router: self.router.clone(), from: self.from, life: self.life, to: target }
    }
}

/// The way from one node to another.
#[derive(Debug)]
pub struct Link<R: AsyncRuntime, A: AppDataResponse, M: RaftStateMachine<GroupConfig<R, A>>> {
    router: Router<R, A, M>,
    from: u64,
    life: u64,
    to: u64,
}

impl<R, A, M> Link<R, A, M>
where
    R: AsyncRuntime,
    A: AppDataResponse,
    M: RaftStateMachine<GroupConfig<R, A>>,
{
    /// Asks the other node, and brings back its answer if nothing is in the way.
    async fn ask<T, E, F>(
        &self,
        action: RPCTypes,
        option: &RPCOption,
        ask: impl FnOnce(Group<R, A, M>) -> F,
    ) -> Result<T, RPCError<GroupConfig<R, A>>>
    where
        F: Future<Output = Result<T, E>>,
        E: fmt::Display,
    {
        match self.exchange(ask).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(RPCError::Unreachable(Unreachable::from_string(error))),
            Err(Lost::Refused) => {
                Err(RPCError::Unreachable(Unreachable::from_string(format!("node {} is down", self.to))))
            }
            Err(Lost::Silently) => {
                let timeout = option.soft_ttl();
                R::sleep(timeout).await;
                Err(RPCError::Timeout(Timeout { action, id: self.from, target: self.to, timeout }))
            }
        }
    }

    async fn exchange<T, F>(&self, ask: impl FnOnce(Group<R, A, M>) -> F) -> Result<T, Lost>
    where
        F: Future<Output = T>,
    {
        self.router.carry(self.from, self.to).await?;
        let (raft, life) = {
            let inner = self.router.inner();
            if inner.lives.get(&self.from) != Some(&self.life) {
                return Err(Lost::Silently);
            }
            let raft = inner.nodes.get(&self.to).cloned().ok_or(Lost::Refused)?;
            (raft, inner.lives[&self.to])
        };
        let answer = ask(raft).await;
        self.router.carry(self.to, self.from).await?;
        // A node that has died since says nothing.
        let lives = &self.router.inner().lives;
        if lives[&self.to] == life && lives[&self.from] == self.life {
            Ok(answer)
        } else {
            Err(Lost::Silently)
        }
    }
}

impl<R, A, M> RaftNetworkV2<GroupConfig<R, A>> for Link<R, A, M>
where
    R: AsyncRuntime,
    A: AppDataResponse,
    M: RaftStateMachine<GroupConfig<R, A>>,
{
    type SnapshotData = M::SnapshotData;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<GroupConfig<R, A>>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<GroupConfig<R, A>>, RPCError<GroupConfig<R, A>>> {
        self.ask(RPCTypes::AppendEntries, &option, |raft| async move { raft.append_entries(rpc).await }).await
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<GroupConfig<R, A>>,
        option: RPCOption,
    ) -> Result<VoteResponse<GroupConfig<R, A>>, RPCError<GroupConfig<R, A>>> {
        self.ask(RPCTypes::Vote, &option, |raft| async move { raft.vote(rpc).await }).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<GroupConfig<R, A>>,
        option: RPCOption,
    ) -> Result<VoteResponse<GroupConfig<R, A>>, RPCError<GroupConfig<R, A>>> {
        self.ask(RPCTypes::Vote, &option, |raft| async move { raft.pre_vote(rpc).await }).await
    }

    async fn full_snapshot(
        &mut self,
        vote: RaftVote,
        snapshot: Snapshot<CommittedLeaderId, u64, Node, Self::SnapshotData>,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<GroupConfig<R, A>>, StreamingError<GroupConfig<R, A>>> {
        let install = |raft: Group<R, A, M>| async move { raft.install_full_snapshot(vote, snapshot).await };
        Ok(self.ask(RPCTypes::InstallSnapshot, &option, install).await?)
    }

    async fn transfer_leader(
        &mut self,
        rpc: TransferLeaderRequest<GroupConfig<R, A>>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<GroupConfig<R, A>>, RPCError<GroupConfig<R, A>>> {
        let hand_over = |raft: Group<R, A, M>| async move { raft.handle_transfer_leader(rpc).await };
        self.ask(RPCTypes::TransferLeader, &option, hand_over).await
    }
}
