//! The way from one node to another.

use std::fmt;
use std::future::Future;

use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::{RPCOption, RPCTypes, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::storage::Snapshot;
use openraft::{AsyncRuntime, OptionalSend, RaftNetworkFactory};

use super::peer::Peer;
use super::{Lost, Router};
use crate::types::{CommittedLeaderId, GroupConfig, Node, RaftVote};

/// Makes the links of one life of a node.
#[derive(Debug)]
pub struct Factory<R: AsyncRuntime, P: Peer<R>> {
    pub(super) router: Router<R, P>,
    pub(super) from: u64,
    pub(super) life: u64,
}

// Derived, this would ask the same of `R`.
impl<R: AsyncRuntime, P: Peer<R>> Clone for Factory<R, P> {
    fn clone(&self) -> Self {
        Self { router: self.router.clone(), ..*self }
    }
}

impl<R: AsyncRuntime, P: Peer<R>> RaftNetworkFactory<GroupConfig<R, P::Answer>> for Factory<R, P> {
    type Network = Link<R, P>;

    async fn new_client(&mut self, target: u64, _: &Node) -> Self::Network {
        Link { router: self.router.clone(), from: self.from, life: self.life, to: target }
    }
}

/// The way from one node to another.
#[derive(Debug)]
pub struct Link<R: AsyncRuntime, P: Peer<R>> {
    router: Router<R, P>,
    from: u64,
    life: u64,
    to: u64,
}

impl<R: AsyncRuntime, P: Peer<R>> Link<R, P> {
    /// Asks the other node, and brings back its answer if nothing is in the way.
    async fn ask<T, E, F>(
        &self,
        action: RPCTypes,
        option: &RPCOption,
        ask: impl FnOnce(P) -> F,
    ) -> Result<T, RPCError<GroupConfig<R, P::Answer>>>
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

    async fn exchange<T, F>(&self, ask: impl FnOnce(P) -> F) -> Result<T, Lost>
    where
        F: Future<Output = T>,
    {
        self.router.carry(self.from, self.to).await?;
        let (peer, life) = {
            let inner = self.router.inner();
            if inner.lives.get(&self.from) != Some(&self.life) {
                return Err(Lost::Silently);
            }
            let peer = inner.nodes.get(&self.to).cloned().ok_or(Lost::Refused)?;
            (peer, inner.lives[&self.to])
        };
        let answer = ask(peer).await;
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

impl<R: AsyncRuntime, P: Peer<R>> RaftNetworkV2<GroupConfig<R, P::Answer>> for Link<R, P> {
    type SnapshotData = P::SnapshotData;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<GroupConfig<R, P::Answer>>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<GroupConfig<R, P::Answer>>, RPCError<GroupConfig<R, P::Answer>>> {
        self.ask(RPCTypes::AppendEntries, &option, |peer| peer.append(rpc)).await
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<GroupConfig<R, P::Answer>>,
        option: RPCOption,
    ) -> Result<VoteResponse<GroupConfig<R, P::Answer>>, RPCError<GroupConfig<R, P::Answer>>> {
        self.ask(RPCTypes::Vote, &option, |peer| peer.vote(rpc)).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<GroupConfig<R, P::Answer>>,
        option: RPCOption,
    ) -> Result<VoteResponse<GroupConfig<R, P::Answer>>, RPCError<GroupConfig<R, P::Answer>>> {
        self.ask(RPCTypes::Vote, &option, |peer| peer.pre_vote(rpc)).await
    }

    async fn full_snapshot(
        &mut self,
        vote: RaftVote,
        snapshot: Snapshot<CommittedLeaderId, u64, Node, Self::SnapshotData>,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<GroupConfig<R, P::Answer>>, StreamingError<GroupConfig<R, P::Answer>>> {
        Ok(self.ask(RPCTypes::InstallSnapshot, &option, |peer| peer.install(vote, snapshot)).await?)
    }

    async fn transfer_leader(
        &mut self,
        rpc: TransferLeaderRequest<GroupConfig<R, P::Answer>>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<GroupConfig<R, P::Answer>>, RPCError<GroupConfig<R, P::Answer>>> {
        self.ask(RPCTypes::TransferLeader, &option, |peer| peer.take_over(rpc)).await
    }
}
