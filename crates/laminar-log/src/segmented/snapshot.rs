//! Building a snapshot: every partition at the same global index, and nobody stops the world.
//!
//! 1. [`SegmentedStateMachine::begin_snapshot`] runs between two entries: it takes the verdict state, and leaves a marker
//!    in each partition.
//! 2. Each machine gives its state when it is behind the record that the marker names. One that does not get there in
//!    time enters with its last state: the records since are in its own log.
//! 3. Every partition's log is synced up to the snapshot's index, because purging leaves those logs the only copy.
//! 4. Only then does the file get its name, and Raft hears of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{BufMut, Bytes};
use laminar_core::ids::{LogIndex, PartitionId};

use super::notice::{Notice, within};
use super::partition::{MachineState, Marker, Partition};
use super::{Membership, SegmentedStateMachine};
use crate::entry::MachineKind;
use crate::error::LogError;
use crate::log_id::{LogId, PartitionLogIndex};
use crate::machine::PartitionStateMachine;
use crate::snapshot::{FileSink, Frame, SnapshotHead, SnapshotPartition, SnapshotWriter};

/// A snapshot that was begun; [`run`](Self::run) finishes it.
pub struct SnapshotBuild {
    machine: SegmentedStateMachine,
    log_id: LogId,
    membership: Membership,
    verdict: Bytes,
    partitions: Vec<Part>,
}

/// One partition of it.
struct Part {
    partition: Arc<Partition>,
    kind: MachineKind,
    highest: PartitionLogIndex,
    start_offset: u64,
    state: Notice<MachineState>,
}

impl SegmentedStateMachine {
    /// Begins a snapshot of everything up to the last entry; none if there is no entry yet. Between two entries.
    ///
    /// # Errors
    ///
    /// Unavailable: one is under way. A second one could name records that the first lets go.
    pub fn begin_snapshot(&self) -> Result<Option<SnapshotBuild>, LogError> {
        let core = self.core();
        let Some(log_id) = core.verdict.last_applied() else { return Ok(None) };
        if self.inner.building.swap(true, Ordering::AcqRel) {
            return Err(LogError::SnapshotUnderWay);
        }
        let partitions = self.partitions();
        let part = |(id, verdict): (PartitionId, &crate::verdict::PartitionVerdict)| {
            let partition =
                Arc::clone(partitions.get(&id).expect("the verdict's partitions are those there are"));
            let state = Notice::default();
            partition.state().markers.push_back(Marker { at: verdict.highest, state: state.clone() });
            let (kind, highest, start_offset) = (verdict.machine, verdict.highest, verdict.start_offset);
            Part { partition, kind, highest, start_offset, state }
        };
        Ok(Some(SnapshotBuild {
            machine: self.clone(),
            log_id,
            membership: core.membership.clone(),
            verdict: core.verdict.encode(),
            partitions: core.verdict.partitions().map(part).collect(),
        }))
    }
}

impl SnapshotBuild {
    /// The last entry that the snapshot covers.
    pub fn log_id(&self) -> LogId {
        self.log_id
    }

    /// The members at that entry.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Finishes the snapshot. The one before stays until then, and if this fails.
    ///
    /// # Errors
    ///
    /// Unavailable, if a file call fails, or the log of a partition is not on disk in time: try again with another.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the snapshot before.
    pub async fn run(self) -> Result<LogId, LogError> {
        let snapshots = &self.machine.inner.snapshots;
        let partitions = u32::try_from(self.partitions.len()).expect("their number is limited");
        let membership = encode_membership(&self.membership);
        let mut writer = snapshots.begin_new(SnapshotHead { log_id: self.log_id, membership, partitions })?;
        writer.verdict(&self.verdict)?;
        let shared = &self.machine.inner.shared;
        let deadline = shared.runtime.now() + shared.config.snapshot_wait;
        let mut applied = Vec::with_capacity(self.partitions.len());
        for part in &self.partitions {
            let left = deadline.saturating_sub(shared.runtime.now());
            let state = self.state_of(part, left).await?;
            applied.push(state.applied);
            write_part(&mut writer, part, state)?;
        }
        self.sync_logs().await?;
        snapshots.commit_new(writer)?;
        self.done(&applied)?;
        Ok(self.log_id)
    }

    /// The machine's state at the snapshot's index, or its last one.
    async fn state_of(&self, part: &Part, wait: Duration) -> Result<MachineState, LogError> {
        part.partition.state().pass_markers();
        if let Some(state) = within(&*self.machine.inner.shared.runtime, wait, part.state.wait()).await {
            return Ok(state);
        }
        let id = part.partition.id;
        tracing::warn!(
            partition = id.0,
            index = self.log_id.index.0,
            "it enters the snapshot with its last state"
        );
        let machine = self.machine.inner.shared.machines.make(id, part.kind);
        if machine.is_stateless() {
            let (pieces, hash) = (machine.snapshot(), machine.state_hash());
            return Ok(MachineState { applied: part.highest, pieces, hash });
        }
        self.machine.last_state(id, machine.as_ref())
    }

    /// Returns when every partition's log is on disk up to the snapshot's index.
    async fn sync_logs(&self) -> Result<(), LogError> {
        let shared = &self.machine.inner.shared;
        let deadline = shared.runtime.now() + shared.config.snapshot_sync_wait;
        let mut open: Vec<&Part> = self.partitions.iter().collect();
        loop {
            let (mut tickets, mut gone) = (Vec::new(), None);
            open.retain(|part| {
                let state = part.partition.state();
                gone = gone.or(state.closed.then_some(part.partition.id));
                let Some(log) = &state.log else { return true };
                if log.synced_end() > part.highest {
                    return false;
                }
                // A log that fails or lags is repaired; it is asked again.
                tickets.extend(log.sync().ok());
                true
            });
            if let Some(partition) = gone {
                return Err(LogError::SnapshotOvertaken { partition });
            }
            let Some(first) = open.first() else { return Ok(()) };
            let left = deadline.saturating_sub(shared.runtime.now());
            if left.is_zero() {
                return Err(LogError::NotSyncedInTime {
                    partition: first.partition.id,
                    index: first.highest,
                });
            }
            let all = async {
                for ticket in tickets {
                    drop(ticket.await);
                }
            };
            within(&*shared.runtime, left, all).await;
            let behind = |part: &&Part| {
                part.partition.state().log.as_ref().is_none_or(|log| log.synced_end() <= part.highest)
            };
            if open.iter().any(behind) {
                // It failed or lags, and is repaired meanwhile.
                shared.runtime.sleep(shared.config.repair_backoff_min).await;
            }
        }
    }

    /// The snapshot is there: what is older can go.
    fn done(&self, applied: &[PartitionLogIndex]) -> Result<(), LogError> {
        self.machine.inner.snapshots.remove_older(self.log_id)?;
        for (part, applied) in self.partitions.iter().zip(applied) {
            let mut state = part.partition.state();
            state.keep_behind(*applied);
            state.trim(part.start_offset);
            let keeps_rows = state.machine.as_ref().is_none_or(|machine| machine.keeps_rows());
            if !keeps_rows
                && let Some(log) = &state.log
                && let Err(error) = log.compact(applied.next())
            {
                // The records stay until the next snapshot.
                tracing::warn!(partition = part.partition.id.0, %error, "compacting the partition's log failed");
            }
        }
        Ok(())
    }
}

impl Drop for SnapshotBuild {
    fn drop(&mut self) {
        for part in &self.partitions {
            part.partition.state().markers.retain(|marker| !marker.state.is_same(&part.state));
        }
        self.machine.inner.building.store(false, Ordering::Release);
    }
}

impl SegmentedStateMachine {
    /// The state of a partition's machine in the newest snapshot, or that of a new machine.
    fn last_state(
        &self,
        id: PartitionId,
        empty: &dyn PartitionStateMachine,
    ) -> Result<MachineState, LogError> {
        let mut found: Option<MachineState> = None;
        if let Some(newest) = self.inner.snapshots.list()?.pop() {
            let mut reader = self.inner.snapshots.read(newest)?;
            while let Some(frame) = reader.next()? {
                match (frame, &mut found) {
                    (Frame::Partition(partition), None) if partition.partition == id => {
                        found =
                            Some(MachineState { applied: partition.applied, pieces: Vec::new(), hash: 0 });
                    }
                    (Frame::State(piece), Some(state)) => state.pieces.push(piece),
                    (Frame::PartitionEnd(hash), Some(state)) => {
                        state.hash = hash;
                        break;
                    }
                    _ => {}
                }
            }
        }
        Ok(found.unwrap_or_else(|| MachineState {
            applied: PartitionLogIndex::NONE,
            pieces: empty.snapshot(),
            hash: empty.state_hash(),
        }))
    }
}

fn write_part(
    writer: &mut SnapshotWriter<FileSink>,
    part: &Part,
    state: MachineState,
) -> Result<(), LogError> {
    let first = part.partition.state().log.as_ref().map_or(part.highest.next(), |log| log.first());
    writer.partition(SnapshotPartition {
        partition: part.partition.id,
        machine: part.kind,
        applied: state.applied,
        highest: part.highest,
        first: first.min(state.applied.next()),
        start_offset: part.start_offset,
    })?;
    for piece in state.pieces {
        writer.state(piece)?;
    }
    Ok(writer.partition_end(state.hash)?)
}

/// The members, with the entry that set them before.
pub(super) fn encode_membership(membership: &Membership) -> Bytes {
    let mut bytes = Vec::with_capacity(17 + membership.bytes.len());
    let log_id = membership.log_id.unwrap_or_default();
    bytes.put_u8(u8::from(membership.log_id.is_some()));
    bytes.put_u64_le(log_id.term);
    bytes.put_u64_le(log_id.index.0);
    bytes.extend_from_slice(&membership.bytes);
    bytes.into()
}

/// The members that a snapshot's head has; none if the bytes are too short, which a checksum has ruled out.
pub(super) fn decode_membership(bytes: &Bytes) -> Option<Membership> {
    let number = |at: usize| bytes.get(at..at + 8).and_then(|bytes| bytes.first_chunk()).copied();
    let (term, index) = (u64::from_le_bytes(number(1)?), u64::from_le_bytes(number(9)?));
    let log_id = (bytes[0] != 0).then_some(LogId { term, index: LogIndex(index) });
    Some(Membership { log_id, bytes: bytes.slice(17..) })
}
