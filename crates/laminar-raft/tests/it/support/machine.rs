//! A state machine that keeps what it was given, for tests of the log and the network.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use laminar_core::ids::LogIndex;
use laminar_log::SegmentedLogStore;
use laminar_log::verdict::{Outcome, Verdict};
use laminar_raft::{CommittedLeaderId, Data, DataConfig, Node, RaftLogId, RaftPayload, Response};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{AsyncRuntime, OptionalSend, RaftSnapshotBuilder, Snapshot, SnapshotMeta, StoredMembership};

type Meta = SnapshotMeta<CommittedLeaderId, u64, Node>;
type Taken = Snapshot<CommittedLeaderId, u64, Node, Kept>;
type Members = StoredMembership<CommittedLeaderId, u64, Node>;

/// What was applied, in order.
pub(crate) type Kept = Vec<(RaftLogId, Bytes)>;

#[derive(Debug, Default)]
struct State {
    applied: Option<RaftLogId>,
    members: Members,
    kept: Kept,
    /// On a disk of its own that tells the truth: it survives [`Machine::restarted`].
    snapshot: Option<(Meta, Kept)>,
    /// How often an entry came to be applied before this node had it on disk.
    early: u64,
    /// How often a leader sent a snapshot to go on from.
    installed: u64,
}

/// Clones are the same machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Machine {
    state: Arc<Mutex<State>>,
    /// The log, to wait until an entry is on disk before it is applied.
    log: Option<SegmentedLogStore>,
}

impl Machine {
    /// The machine after a restart: only its snapshot is left.
    pub(crate) fn restarted(&self, log: SegmentedLogStore) -> Self {
        let old = self.state();
        let (early, installed) = (old.early, old.installed);
        let state = State { snapshot: old.snapshot.clone(), early, installed, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), log: Some(log) }
    }

    /// The machine without the log, to look at after the node is gone.
    pub(crate) fn without_log(&self) -> Self {
        Self { state: Arc::clone(&self.state), log: None }
    }

    pub(crate) fn kept(&self) -> Kept {
        self.state().kept.clone()
    }

    pub(crate) fn early(&self) -> u64 {
        self.state().early
    }

    pub(crate) fn installed(&self) -> u64 {
        self.state().installed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// LOG-1: what is applied is on disk here, also if a quorum of others committed it.
    async fn wait_until_durable(&self, index: u64) -> io::Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let until = log.until_durable(index).map_err(io::Error::other)?;
        if let Some(ticket) = until {
            self.state().early += 1;
            ticket.await.map_err(io::Error::other)?;
        }
        Ok(())
    }
}

impl<R: AsyncRuntime> RaftSnapshotBuilder<DataConfig<R>> for Machine {
    type SnapshotData = Kept;

    async fn build_snapshot(&mut self) -> io::Result<Taken> {
        let mut state = self.state();
        let meta = Meta { last_log_id: state.applied, last_membership: state.members.clone() };
        state.snapshot = Some((meta.clone(), state.kept.clone()));
        Ok(Taken { meta, snapshot: state.kept.clone() })
    }
}

impl<R: AsyncRuntime> RaftStateMachine<DataConfig<R>> for Machine {
    type SnapshotData = Kept;
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> io::Result<(Option<RaftLogId>, Members)> {
        let state = self.state();
        Ok((state.applied, state.members.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<DataConfig<R>>>> + Unpin + OptionalSend,
    {
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            self.wait_until_durable(entry.log_id.index()).await?;
            let response = {
                let mut state = self.state();
                state.applied = Some(entry.log_id);
                match entry.payload {
                    RaftPayload::Blank => Response::Done,
                    RaftPayload::Normal(Data(bytes)) => {
                        state.kept.push((entry.log_id, bytes));
                        let index = LogIndex(entry.log_id.index());
                        Response::Verdict(Verdict::Accepted(Outcome { index, ..Outcome::default() }))
                    }
                    RaftPayload::Membership(members) => {
                        state.members = Members::new(Some(entry.log_id), members);
                        Response::Done
                    }
                }
            };
            // Partitions answer after `apply` has returned, from tasks of their own; so does this.
            if let Some(responder) = responder {
                drop(R::spawn(async move {
                    R::sleep(Duration::from_millis(1)).await;
                    responder.send(response);
                }));
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &Meta, snapshot: Kept) -> io::Result<()> {
        let mut state = self.state();
        // A restarted machine gets its own one back.
        state.installed += u64::from(state.applied.is_some());
        state.applied = meta.last_log_id;
        state.members = meta.last_membership.clone();
        state.snapshot = Some((meta.clone(), snapshot.clone()));
        state.kept = snapshot;
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Taken>> {
        let snapshot = self.state().snapshot.clone();
        Ok(snapshot.map(|(meta, snapshot)| Taken { meta, snapshot }))
    }
}
