//! The one state machine that Raft sees: decides each entry once, in log order, and hands the accepted records to the
//! partitions.
//!
//! ```text
//!  apply(entry) --> VerdictState::decide        once, synchronously, for all partitions of the entry
//!                     | accepted records
//!                     v
//!                   Partition::accept           its own log (never waits), then its machine
//!                     |            |
//!           immediate |            | else
//!                     v            v
//!                   applied      worker task    one record in flight a partition (APPLY-1)
//!                     `-----.------'
//!                           v
//!                         reply                 when every partition of the entry has applied it
//! ```

mod barrier;
mod close;
mod config;
mod events;
mod install;
mod notice;
mod open;
mod partition;
mod repair;
mod reply;
mod shared;
mod snapshot;
mod transfer;
mod view;
mod watch;
mod worker;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use bytes::Bytes;
use laminar_core::ids::{LogIndex, PartitionId};

use crate::dispatcher::ClientId;
use crate::entry::{Change, MachineKind};
use crate::error::LogError;
use crate::format::{FormatError, decode_entry};
use crate::log_id::{LogId, PartitionLogIndex};
use crate::machine::PartitionStateMachine;
use crate::snapshot::SnapshotStore;
use crate::verdict::{Decision, VerdictState};
use barrier::Waiters;
use notice::{Notice, within};
use partition::{Beginning, Partition};
use reply::EntryReply;
use shared::Shared;

pub use barrier::BarrierError;
pub use config::SegmentedConfig;
pub use events::PartitionEvent;
pub use reply::Reply;
pub use shared::{BuiltInMachines, EntrySource, MachineFactory, Parts};
pub use snapshot::SnapshotBuild;
pub use transfer::{SnapshotPieces, SnapshotStream};
pub use view::PartitionStatus;

/// The partitions of a replica. Clones are the same replica.
#[derive(Clone)]
pub struct SegmentedStateMachine {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    core: Mutex<Core>,
    partitions: RwLock<BTreeMap<PartitionId, Arc<Partition>>>,
    /// Waits for the log to be decided up to an index.
    deciding: Mutex<Waiters>,
    snapshots: SnapshotStore,
    /// Whether a snapshot is being built.
    building: AtomicBool,
}

/// What `apply` alone changes, in log order.
struct Core {
    verdict: VerdictState,
    membership: Membership,
}

/// The members of the Raft group, as the adapter encodes them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Membership {
    /// The entry that set them.
    pub log_id: Option<LogId>,
    /// Who they are.
    pub bytes: Bytes,
}

impl Inner {
    fn partitions(&self) -> RwLockReadGuard<'_, BTreeMap<PartitionId, Arc<Partition>>> {
        self.partitions.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SegmentedStateMachine {
    fn core(&self) -> MutexGuard<'_, Core> {
        self.inner.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn partitions(&self) -> RwLockReadGuard<'_, BTreeMap<PartitionId, Arc<Partition>>> {
        self.inner.partitions()
    }

    fn partition(&self, id: PartitionId) -> Option<Arc<Partition>> {
        self.partitions().get(&id).cloned()
    }

    /// The last entry that was decided, and the members.
    pub fn applied_state(&self) -> (Option<LogId>, Membership) {
        let core = self.core();
        (core.verdict.last_applied(), core.membership.clone())
    }

    /// Takes an entry that says nothing.
    pub fn apply_blank(&self, id: LogId) {
        self.core().verdict.skip_to(id);
        self.decided(id);
    }

    /// Takes an entry that changes the members of the group.
    pub fn apply_membership(&self, id: LogId, members: Bytes) {
        let mut core = self.core();
        core.verdict.skip_to(id);
        core.membership = Membership { log_id: Some(id), bytes: members };
        drop(core);
        self.decided(id);
    }

    /// Decides an entry, in log order. `reply` is called when every partition it touches has applied it, or at once if
    /// there is nothing to apply.
    ///
    /// # Errors
    ///
    /// Invalid: a newer release wrote the entry, and this one cannot know what it says. The replica must stop before it.
    pub fn apply(&self, id: LogId, entry: &Bytes, reply: Option<Reply>) -> Result<(), LogError> {
        let mut core = self.core();
        let decision = match decode_entry(entry) {
            Ok(entry) => {
                let span = tracing::trace_span!("decide", index = id.index.0, records = entry.records.len());
                span.in_scope(|| core.verdict.decide(id, &entry))
            }
            Err(source @ FormatError::VersionTooNew { .. }) => {
                return Err(LogError::EntryTooNew { entry: id, source });
            }
            // Every replica refuses it alike.
            Err(error) => core.verdict.decide_unreadable(id, error),
        };
        self.hand_over(decision, reply);
        drop(core);
        self.decided(id);
        Ok(())
    }

    fn hand_over(&self, decision: Decision, reply: Option<Reply>) {
        let Decision { verdict, accepted, positions } = decision;
        let reply = EntryReply::new(verdict, accepted.len(), reply);
        for (record, position) in accepted.into_iter().zip(positions) {
            let id = record.record.partition;
            let kind = match &record.record.change {
                Change::Create(kind) => Some(*kind),
                Change::Append(append) => append.create,
                Change::Destroy => {
                    self.destroy(id);
                    reply.iter().for_each(|reply| reply.part_done());
                    continue;
                }
                _ => None,
            };
            let partition = match (self.partition(id), kind) {
                (Some(partition), _) => partition,
                (None, Some(kind)) => self.create(id, kind),
                (None, None) => {
                    unreachable!("partition {id}: the verdict accepts no record before its creation")
                }
            };
            partition.accept(&self.inner.shared, record, position, reply.clone());
        }
    }

    fn create(&self, id: PartitionId, kind: MachineKind) -> Arc<Partition> {
        let shared = &self.inner.shared;
        // A log that cannot be opened now is opened by the repair.
        let log = shared.open_log(id).inspect_err(|error| {
            tracing::warn!(partition = id.0, %error, "the log of a new partition cannot be opened");
        });
        let partition = Partition::new(
            id,
            kind,
            Beginning {
                log: log.ok(),
                machine: shared.machines.make(id, kind),
                applied: PartitionLogIndex::NONE,
                highest: PartitionLogIndex::NONE,
                applied_global: LogIndex::NONE,
                queue: VecDeque::new(),
                skips: BTreeSet::new(),
            },
        );
        shared.dispatcher.register(id);
        let mut partitions = self.inner.partitions.write().unwrap_or_else(PoisonError::into_inner);
        partitions.insert(id, Arc::clone(&partition));
        partition
    }

    fn destroy(&self, id: PartitionId) {
        let shared = &self.inner.shared;
        let mut partitions = self.inner.partitions.write().unwrap_or_else(PoisonError::into_inner);
        let partition = partitions.remove(&id);
        drop(partitions);
        let log = partition.and_then(|partition| partition.close(shared));
        let removed = match log {
            Some(log) => log.destroy(),
            None => shared.remove_log(id),
        };
        if let Err(error) = removed {
            // The tombstone refuses what comes late; the next opening removes the files.
            tracing::warn!(partition = id.0, %error, "the files of a destroyed partition are still there");
        }
    }

    fn decided(&self, id: LogId) {
        self.inner.shared.set_decided(id.index);
        let mut deciding = self.inner.deciding.lock().unwrap_or_else(PoisonError::into_inner);
        if !deciding.is_empty() {
            deciding.reached(id.index);
        }
    }

    /// Waits until these partitions have applied everything up to a global index.
    ///
    /// # Errors
    ///
    /// Unavailable, if that takes longer than `timeout`. Overloaded, if the client has too many waits. Invalid, if there
    /// is no such partition once the log has got there.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the wait up.
    pub async fn barrier(
        &self,
        client: ClientId,
        partitions: &[PartitionId],
        index: LogIndex,
        timeout: Duration,
    ) -> Result<(), BarrierError> {
        let _permit = self.inner.shared.dispatcher.admit_waiter(client)?;
        let runtime = Arc::clone(&self.inner.shared.runtime);
        let all = async {
            self.wait_decided(index).await;
            for partition in partitions {
                self.wait_applied(*partition, index).await?;
            }
            Ok(())
        };
        match within(&*runtime, timeout, all).await {
            Some(outcome) => outcome,
            None => {
                let decided = self.inner.shared.decided();
                let lags = |id: &&PartitionId| {
                    self.partition(**id)
                        .is_none_or(|partition| partition.state().applied_through(decided) < index)
                };
                let behind: Vec<PartitionId> = partitions.iter().filter(lags).copied().collect();
                if behind.is_empty() && decided >= index {
                    return Ok(());
                }
                let behind = if behind.is_empty() { partitions.to_vec() } else { behind };
                Err(BarrierError::TimedOut { index, partitions: partitions.len(), behind, waited: timeout })
            }
        }
    }

    async fn wait_decided(&self, index: LogIndex) {
        loop {
            let notice = {
                let mut deciding = self.inner.deciding.lock().unwrap_or_else(PoisonError::into_inner);
                if self.inner.shared.decided() >= index {
                    return;
                }
                deciding.add(index)
            };
            notice.wait().await;
        }
    }

    async fn wait_applied(&self, id: PartitionId, index: LogIndex) -> Result<(), BarrierError> {
        loop {
            let partition = self.partition(id).ok_or(BarrierError::UnknownPartition(id))?;
            let notice = {
                let mut state = partition.state();
                if !state.closed && state.applied_through(self.inner.shared.decided()) >= index {
                    return Ok(());
                }
                (!state.closed).then(|| state.waiters.add(index))
            };
            match notice {
                Some(notice) => notice.wait().await,
                // Replaced by a snapshot, or destroyed: the map tells which.
                None => self.inner.shared.runtime.sleep(Duration::from_millis(1)).await,
            }
        }
    }

    /// Looks at a partition's machine between two records; waits while one is applied.
    pub async fn with_machine<T>(
        &self,
        id: PartitionId,
        look: impl FnOnce(&dyn PartitionStateMachine) -> T,
    ) -> Option<T> {
        loop {
            let partition = self.partition(id)?;
            let notice = {
                let mut state = partition.state();
                if let Some(machine) = &state.machine {
                    return Some(look(machine.as_ref()));
                }
                let notice = Notice::default();
                state.machine_back.push(notice.clone());
                notice
            };
            notice.wait().await;
        }
    }

    /// Lets a paused partition try again; false if it was not paused.
    pub fn resume(&self, id: PartitionId) -> bool {
        self.partition(id).is_some_and(|partition| partition.resume(&self.inner.shared))
    }

    /// What happened to partitions since the last call, and how many events were dropped before.
    pub fn take_events(&self) -> (Vec<PartitionEvent>, u64) {
        self.inner.shared.events.take()
    }
}

impl std::fmt::Debug for SegmentedStateMachine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SegmentedStateMachine")
            .field("decided", &self.inner.shared.decided())
            .finish_non_exhaustive()
    }
}
