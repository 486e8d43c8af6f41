//! Opening a replica: its newest snapshot, and the partitions' own logs. What came after the snapshot is applied again
//! by Raft, in the same order and with the same verdicts; a partition's log only tells which records need not be stored
//! again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};

use laminar_core::error::ErrorKind;
use laminar_core::ids::{LogIndex, PartitionId};

use super::config::SegmentedConfig;
use super::install::{finish_install, read_newest};
use super::partition::{Beginning, MachineState, Partition, Queued};
use super::shared::{Parts, Shared};
use super::watch::watch;
use super::{Core, Inner, Membership, SegmentedStateMachine, worker};
use crate::error::LogError;
use crate::layout;
use crate::log_id::PartitionLogIndex;
use crate::machine::{MachineError, PartitionStateMachine};
use crate::partition_log::{PartitionLogStore, clean_root, list_partitions};
use crate::snapshot::SnapshotStore;
use crate::verdict::{PartitionVerdict, VerdictState};

/// What a snapshot holds.
pub(crate) struct Restored {
    pub(crate) verdict: VerdictState,
    pub(crate) membership: Membership,
    pub(crate) states: BTreeMap<PartitionId, MachineState>,
}

impl Restored {
    fn empty(shared: &Shared) -> Result<Self, LogError> {
        let verdict = VerdictState::new(shared.config.verdict)?;
        Ok(Self { verdict, membership: Membership::default(), states: BTreeMap::new() })
    }
}

impl SegmentedStateMachine {
    /// Opens the replica in `dir`. Entries up to `committed` are known to be committed: what a partition's log has
    /// beyond them is cut.
    ///
    /// # Errors
    ///
    /// Corrupt, if the newest snapshot is damaged. Invalid, if a limit is out of its range. Unavailable, if a file call
    /// fails. A damaged partition log stops only its partition.
    pub fn open(
        dir: &Path,
        config: SegmentedConfig,
        parts: Parts,
        committed: LogIndex,
    ) -> Result<Self, LogError> {
        config.check()?;
        let fs = Arc::clone(parts.committer.file_system());
        let snapshots = SnapshotStore::open(fs, &layout::snapshots_dir(dir))?;
        let shared = Shared::new(config, parts, layout::partitions_dir(dir), committed);
        clean_root(&shared.committer, &shared.partitions_dir)?;
        let restored = match finish_install(&shared, &snapshots)? {
            Some(installed) => installed,
            None => match read_newest(&snapshots)? {
                Some(newest) => newest,
                None => Restored::empty(&shared)?,
            },
        };
        let applied = restored.verdict.last_applied().map_or(LogIndex::NONE, |id| id.index);
        shared.raise_committed(applied);
        remove_destroyed(&shared, &restored.verdict)?;
        let partitions = open_partitions(&shared, &restored)?;
        shared.set_decided(applied);
        start_partitions(&shared, &partitions);
        let runtime = Arc::clone(&shared.runtime);
        let inner = Arc::new(Inner {
            shared,
            core: Mutex::new(Core { verdict: restored.verdict, membership: restored.membership }),
            partitions: RwLock::new(partitions),
            deciding: Mutex::default(),
            snapshots,
            building: AtomicBool::new(false),
        });
        runtime.spawn(Box::pin(watch(Arc::downgrade(&inner))));
        Ok(Self { inner })
    }
}

/// A crash may have come between the destruction of a partition and the removal of its files.
fn remove_destroyed(shared: &Shared, verdict: &VerdictState) -> Result<(), LogError> {
    for id in list_partitions(&shared.committer, &shared.partitions_dir)? {
        if verdict.is_destroyed(id) {
            shared.remove_log(id)?;
        }
    }
    Ok(())
}

pub(crate) fn open_partitions(
    shared: &Arc<Shared>,
    restored: &Restored,
) -> Result<BTreeMap<PartitionId, Arc<Partition>>, LogError> {
    let mut partitions = BTreeMap::new();
    for (id, verdict) in restored.verdict.partitions() {
        let (begin, fault) = begin(shared, id, verdict, restored.states.get(&id));
        let partition = Partition::new(id, verdict.machine, begin);
        if let Some(error) = fault {
            if error.kind() != ErrorKind::Corrupt {
                // It may pass: whoever opens the replica tries again.
                return Err(error);
            }
            let mut state = partition.state();
            state.diverged = true;
            state.pause(id, shared, verdict.highest, error.to_string());
        }
        partitions.insert(id, partition);
    }
    Ok(partitions)
}

/// Lets the partitions apply what waits in them.
pub(crate) fn start_partitions(shared: &Arc<Shared>, partitions: &BTreeMap<PartitionId, Arc<Partition>>) {
    for partition in partitions.values() {
        shared.dispatcher.register(partition.id);
        for queued in &partition.state().queue {
            shared.dispatcher.enqueued(partition.id, 1, queued.bytes as u64, queued.raft);
        }
        worker::start(partition, shared);
    }
}

/// What a partition of the snapshot begins with, and what is wrong with it.
fn begin(
    shared: &Shared,
    id: PartitionId,
    verdict: &PartitionVerdict,
    state: Option<&MachineState>,
) -> (Beginning, Option<LogError>) {
    let mut machine = shared.machines.make(id, verdict.machine);
    let mut fault = state.and_then(|state| restore(machine.as_mut(), id, state).err());
    let applied = match state {
        _ if machine.is_stateless() => verdict.highest,
        Some(state) => state.applied,
        None => PartitionLogIndex::NONE,
    };
    let mut queue = VecDeque::new();
    let log = shared.open_log(id).and_then(|log| {
        queue = unapplied(&log, id, applied, verdict.highest)?;
        Ok(log)
    });
    let log = log.map_err(|error| fault = fault.take().or(Some(error))).ok();
    let skips: BTreeSet<_> = verdict.skipped.range(applied.next()..).copied().collect();
    let applied_global = verdict.last_log_id.index;
    let highest = verdict.highest;
    (Beginning { log, machine, applied, highest, applied_global, queue, skips }, fault)
}

fn restore(
    machine: &mut dyn PartitionStateMachine,
    partition: PartitionId,
    state: &MachineState,
) -> Result<(), LogError> {
    let bad = |source| LogError::BadMachineState { partition, source };
    machine.restore(&state.pieces).map_err(bad)?;
    if machine.state_hash() == state.hash {
        return Ok(());
    }
    let (found, expected) = (machine.state_hash(), state.hash);
    Err(bad(MachineError { reason: format!("its hash is {found:016x}, expected {expected:016x}") }))
}

/// The records between the machine's state and the snapshot's index, which only the partition's own log has.
fn unapplied(
    log: &PartitionLogStore,
    partition: PartitionId,
    applied: PartitionLogIndex,
    highest: PartitionLogIndex,
) -> Result<VecDeque<Queued>, LogError> {
    // A snapshot is reported only after every partition's log is on disk up to its index.
    let missing = |from, to| LogError::RecordsMissing { partition, from, to };
    if log.stored_end() <= highest {
        return Err(missing(log.stored_end(), highest.next()));
    }
    if applied < highest && log.first() > applied.next() {
        return Err(missing(applied.next(), log.first()));
    }
    let mut queue = VecDeque::new();
    let mut index = applied.next();
    while index <= highest {
        let raft = log.header(index)?.log_id.index;
        queue.push_back(Queued { index, raft, bytes: 0, record: None, reply: None });
        index = index.next();
    }
    Ok(queue)
}
