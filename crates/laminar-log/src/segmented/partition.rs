//! One partition of a replica: its own log, its machine, and what waits to be applied.
//!
//! A record comes in with [`Partition::accept`], in log order. It is put into the partition's own log at once, which
//! never waits for a disk; then it is applied, at once if the machine is immediate and nothing waits before it, else by
//! a worker (`worker.rs`). A log that cannot take the record is repaired from the segmented log (`repair.rs`).

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use laminar_core::ids::{LogIndex, PartitionId};

use super::barrier::Waiters;
use super::notice::Notice;
use super::reply::EntryReply;
use super::shared::Shared;
use super::{PartitionEvent, repair, worker};
use crate::dispatcher::PauseReason;
use crate::entry::{Change, MachineKind, Payload, TrimTo};
use crate::error::LogError;
use crate::log_id::PartitionLogIndex;
use crate::machine::{Applying, PartitionStateMachine};
use crate::metrics::PARTITION_PAUSES;
use crate::partition_log::{PartitionLogStore, RecordPin};
use crate::verdict::AcceptedRecord;

/// A partition. Only [`accept`](Self::accept) adds to it, and it is called in log order.
pub(crate) struct Partition {
    pub(crate) id: PartitionId,
    pub(crate) kind: MachineKind,
    state: Mutex<PartitionState>,
}

/// Where a record came from, so that it can be stored again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) raft: LogIndex,
    /// Which record of the entry.
    pub(crate) position: u32,
    pub(crate) first_offset: u64,
    pub(crate) time_ms: u64,
}

/// A record that waits to be applied.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) index: PartitionLogIndex,
    pub(crate) raft: LogIndex,
    pub(crate) bytes: usize,
    /// Not here if too much waits: it is read from the partition's own log when its turn comes.
    pub(crate) record: Option<Box<AcceptedRecord>>,
    pub(crate) reply: Option<Arc<EntryReply>>,
}

/// A machine's state, and the record it is behind.
#[derive(Debug, Clone)]
pub(crate) struct MachineState {
    pub(crate) applied: PartitionLogIndex,
    pub(crate) pieces: Vec<Bytes>,
    pub(crate) hash: u64,
}

/// A snapshot that waits for the machine to be at a record.
#[derive(Debug)]
pub(crate) struct Marker {
    pub(crate) at: PartitionLogIndex,
    pub(crate) state: Notice<MachineState>,
}

pub(crate) struct PartitionState {
    /// The partition's own log; none while it cannot be opened.
    pub(crate) log: Option<PartitionLogStore>,
    /// Records that are not known to be on disk in the partition's own log, in order; the last is `highest`.
    pub(crate) unsynced: VecDeque<Place>,
    /// The last record that was accepted.
    pub(crate) highest: PartitionLogIndex,
    pub(crate) applied: PartitionLogIndex,
    /// The raft index of the last applied record.
    pub(crate) applied_global: LogIndex,
    /// The record up to which the newest snapshot has the machine's state.
    pub(crate) snapshot: PartitionLogIndex,
    /// Keeps the records behind that one in the partition's own log: a restart applies them again.
    pin: Option<RecordPin>,
    pub(crate) queue: VecDeque<Queued>,
    pub(crate) queue_bytes: usize,
    /// Not here while a worker applies a record (APPLY-1).
    pub(crate) machine: Option<Box<dyn PartitionStateMachine>>,
    pub(crate) working: bool,
    /// The raft index of the record that a worker applies; it is not in the queue.
    pub(crate) applying: Option<LogIndex>,
    /// Told when the machine is back.
    pub(crate) machine_back: Vec<Notice<()>>,
    pub(crate) repairing: bool,
    /// Whether the partition's own log failed, and not everything is on disk there since.
    log_failed: bool,
    /// Why nothing is applied.
    pub(crate) paused: Option<String>,
    /// How often it came to that.
    pub(crate) pauses: u64,
    /// How often a record was applied again because its machine had failed.
    pub(crate) apply_retries: u64,
    /// Whether only a snapshot of another replica helps.
    pub(crate) diverged: bool,
    /// Records above `applied` that every replica leaves out.
    pub(crate) skips: BTreeSet<PartitionLogIndex>,
    pub(crate) markers: VecDeque<Marker>,
    pub(crate) waiters: Waiters,
    /// Destroyed, or replaced by a snapshot.
    pub(crate) closed: bool,
}

/// What is done once the partition's lock is free.
#[derive(Default)]
pub(crate) struct Afterwards {
    replies: Vec<Arc<EntryReply>>,
    work: bool,
    repair: bool,
}

impl Afterwards {
    pub(crate) fn reply(&mut self, reply: Option<Arc<EntryReply>>) {
        self.replies.extend(reply);
    }
}

/// What a partition begins with.
pub(crate) struct Beginning {
    pub(crate) log: Option<PartitionLogStore>,
    pub(crate) machine: Box<dyn PartitionStateMachine>,
    /// The record that the machine is behind.
    pub(crate) applied: PartitionLogIndex,
    /// The last record that was accepted; those above `applied` are in the queue.
    pub(crate) highest: PartitionLogIndex,
    pub(crate) applied_global: LogIndex,
    pub(crate) queue: VecDeque<Queued>,
    pub(crate) skips: BTreeSet<PartitionLogIndex>,
}

impl Partition {
    pub(crate) fn new(id: PartitionId, kind: MachineKind, begin: Beginning) -> Arc<Self> {
        let mut state = PartitionState {
            log: begin.log,
            unsynced: VecDeque::new(),
            highest: begin.highest,
            applied: begin.applied,
            applied_global: begin.applied_global,
            snapshot: begin.applied,
            pin: None,
            queue: begin.queue,
            queue_bytes: 0,
            machine: Some(begin.machine),
            working: false,
            applying: None,
            machine_back: Vec::new(),
            repairing: false,
            log_failed: false,
            paused: None,
            pauses: 0,
            apply_retries: 0,
            diverged: false,
            skips: begin.skips,
            markers: VecDeque::new(),
            waiters: Waiters::default(),
            closed: false,
        };
        state.keep_behind(state.snapshot);
        Arc::new(Self { id, kind, state: Mutex::new(state) })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, PartitionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next record of this partition: record `position` of its entry.
    pub(crate) fn accept(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        record: AcceptedRecord,
        position: u32,
        reply: Option<Arc<EntryReply>>,
    ) {
        let span = tracing::trace_span!("accept", partition = self.id.0, index = record.index.0);
        let _entered = span.enter();
        let mut state = self.state();
        let mut afterwards = Afterwards::default();
        assert_eq!(record.index, state.highest.next(), "partition {}: LOG-2", self.id);
        state.highest = record.index;
        state.store(self.id, shared, &record, position, &mut afterwards);
        if let Change::Skip(index) = record.record.change {
            state.skip(shared, self.id, index, &mut afterwards);
        }
        if state.apply_now(&record) {
            state.applied_one(&record);
            afterwards.replies.extend(reply);
        } else {
            state.enqueue(shared, self.id, record, reply);
            afterwards.work = true;
        }
        drop(state);
        self.finish(shared, afterwards);
    }

    /// Starts what has to run, and tells who waits.
    pub(crate) fn finish(self: &Arc<Self>, shared: &Arc<Shared>, afterwards: Afterwards) {
        if afterwards.work {
            worker::start(self, shared);
        }
        if afterwards.repair {
            repair::start(self, shared);
        }
        afterwards.replies.iter().for_each(|reply| reply.part_done());
    }

    /// Lets the partition go on after a pause.
    pub(crate) fn resume(self: &Arc<Self>, shared: &Arc<Shared>) -> bool {
        let was_paused = self.state().unpause(self.id, shared);
        if was_paused {
            worker::start(self, shared);
        }
        was_paused
    }

    /// Ends the partition: nothing of it is applied any more, and whoever waits is told. Returns its log.
    pub(crate) fn close(self: &Arc<Self>, shared: &Arc<Shared>) -> Option<PartitionLogStore> {
        let mut state = self.state();
        state.closed = true;
        let queue = std::mem::take(&mut state.queue);
        state.unsynced.clear();
        state.markers.clear();
        state.waiters.give_up();
        state.machine_back.drain(..).for_each(|notice| notice.set(()));
        let log = state.log.take();
        drop(state);
        shared.dispatcher.remove(self.id);
        queue.into_iter().filter_map(|queued| queued.reply).for_each(|reply| reply.part_done());
        log
    }
}

impl PartitionState {
    /// Puts the record into the partition's own log, unless it is there from before a restart (LOG-4).
    fn store(
        &mut self,
        id: PartitionId,
        shared: &Shared,
        record: &AcceptedRecord,
        position: u32,
        afterwards: &mut Afterwards,
    ) {
        self.forget_synced();
        let appended = match &self.log {
            Some(log) if record.index < log.stored_end() => {
                // Below its first record it was trimmed or compacted since.
                if record.index >= log.first()
                    && let Err(error) = log.check_tuple(record.index, record.log_id)
                {
                    self.pause(id, shared, record.index, error.to_string());
                }
                return;
            }
            Some(log) if record.index == log.stored_end() => log.append([record]).map(drop),
            // Behind, or not open: a repair is under way.
            _ => Ok(()),
        };
        self.unsynced.push_back(Place {
            raft: record.log_id.index,
            position,
            first_offset: record.first_offset,
            time_ms: record.time_ms,
        });
        let behind = self.log.as_ref().is_none_or(|log| log.stored_end() <= record.index);
        if let Err(error) = &appended
            && !self.repairing
        {
            tracing::warn!(partition = id.0, %error, "the partition's own log does not take a record");
        }
        afterwards.repair |= behind && !self.repairing;
    }

    /// Forgets the places of records that are on disk in the partition's own log.
    pub(crate) fn forget_synced(&mut self) {
        let Some(log) = self.log.as_ref().filter(|_| !self.unsynced.is_empty()) else { return };
        let synced = log.synced_end();
        // At the log's first record nothing is known: those before may have been trimmed and never synced.
        if synced == log.first() {
            return;
        }
        while !self.unsynced.is_empty() && self.unsynced_first() < synced {
            self.unsynced.pop_front();
        }
    }

    /// The record that the first place stands for.
    pub(crate) fn unsynced_first(&self) -> PartitionLogIndex {
        PartitionLogIndex(self.highest.0 + 1 - self.unsynced.len() as u64)
    }

    /// Applies the record here and now, if nothing is in its way; says whether it was applied.
    fn apply_now(&mut self, record: &AcceptedRecord) -> bool {
        if !self.queue.is_empty() || self.working || self.paused.is_some() {
            return false;
        }
        self.pass_markers();
        let Some(machine) = self.machine.as_mut().filter(|machine| machine.is_immediate()) else {
            return false;
        };
        match worker::guarded(|| machine.apply(record)) {
            Ok(Applying::Done(Ok(()))) => true,
            // The worker tries again, and pauses if it must.
            _ => false,
        }
    }

    fn enqueue(
        &mut self,
        shared: &Shared,
        id: PartitionId,
        record: AcceptedRecord,
        reply: Option<Arc<EntryReply>>,
    ) {
        let bytes = payload_bytes(&record);
        let (index, raft) = (record.index, record.log_id.index);
        shared.dispatcher.enqueued(id, 1, bytes as u64, raft);
        // A record that its own log does not have yet, or has no more, stays.
        let stored = self.log.as_ref().is_some_and(|log| log.first() <= index && index < log.stored_end());
        let keep = !stored || self.queue_bytes + bytes <= shared.config.apply_queue_bytes_max;
        if keep {
            self.queue_bytes += bytes;
        }
        let record = keep.then(|| Box::new(record));
        self.queue.push_back(Queued { index, raft, bytes, record, reply });
    }

    /// The next record is applied.
    pub(crate) fn applied_one(&mut self, record: &AcceptedRecord) {
        let index = record.index;
        assert_eq!(index, self.applied.next(), "records are applied in order (APPLY-1)");
        self.applied = index;
        self.applied_global = record.log_id.index;
        self.skips.remove(&index);
        if let Change::Trim(TrimTo::Offset(offset)) = record.record.change {
            // Not before: what waits to be applied may have to be read from the log.
            self.trim(offset);
        }
        self.pass_markers();
        if !self.waiters.is_empty() {
            let reached = self.applied_through(LogIndex(u64::MAX));
            self.waiters.reached(reached);
        }
    }

    /// Takes the machine's state for snapshots that wait for the record it is behind.
    pub(crate) fn pass_markers(&mut self) {
        let Some(machine) = self.machine.as_ref().filter(|_| !self.markers.is_empty()) else { return };
        while self.markers.front().is_some_and(|marker| marker.at <= self.applied)
            && let Some(marker) = self.markers.pop_front()
        {
            let (pieces, hash) = (machine.snapshot(), machine.state_hash());
            marker.state.set(MachineState { applied: self.applied, pieces, hash });
        }
    }

    /// Everything of this partition up to this global index is applied, given that the log was decided up to `decided`.
    pub(crate) fn applied_through(&self, decided: LogIndex) -> LogIndex {
        let next = self.applying.or(self.queue.front().map(|next| next.raft));
        next.map_or(decided, |next| LogIndex(next.0 - 1).min(decided))
    }

    /// The lowest raft index that this partition still needs: to store again what its own log may lose. What is only
    /// not applied yet needs nothing, because its own log has it.
    pub(crate) fn required(&mut self) -> Option<LogIndex> {
        self.forget_synced();
        self.unsynced.front().map(|place| place.raft)
    }

    /// Every replica leaves out this record.
    fn skip(
        &mut self,
        shared: &Shared,
        id: PartitionId,
        index: PartitionLogIndex,
        afterwards: &mut Afterwards,
    ) {
        if index > self.applied {
            self.skips.insert(index);
            let waits_for_it = self.queue.front().is_some_and(|next| next.index == index);
            if waits_for_it && self.unpause(id, shared) {
                afterwards.work = true;
            }
        } else {
            self.skipped_too_late(shared, id, index);
        }
    }

    /// Another replica could not apply what this one did: their machines do not agree, and the one here must come from
    /// a snapshot without the record. Where the rows are the state there is nothing to disagree about.
    pub(crate) fn skipped_too_late(&mut self, shared: &Shared, id: PartitionId, index: PartitionLogIndex) {
        if self.machine.as_ref().is_none_or(|machine| machine.must_agree()) {
            let reason = "it was applied here and is skipped now; restore the replica from a snapshot";
            self.diverged = true;
            self.pause(id, shared, index, reason.to_owned());
        }
    }

    pub(crate) fn pause(
        &mut self,
        id: PartitionId,
        shared: &Shared,
        index: PartitionLogIndex,
        reason: String,
    ) {
        if self.paused.is_none() {
            self.pauses += 1;
            ::metrics::counter!(PARTITION_PAUSES, "partition" => id.0.to_string()).increment(1);
            shared.dispatcher.set_paused(id, PauseReason::ApplyFailed(reason.clone()));
            shared.events.push(PartitionEvent::Paused { partition: id, index, reason: reason.clone() });
            self.paused = Some(reason);
        }
    }

    /// The partition's own log does not work: nothing more is admitted until it has everything again, because what it
    /// lacks is remembered.
    pub(crate) fn log_failed(&mut self, id: PartitionId, shared: &Shared, error: &LogError) {
        if std::mem::replace(&mut self.log_failed, true) {
            tracing::debug!(partition = id.0, %error, "the partition's own log failed again");
            return;
        }
        let reason = error.to_string();
        if self.paused.is_none() {
            shared.dispatcher.set_paused(id, PauseReason::LogFailed(reason.clone()));
        }
        shared.events.push(PartitionEvent::LogFailed { partition: id, reason });
    }

    /// Takes note if a log that failed has everything on disk again.
    pub(crate) fn check_repaired(&mut self, id: PartitionId, shared: &Shared) {
        self.forget_synced();
        let works = self.log.as_ref().is_some_and(|log| log.failure().is_none());
        if self.log_failed && works && self.unsynced.is_empty() {
            self.log_failed = false;
            if self.paused.is_none() {
                shared.dispatcher.clear(id);
            }
            shared.events.push(PartitionEvent::LogRepaired { partition: id });
        }
    }

    /// Nothing stands in the way of applying any more; says whether something did.
    fn unpause(&mut self, id: PartitionId, shared: &Shared) -> bool {
        if self.diverged || self.paused.take().is_none() {
            return false;
        }
        if !self.log_failed {
            shared.dispatcher.clear(id);
        }
        shared.events.push(PartitionEvent::Resumed { partition: id });
        true
    }

    /// Drops rows from the partition's own log, if they are not needed for anything else.
    pub(crate) fn trim(&mut self, offset: u64) {
        // What waits to be applied may have to be read from the log.
        let trimmed = |log: &PartitionLogStore| {
            let _unapplied = log.pin(self.applied.next())?;
            log.trim(offset)
        };
        if let Some(log) = &self.log
            && let Err(error) = trimmed(log)
        {
            // The rows stay until the next trim; readers do not see them.
            tracing::warn!(%error, offset, "trimming the partition's own log failed");
        }
    }

    /// The newest snapshot has the machine's state up to here; the records behind are kept, unless there is no state.
    pub(crate) fn keep_behind(&mut self, snapshot: PartitionLogIndex) {
        self.snapshot = snapshot.min(self.applied);
        let stateless = self.machine.as_ref().is_some_and(|machine| machine.is_stateless());
        let pin = self.log.as_ref().filter(|_| !stateless).and_then(|log| log.pin(snapshot.next()).ok());
        self.pin = pin.or_else(|| self.pin.take().filter(|_| !stateless));
    }

    /// A record again: from the partition's own log, or from where it came. None while its log is being repaired.
    pub(crate) fn load(
        &self,
        id: PartitionId,
        shared: &Shared,
        index: PartitionLogIndex,
    ) -> Result<Option<AcceptedRecord>, LogError> {
        if let Some(log) = self.log.as_ref().filter(|log| index < log.stored_end() && log.failure().is_none())
        {
            return log.record(index).map(Some);
        }
        let place =
            index.0.checked_sub(self.unsynced_first().0).and_then(|at| self.unsynced.get(at as usize));
        place.map(|place| shared.redo(id, index, *place)).transpose()
    }
}

pub(crate) fn payload_bytes(record: &AcceptedRecord) -> usize {
    match &record.record.change {
        Change::Append(append) => match &append.payload {
            Payload::Inline(bytes) => bytes.len(),
            Payload::Pointer(pointer) => pointer.path.len(),
        },
        _ => 0,
    }
}
