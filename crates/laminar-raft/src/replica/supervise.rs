//! Watches over a group: when its storage fails, openraft ends, and the group is started again by itself (LOG-6).
//!
//! Only what failed is opened again. A failed log is: opening it rewrites and syncs what was not known to be on disk.
//! The partitions go on as they are, because everything they have applied is in the part of the log that was synced
//! (LOG-1), and their own logs mend themselves. The state machine is opened again too if it gave up: an installation
//! that failed halfway, a snapshot that cannot be read.

use std::sync::{Arc, Weak};
use std::time::Duration;

use laminar_log::LogError;
use laminar_log::metrics::record_fsync_retry;
use openraft::AsyncRuntime;
use openraft::alias::WatchReceiverOf;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::{Instant, RaftMetrics};

use super::hold::HoldState;
use super::life::{Life, is_passing};
use super::{Inner, Phase};
use crate::retire::Retirement;
use crate::types::DataConfig;

/// How often the metrics are looked at while they change.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

type Watched<R> = WatchReceiverOf<DataConfig<R>, RaftMetrics<DataConfig<R>>>;

/// Watches the lives of a group until the replica is shut down or dropped.
pub(super) async fn supervise<R: AsyncRuntime>(inner: Weak<Inner<R>>, mut metrics: Watched<R>) {
    let mut backoff = None;
    loop {
        if !ended::<R>(&inner, &mut metrics).await {
            return;
        }
        let Some(held) = inner.upgrade() else { return };
        match held.rebuild(&mut backoff).await {
            Some(next) => metrics = next,
            None => return,
        }
    }
}

/// Waits until a life has ended, or its log has failed; false if the replica is gone.
///
/// openraft ends with the first write that fails. An idle group writes nothing: its log may fail while it raises the mark
/// of what is synced, and must be opened again all the same, or the next write would find it failed (LOG-6).
async fn ended<R: AsyncRuntime>(inner: &Weak<Inner<R>>, metrics: &mut Watched<R>) -> bool {
    while metrics.borrow_watched().running_state.is_ok() {
        let Some(held) = inner.upgrade() else { return false };
        let tick = held.config.tick;
        if held.serving().is_ok_and(|life| life.store.failure().is_some()) {
            return true;
        }
        drop(held);
        if matches!(R::timeout(tick, metrics.changed()).await, Ok(Err(_))) {
            return true;
        }
        // Every write changes them several times, and to be woken for each costs a write a tenth of its work.
        R::sleep(LOOK_INTERVAL.min(tick)).await;
    }
    true
}

/// Ends the hold of a replica that was cut after a time, if it is held then.
pub(super) fn end_hold_in_time<R: AsyncRuntime>(life: &Arc<Life<R>>, wait: Duration) {
    if life.hold.is_held() {
        let life = Arc::downgrade(life);
        drop(R::spawn(async move {
            R::sleep(wait).await;
            if let Some(life) = life.upgrade() {
                life.release(HoldState::GaveUp);
            }
        }));
    }
}

impl<R: AsyncRuntime> Inner<R> {
    /// Starts the group again after its life has ended. None if the replica has stopped for good.
    async fn rebuild(self: &Arc<Self>, backoff: &mut Option<Duration>) -> Option<Watched<R>> {
        use openraft::async_runtime::Mutex;
        let _gate = self.gate.lock().await;
        let life = self.leave(Phase::Rebuilding)?;
        let (log_fault, machine_fault) = (life.store.failure(), life.retirement.fault());
        let ran = self.runtime.now().saturating_sub(life.began);
        let retirement = life.retirement.clone();
        let cause = machine_fault.clone().or(log_fault.clone().map(LogError::from));
        self.count(|counts| {
            counts.rebuilds += 1;
            counts.last_fault = cause.as_ref().map(ToString::to_string).or(counts.last_fault.take());
        });
        tracing::warn!(cause = ?cause.as_ref().map(ToString::to_string), "the group has ended on this node and is started again");
        self.end_life(life).await;
        if let Some(error @ LogError::EntryTooNew { .. }) = machine_fault {
            self.enter(Phase::Failed(error));
            return None;
        }
        let min = self.config.rebuild_backoff_min;
        let max = self.config.rebuild_backoff_max;
        let mut wait = backoff.filter(|_| ran < max).unwrap_or(min);
        let mut reopen_machine = machine_fault.is_some();
        let next = loop {
            R::sleep(wait).await;
            wait = (wait * 2).min(max);
            if !matches!(*self.phase(), Phase::Rebuilding) {
                return None;
            }
            match self.next_life(&retirement, &mut reopen_machine).await {
                Ok(life) => break life,
                Err(error) if is_passing(&error) => {
                    tracing::warn!(%error, ?wait, "the group cannot be started again yet");
                    self.count(|counts| {
                        counts.rebuild_failures += 1;
                        counts.last_fault = Some(error.to_string());
                    });
                }
                Err(error) => {
                    tracing::error!(%error, "the group cannot be started again on this node");
                    self.enter(Phase::Failed(error));
                    return None;
                }
            }
        };
        *backoff = Some(wait);
        if log_fault.is_some() {
            record_fsync_retry();
            self.count(|counts| counts.fsync_retries += 1);
        }
        end_hold_in_time(&next, self.config.cut_wait);
        let metrics = next.raft.metrics();
        if !self.enter(Phase::Serving(Arc::clone(&next))) {
            self.end_life(next).await;
            return None;
        }
        Some(metrics)
    }

    async fn next_life(
        &self,
        retirement: &Retirement,
        reopen_machine: &mut bool,
    ) -> Result<Arc<Life<R>>, LogError> {
        let (store, opened) = self.open_store().await?;
        self.source.put(Some(store.clone()));
        if *reopen_machine {
            self.quiet(retirement).await;
            self.machine().close();
            let machine = self.open_machine(&store).inspect_err(|_| self.source.put(None))?;
            self.set_machine(machine);
            *reopen_machine = false;
        }
        match self.begin_life(store, &opened, self.machine()).await {
            Ok(life) => Ok(life),
            Err(error) => {
                self.source.put(None);
                let source = Arc::new(std::io::Error::other(error));
                Err(LogError::Files(laminar_aof::AofError::NoThread { source }))
            }
        }
    }

    /// Ends what is left of a life, and returns when nothing of it keeps the log open, or it has taken too long.
    pub(super) async fn end_life(&self, life: Arc<Life<R>>) {
        self.source.put(None);
        life.retirement.retire();
        drop(life.raft.shutdown().await);
        let lease = Arc::downgrade(&life.lease);
        drop(life);
        self.wait_until(|| lease.strong_count() == 0).await;
    }

    /// Returns when no snapshot is being built any more.
    pub(super) async fn quiet(&self, retirement: &Retirement) {
        self.wait_until(|| retirement.is_quiet()).await;
    }

    async fn wait_until(&self, done: impl Fn() -> bool) {
        let begun = R::Instant::now();
        while !done() && begun.elapsed() < self.config.close_wait {
            R::sleep(Duration::from_millis(1)).await;
        }
    }
}
