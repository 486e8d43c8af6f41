//! The network of a group of one voter: there is nobody to talk to.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;

use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{AsyncRuntime, OptionalSend, RaftNetworkFactory};

use crate::machine::{DataSnapshot, SnapshotData};
use crate::types::{DataConfig, Node, RaftVote};

/// Reaches nobody. A group of one voter never asks it for anything.
pub struct SoleNetwork<R> {
    runtime: PhantomData<fn() -> R>,
}

/// The way to a node that cannot be reached.
pub struct SoleLink<R> {
    target: u64,
    runtime: PhantomData<fn() -> R>,
}

impl<R> SoleNetwork<R> {
    /// A network without anybody else.
    pub fn new() -> Self {
        Self { runtime: PhantomData }
    }
}

// Derived, these would ask the same of `R`.
impl<R> Default for SoleNetwork<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R> Clone for SoleNetwork<R> {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl<R> fmt::Debug for SoleNetwork<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SoleNetwork")
    }
}

impl<R> fmt::Debug for SoleLink<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoleLink").field("target", &self.target).finish()
    }
}

impl<R: AsyncRuntime> RaftNetworkFactory<DataConfig<R>> for SoleNetwork<R> {
    type Network = SoleLink<R>;

    async fn new_client(&mut self, target: u64, _: &Node) -> SoleLink<R> {
        SoleLink { target, runtime: PhantomData }
    }
}

impl<R: AsyncRuntime> SoleLink<R> {
    fn unreachable(&self) -> RPCError<DataConfig<R>> {
        let message = format!("node {}: this node has no network to others", self.target);
        RPCError::Unreachable(Unreachable::from_string(message))
    }
}

impl<R: AsyncRuntime> RaftNetworkV2<DataConfig<R>> for SoleLink<R> {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        _: AppendEntriesRequest<DataConfig<R>>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<DataConfig<R>>, RPCError<DataConfig<R>>> {
        Err(self.unreachable())
    }

    async fn vote(
        &mut self,
        _: VoteRequest<DataConfig<R>>,
        _: RPCOption,
    ) -> Result<VoteResponse<DataConfig<R>>, RPCError<DataConfig<R>>> {
        Err(self.unreachable())
    }

    async fn pre_vote(
        &mut self,
        _: VoteRequest<DataConfig<R>>,
        _: RPCOption,
    ) -> Result<VoteResponse<DataConfig<R>>, RPCError<DataConfig<R>>> {
        Err(self.unreachable())
    }

    async fn full_snapshot(
        &mut self,
        _: RaftVote,
        _: DataSnapshot,
        _: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<DataConfig<R>>, StreamingError<DataConfig<R>>> {
        Err(self.unreachable().into())
    }

    async fn transfer_leader(
        &mut self,
        _: TransferLeaderRequest<DataConfig<R>>,
        _: RPCOption,
    ) -> Result<TransferLeaderResponse<DataConfig<R>>, RPCError<DataConfig<R>>> {
        Err(self.unreachable())
    }
}
