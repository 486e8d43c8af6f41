//! Installing a snapshot of another replica: on an empty one, or on one that lags too far behind.
//!
//! The pieces are received into a file first. Once that file has its name, this replica has no other state: whatever
//! happens then, the partitions' logs are rewritten from it, here or by the next opening.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::Duration;

use bytes::Bytes;
use laminar_core::ids::PartitionId;

use super::SegmentedStateMachine;
use super::open::{Restored, open_partitions, start_partitions};
use super::partition::MachineState;
use super::shared::Shared;
use super::snapshot::decode_membership;
use super::transfer::SnapshotPieces;
use crate::error::LogError;
use crate::log_id::LogId;
use crate::partition_log::{PartitionLogStore, list_partitions};
use crate::snapshot::{Frame, SnapshotHead, SnapshotReader, SnapshotStore};
use crate::verdict::VerdictState;

/// Rows that are handed to a partition's log at once.
const ROWS_AT_ONCE: usize = 1024;
/// How long a log may take to bring rows to disk before the installation fails.
const SYNC_WAIT: Duration = Duration::from_secs(60);

impl SegmentedStateMachine {
    /// Receives a snapshot and puts it in the place of everything this replica has. Between two entries.
    ///
    /// # Errors
    ///
    /// Corrupt, if a piece is damaged: this replica keeps what it has. Unavailable, if a file call fails: what was
    /// received whole is installed by the next opening.
    pub fn install(&self, log_id: LogId, pieces: &mut dyn SnapshotPieces) -> Result<(), LogError> {
        let mut core = self.core();
        let mut incoming = self.inner.snapshots.begin_install()?;
        while let Some(piece) = pieces.next_piece()? {
            incoming.push(piece)?;
        }
        self.inner.snapshots.commit_install(incoming, log_id)?;
        let shared = &self.inner.shared;
        let mut partitions = self.inner.partitions.write().unwrap_or_else(PoisonError::into_inner);
        for partition in std::mem::take(&mut *partitions).into_values() {
            // Whoever still reads from it must not keep the files.
            partition.close(shared).iter().for_each(PartitionLogStore::close);
        }
        shared.raise_committed(log_id.index);
        let restored = finish_install(shared, &self.inner.snapshots)?;
        let restored = restored.expect("it was given its name just now");
        *partitions = open_partitions(shared, &restored)?;
        start_partitions(shared, &partitions);
        drop(partitions);
        core.verdict = restored.verdict;
        core.membership = restored.membership;
        drop(core);
        self.decided(log_id);
        Ok(())
    }
}

/// Does what is left to do of an installation, if there is one: rewrites the partitions' logs, writes the local form of
/// the snapshot, and forgets what was received. May be done twice.
pub(super) fn finish_install(
    shared: &Shared,
    snapshots: &SnapshotStore,
) -> Result<Option<Restored>, LogError> {
    let Some((head, reader)) = snapshots.pending_install()? else { return Ok(None) };
    let restored = rewrite(shared, snapshots, &head, reader)?;
    snapshots.remove_older(head.log_id)?;
    snapshots.finish_install()?;
    Ok(Some(restored))
}

fn rewrite(
    shared: &Shared,
    snapshots: &SnapshotStore,
    head: &SnapshotHead,
    mut reader: SnapshotReader,
) -> Result<Restored, LogError> {
    let mut local = snapshots.begin_new(head.clone())?;
    let mut builder = RestoredBuilder::default();
    let mut log: Option<(PartitionLogStore, Vec<Bytes>)> = None;
    while let Some(frame) = reader.next()? {
        match &frame {
            Frame::Partition(part) => {
                let config = shared.config.partition_log.clone();
                let (committer, root) = (&shared.committer, &shared.partitions_dir);
                let store =
                    PartitionLogStore::create_at(committer, root, part.partition, config, part.first)?;
                log = Some((store, Vec::new()));
                local.partition(*part)?;
            }
            Frame::Rows(rows) => {
                let (store, pending) = log.as_mut().expect("rows come within a partition");
                pending.extend(rows.iter().cloned());
                if pending.len() >= ROWS_AT_ONCE {
                    store.append_stored(std::mem::take(pending))?.wait(SYNC_WAIT)?;
                }
            }
            Frame::PartitionEnd(hash) => {
                let (store, pending) = log.take().expect("the partition comes before its end");
                if !pending.is_empty() {
                    drop(store.append_stored(pending)?);
                }
                store.sync()?.wait(SYNC_WAIT)?;
                local.partition_end(*hash)?;
            }
            Frame::Verdict(bytes) => local.verdict(bytes)?,
            Frame::State(piece) => local.state(piece.clone())?,
            Frame::Head(..) | Frame::End(_) => {}
        }
        builder.take(frame);
    }
    for id in list_partitions(&shared.committer, &shared.partitions_dir)? {
        if !builder.ids.contains(&id) {
            shared.remove_log(id)?;
        }
    }
    snapshots.commit_new(local)?;
    builder.finish(head)
}

/// The newest snapshot of this replica.
pub(super) fn read_newest(snapshots: &SnapshotStore) -> Result<Option<Restored>, LogError> {
    let Some((head, mut reader)) = snapshots.newest()? else { return Ok(None) };
    let mut builder = RestoredBuilder::default();
    while let Some(frame) = reader.next()? {
        builder.take(frame);
    }
    builder.finish(&head).map(Some)
}

/// Puts a snapshot together from its frames, whose order the reader has checked.
#[derive(Default)]
struct RestoredBuilder {
    verdict: Vec<u8>,
    ids: BTreeSet<PartitionId>,
    states: BTreeMap<PartitionId, MachineState>,
}

impl RestoredBuilder {
    fn take(&mut self, frame: Frame) {
        match frame {
            Frame::Verdict(bytes) => self.verdict.extend_from_slice(&bytes),
            Frame::Partition(part) => {
                let state = MachineState { applied: part.applied, pieces: Vec::new(), hash: 0 };
                self.ids.insert(part.partition);
                self.states.insert(part.partition, state);
            }
            Frame::State(piece) => self.last().pieces.push(piece),
            Frame::PartitionEnd(hash) => self.last().hash = hash,
            Frame::Head(..) | Frame::Rows(_) | Frame::End(_) => {}
        }
    }

    fn last(&mut self) -> &mut MachineState {
        // Partitions come in the order of their ids.
        self.states.last_entry().expect("the partition comes before its state").into_mut()
    }

    fn finish(self, head: &SnapshotHead) -> Result<Restored, LogError> {
        let verdict = VerdictState::decode(&self.verdict)?;
        let membership = decode_membership(&head.membership).unwrap_or_default();
        Ok(Restored { verdict, membership, states: self.states })
    }
}
