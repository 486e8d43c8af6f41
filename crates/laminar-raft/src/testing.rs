//! A network of groups in one process, for tests and simulations: it delays, loses and cuts what nodes say.
//!
//! Messages are passed as they are, a snapshot too. Chance comes from a seed and time from the group's runtime, so a
//! simulated run can be repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::{RPCOption, RPCTypes, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::storage::{RaftStateMachine, Snapshot};
use openraft::{AppDataResponse, AsyncRuntime, OptionalSend, RaftNetworkFactory};

use crate::types::{CommittedLeaderId, Group, GroupConfig, Node, RaftVote};

/// The network between the nodes of a group. Clones are the same network.
pub struct Router<R: AsyncRuntime, A: AppDataResponse, M: RaftStateMachine<GroupConfig<R, A>>> {
    inner: Shared<Group<R, A, M>>,
    runtime: PhantomData<fn() -> R>,
}

type Shared<T> = Arc<Mutex<Inner<T>>>;

struct Inner<T> {
    nodes: BTreeMap<u64, T>,
    /// How often each node was started: what an earlier life of it says or hears is lost.
    lives: BTreeMap<u64, u64>,
    /// Pairs that cannot talk, from the first to the second.
    blocked: BTreeSet<(u64, u64)>,
    lost_percent: u64,
    delay: Range<Duration>,
    chance: u64,
}

impl<T> Inner<T> {
    /// A number below `below`.
    fn draw(&mut self, below: u64) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance % below.max(1)
    }

    fn draw_delay(&mut self) -> Duration {
        let width = self.delay.end.saturating_sub(self.delay.start);
        let micros = u64::try_from(width.as_micros()).unwrap_or(u64::MAX);
        self.delay.start + Duration::from_micros(self.draw(micros))
    }
}

/// Why a message did not arrive.
enum Lost {
    /// Nobody knows.
    Silently,
    /// The other node is not there.
    Refused,
}

impl<R, A, M> Router<R, A, M>
where
    R: AsyncRuntime,
    A: AppDataResponse,
    M: RaftStateMachine<GroupConfig<R, A>>,
{
    /// A network without nodes that loses nothing and takes no time.
    pub fn new(seed: u64) -> Self {
        let inner = Inner {
            nodes: BTreeMap::new(),
            lives: BTreeMap::new(),
            blocked: BTreeSet::new(),
            lost_percent: 0,
            delay: Duration::ZERO..Duration::ZERO,
            // Zero would stay zero.
            chance: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        };
        Self { inner: Arc::new(Mutex::new(inner)), runtime: PhantomData }
    }

    fn inner(&self) -> MutexGuard<'_, Inner<Group<R, A, M>>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The network as a node sees it that is being started; ends its earlier life.
    pub fn factory(&self, node: u64) -> Factory<R, A, M> {
        self.leave(node);
        Factory { router: self.clone(), from: node, life: self.inner().lives[&node] }
    }

    /// Lets a node be reached.
    pub fn join(&self, node: u64, raft: Group<R, A, M>) {
        self.inner().nodes.insert(node, raft);
    }

    /// Takes a node off the network, with all that it has sent and not had answered.
    pub fn leave(&self, node: u64) {
        let mut inner = self.inner();
        *inner.lives.entry(node).or_default() += 1;
        // Dropped without the lock: it may be the last handle.
        let left = inner.nodes.remove(&node);
        drop(inner);
        drop(left);
    }

    /// The nodes that can be reached.
    pub fn nodes(&self) -> Vec<(u64, Group<R, A, M>)> {
        self.inner().nodes.iter().map(|(id, raft)| (*id, raft.clone())).collect()
    }

    /// Lets nothing through between a node and the others, in both directions.
    pub fn isolate(&self, node: u64, others: &[u64]) {
        let pairs =
            others.iter().filter(|other| **other != node).flat_map(|other| [(node, *other), (*other, node)]);
        self.inner().blocked.extend(pairs);
    }

    /// Lets nothing through from one node to another.
    pub fn block(&self, from: u64, to: u64) {
        self.inner().blocked.insert((from, to));
    }

    /// Lets everything through again.
    pub fn heal(&self) {
        let mut inner = self.inner();
        inner.blocked.clear();
        inner.lost_percent = 0;
    }

    /// Loses so many of a hundred messages, requests and answers alike.
    pub fn lose(&self, percent: u64) {
        self.inner().lost_percent = percent;
    }

    /// Each message takes a time out of this range.
    pub fn delay(&self, delay: Range<Duration>) {
        self.inner().delay = delay;
    }

    /// A number below `below`, for the test that drives it all.
    pub fn draw(&self, below: u64) -> u64 {
        self.inner().draw(below)
    }

    /// Carries a message one way.
    async fn carry(&self, from: u64, to: u64) -> Result<(), Lost> {
        let (delay, lost) = {
            let mut inner = self.inner();
            (inner.draw_delay(), inner.draw(100) < inner.lost_percent)
        };
        if !delay.is_zero() {
            R::sleep(delay).await;
        }
        if lost || self.inner().blocked.contains(&(from, to)) { Err(Lost::Silently) } else { Ok(()) }
    }
}

impl<R, A, M> Clone for Router<R, A, M>
where
    R: AsyncRuntime,
    A: AppDataResponse,
    M: RaftStateMachine<GroupConfig<R, A>>,
{
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), runtime: PhantomData }
    }
}

impl<R, A, M> fmt::Debug for Router<R, A, M>
where
    R: AsyncRuntime,
    A: AppDataResponse,
    M: RaftStateMachine<GroupConfig<R, A>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.inner();
        f.debug_struct("Router")
            .field("lives", &inner.lives)
            .field("blocked", &inner.blocked)
            .finish_non_exhaustive()
    }
}

/// Makes the links of one life of a node.
#[derive(Debug)]
pub struct Factory<R: AsyncRuntime, A: AppDataResponse, M: RaftStateMachine<GroupConfig<R, A>>> {
    router: Router<R, A, M>,
    from: u64,
    life: u64,
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
