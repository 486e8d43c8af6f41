//! How a replica is.

use std::sync::PoisonError;
use std::time::Duration;

use laminar_aof::CutTail;
use laminar_core::ids::NodeId;
use laminar_log::LogId;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::{AsyncRuntime, Instant};

use super::error::NotServing;
use super::hold::HoldState;
use super::{DataReplica, Inner, Phase};
use crate::convert::to_log_id;

/// How often it is looked whether a replica has recovered.
const RECOVERY_POLL: Duration = Duration::from_millis(2);

/// What a replica does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaPhase {
    /// It takes part.
    Serving,
    /// Its storage failed, and it is being started again.
    Rebuilding,
    /// Its storage cannot be opened again by itself.
    Failed,
    /// It was shut down.
    ShutDown,
}

/// How a replica is at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// This node.
    pub node: NodeId,
    /// What it does.
    pub phase: ReplicaPhase,
    /// Who leads, as far as this node knows.
    pub leader: Option<NodeId>,
    /// The term.
    pub term: u64,
    /// The last entry of its log.
    pub last: Option<LogId>,
    /// The last entry that is on its disk.
    pub durable: Option<LogId>,
    /// The last entry that it knows to be committed.
    pub committed: Option<LogId>,
    /// The last entry that it has decided.
    pub applied: Option<LogId>,
    /// The last entry that its newest snapshot has.
    pub snapshot: Option<LogId>,
    /// The last entry that its log has purged.
    pub purged: Option<LogId>,
    /// Whether it has everything again that was committed before it was opened; nothing should be read before.
    pub recovered: bool,
    /// Where its log was cut when it was opened last.
    pub cut: Option<CutTail>,
    /// Whether it neither votes nor acknowledges because of that.
    pub catching_up: bool,
    /// Whether it takes part again though no leader came in time to catch up with.
    pub gave_up_waiting: bool,
    /// How often it was started again after a fault.
    pub rebuilds: u64,
    /// How often starting it again failed.
    pub rebuild_failures: u64,
    /// How often a failed write or sync of its log was made good by rewriting the tail (LOG-6).
    pub fsync_retries: u64,
    /// What failed last.
    pub last_fault: Option<String>,
    /// How often a snapshot could not be built. The one before stayed, and it was tried again.
    pub snapshot_failures: u64,
    /// Why the last one could not be built; none once another was.
    pub snapshot_fault: Option<String>,
}

#[derive(Debug, Default, Clone)]
pub(super) struct Counts {
    pub(super) rebuilds: u64,
    pub(super) rebuild_failures: u64,
    pub(super) fsync_retries: u64,
    pub(super) last_fault: Option<String>,
    pub(super) recovered: bool,
}

impl<R: AsyncRuntime> DataReplica<R> {
    /// How the replica is now.
    pub fn status(&self) -> ReplicaStatus {
        let inner = &self.inner;
        let counts = inner.counts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let snapshots = inner.snapshot_faults.get();
        let phase = match *inner.phase() {
            Phase::Serving(_) => ReplicaPhase::Serving,
            Phase::Rebuilding => ReplicaPhase::Rebuilding,
            Phase::Failed(_) => ReplicaPhase::Failed,
            Phase::ShutDown => ReplicaPhase::ShutDown,
        };
        let mut status = ReplicaStatus {
            node: inner.parts.node,
            phase,
            leader: None,
            term: 0,
            last: None,
            durable: None,
            committed: None,
            applied: inner.machine().applied_state().0,
            snapshot: None,
            purged: None,
            recovered: counts.recovered,
            cut: None,
            catching_up: false,
            gave_up_waiting: false,
            rebuilds: counts.rebuilds,
            rebuild_failures: counts.rebuild_failures,
            fsync_retries: counts.fsync_retries,
            last_fault: counts.last_fault,
            snapshot_failures: snapshots.failures,
            snapshot_fault: snapshots.last,
        };
        let Ok(life) = inner.serving() else { return status };
        let (log, metrics) = (life.store.state(), life.raft.metrics());
        let metrics = metrics.borrow_watched();
        status.leader = metrics.current_leader.map(NodeId);
        status.term = metrics.current_term;
        (status.last, status.durable) = (log.last, log.durable);
        (status.committed, status.purged) = (log.committed, log.purged);
        status.snapshot = metrics.snapshot.as_ref().map(to_log_id);
        status.cut = life.hold.cut();
        status.catching_up = life.hold.is_held();
        status.gave_up_waiting = life.hold.state() == HoldState::GaveUp;
        status
    }

    /// Returns when the replica has everything again that was committed before it was opened.
    ///
    /// # Errors
    ///
    /// Unavailable, if that takes longer than `timeout`, or the replica has stopped.
    pub async fn wait_recovered(&self, timeout: Duration) -> Result<(), NotServing> {
        let begun = R::Instant::now();
        loop {
            let recovered = self.inner.note_recovery();
            match self.inner.serving() {
                _ if recovered => return Ok(()),
                Err(error @ (NotServing::Failed(_) | NotServing::ShutDown)) => return Err(error),
                _ if begun.elapsed() >= timeout => return Err(NotServing::Recovering),
                _ => R::sleep(RECOVERY_POLL).await,
            }
        }
    }
}

impl<R: AsyncRuntime> Inner<R> {
    pub(super) fn is_shut_down(&self) -> bool {
        matches!(*self.phase(), Phase::ShutDown)
    }

    /// Whether everything is there again that was committed before; takes note of it.
    ///
    /// What this replica had applied before was in its log when it was opened (LOG-1). So it is there again when that
    /// much is committed, by a leader's word and not by what was stored, and applied; or less, if a leader took the end
    /// of the log back, which was never committed then.
    pub(super) fn note_recovery(&self) -> bool {
        let Ok(life) = self.serving() else { return false };
        let metrics = life.raft.metrics();
        let metrics = metrics.borrow_watched();
        let index = |id: Option<LogId>| id.map(|id| id.index.0);
        let needed = index(life.last_at_open).min(metrics.last_log_index);
        let committed = index(metrics.cluster_committed.as_ref().map(to_log_id));
        let applied = index(metrics.last_applied.as_ref().map(to_log_id));
        let recovered = committed.is_some() && committed >= needed && applied >= needed;
        drop(metrics);
        if recovered {
            self.count(|counts| counts.recovered = true);
        }
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).recovered
    }
}
