//! One life of a group on this node: a log that was opened, and openraft over it. A fault of the log ends the life, and
//! the next one begins with the log opened again.

use std::sync::Arc;
use std::time::Duration;

use laminar_core::error::ErrorKind;
use laminar_core::ids::LogIndex;
use laminar_log::{LogError, LogId, SegmentedLogStore, SegmentedStateMachine, StoreOpened};
use openraft::AsyncRuntime;
use openraft::Config;
use openraft::errors::Fatal;

use super::Inner;
use super::error::ReplicaError;
use super::hold::{Hold, HoldState};
use crate::blocking::blocking;
use crate::log_storage::RaftLog;
use crate::machine::RaftMachine;
use crate::retire::Retirement;
use crate::types::{DataConfig, DataGroup};

/// Builds openraft over a log and a machine, with the network that the replica was opened with.
pub(super) type StartRaft<R> = Box<
    dyn Fn(
            Arc<Config>,
            RaftLog,
            RaftMachine,
        ) -> laminar_log::machine::BoxFuture<
            'static,
            Result<DataGroup<R, RaftMachine>, Fatal<DataConfig<R>>>,
        > + Send
        + Sync,
>;

pub(super) struct Life<R: AsyncRuntime> {
    pub(super) raft: DataGroup<R, RaftMachine>,
    pub(super) store: SegmentedLogStore,
    pub(super) hold: Hold,
    pub(super) retirement: Retirement,
    /// Everything that keeps the log open has a clone.
    pub(super) lease: Arc<()>,
    pub(super) began: Duration,
    /// The last entry that the log had when it was opened.
    pub(super) last_at_open: Option<LogId>,
}

impl<R: AsyncRuntime> Life<R> {
    /// Ends the hold of a replica that was cut.
    pub(super) fn release(&self, to: HoldState) {
        if self.hold.release(to) {
            self.raft.runtime_config().elect(true);
            match to {
                HoldState::GaveUp => tracing::warn!(
                    cut = ?self.hold.cut(),
                    "the log of this replica was cut, and no leader came to catch up with; it takes part again"
                ),
                _ => tracing::info!("the replica whose log was cut has caught up with the leader"),
            }
        }
    }
}

/// Whether opening again may help.
pub(super) fn is_passing(error: &LogError) -> bool {
    use laminar_aof::AofError;
    match error {
        // Something of the life before still has it.
        LogError::Files(AofError::AlreadyOpen { .. }) => true,
        error => matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Overloaded),
    }
}

impl<R: AsyncRuntime> Inner<R> {
    /// Opens the log, where that may block.
    pub(super) async fn open_store(&self) -> Result<(SegmentedLogStore, StoreOpened), LogError> {
        let (committer, dir) = (self.parts.committer.clone(), self.parts.dir.join("raft"));
        let mut config = self.config.log.clone();
        // Segments go whole, and the log begins and ends in one: if they were long, purging would free little.
        let segment_bytes = (self.config.raft.snapshot_bytes / 4).max(config.files.segment_bytes_min);
        config.files.segment_bytes_max = config.files.segment_bytes_max.min(segment_bytes);
        let opened = blocking::<R, _, _>(move || SegmentedLogStore::open(&committer, &dir, config)).await;
        opened.map_err(|error| {
            let source = Arc::new(error);
            LogError::Files(laminar_aof::AofError::NoThread { source })
        })?
    }

    /// Opens the state machine. Here, because it starts tasks.
    pub(super) fn open_machine(&self, store: &SegmentedLogStore) -> Result<SegmentedStateMachine, LogError> {
        let parts = laminar_log::Parts {
            committer: self.parts.committer.clone(),
            runtime: Arc::clone(&self.runtime),
            source: Arc::new(self.source.clone()),
            dispatcher: Arc::clone(&self.dispatcher),
            machines: Arc::clone(&self.parts.machines),
        };
        let committed = store.committed().map_or(LogIndex::NONE, |id| id.index);
        SegmentedStateMachine::open(&self.parts.dir, self.config.segmented.clone(), parts, committed)
    }

    /// Starts openraft over what was opened.
    pub(super) async fn begin_life(
        &self,
        store: SegmentedLogStore,
        opened: &StoreOpened,
        machine: SegmentedStateMachine,
    ) -> Result<Arc<Life<R>>, ReplicaError> {
        let lease = Arc::new(());
        let log = RaftLog::with_read_bytes_max(store.clone(), self.config.read_bytes_max)
            .with_lease(Arc::clone(&lease));
        let machine = RaftMachine::new(machine, Arc::clone(&self.runtime), self.source.clone())
            .with_faults(self.snapshot_faults.clone());
        let retirement = machine.retirement().clone();
        let not_started =
            |source| ReplicaError::NotStarted { node: self.parts.node, source: Box::new(source) };
        let raft =
            (self.start_raft)(Arc::clone(&self.raft_config), log, machine).await.map_err(not_started)?;
        // Before it runs: a replica that was cut must not stand even once.
        raft.runtime_config().elect(opened.cut.is_none());
        raft.run();
        let voters = raft.with_raft_state(|state| state.membership_state.effective().voter_ids().collect());
        let voters: Vec<u64> = voters.await.map_err(not_started)?;
        let sole_voter = voters == [self.parts.node.0];
        let hold = Hold::new(opened.cut, sole_voter);
        if let Some(cut) = opened.cut {
            tracing::warn!(?cut, sole_voter, "the segmented log was cut above its synced mark");
        }
        raft.runtime_config().elect(!hold.is_held());
        let (began, last_at_open) = (self.runtime.now(), opened.state.last);
        let life = Life { raft, store, hold, retirement, lease, began, last_at_open };
        if sole_voter {
            // Leader restore is off, and nobody else would ever start an election.
            drop(life.raft.trigger().elect(false).await);
        }
        Ok(Arc::new(life))
    }
}
