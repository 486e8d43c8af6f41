//! The rules: what each change needs to find, and what it then does.
//!
//! Every rule decides before its first step, so that a rejected change leaves nothing behind.

use super::DeltaMetadata;
use super::catalogue::{StreamDescriptor, check_settings, check_stream};
use super::entry::{EntryBody, MetadataChange, MetadataLogEntry};
use super::journal::Edit;
use super::limits::Bound;
use super::response::{MetadataResponse, Rejection};
use crate::ids::{LogIndex, OwnerEpoch, PartitionId};
use crate::node::NodeRegistration;

mod nodes;
mod partitions;
mod streams;

use nodes::check_node_metadata;

/// The last index a log can reach: 2^63 entries would take longer than the disks last.
pub(super) const LOG_INDEX_MAX: LogIndex = LogIndex(u64::MAX >> 1);

impl DeltaMetadata {
    /// Applies the entry after the last one. See [`apply_at`](Self::apply_at).
    pub fn apply(&mut self, entry: &MetadataLogEntry) -> MetadataResponse {
        self.apply_at(LogIndex(self.last_applied_log.0 + 1), entry)
    }

    /// Applies the entry at `index` of the log; entries that are not ours may lie between it and the last one.
    ///
    /// The answer and the state after it depend on the state before and the entry alone (APPLY-2). A rejection leaves
    /// everything as it was but the last index and time, and the table of answered requests.
    ///
    /// # Panics
    /// `index` is not after the last one applied: the log was applied out of order, and going on would make this
    /// replica differ from the others.
    pub fn apply_at(&mut self, index: LogIndex, entry: &MetadataLogEntry) -> MetadataResponse {
        self.apply_noting(index, entry).0
    }

    /// Like [`apply_at`](Self::apply_at); also tells which partitions came, went or changed their owner or epoch, sorted.
    ///
    /// # Panics
    /// As [`apply_at`](Self::apply_at).
    pub fn apply_noting(
        &mut self,
        index: LogIndex,
        entry: &MetadataLogEntry,
    ) -> (MetadataResponse, Vec<PartitionId>) {
        assert!(
            index > self.last_applied_log && index <= LOG_INDEX_MAX,
            "APPLY-2: entry {index} applied after entry {}",
            self.last_applied_log
        );
        let (response, touched) = match self.requests.answer(entry.request_id) {
            Some(first) => {
                let first = Box::new(first.clone());
                (MetadataResponse::Rejected(Rejection::DuplicateRequest { first }), Vec::new())
            }
            None => {
                let (response, touched) = self.decide(index, entry);
                self.requests.remember(entry.request_id, response.clone());
                (response, touched)
            }
        };
        self.last_applied_log = index;
        self.last_applied_time_ms = entry.time_ms;
        (response, touched)
    }

    fn decide(&mut self, index: LogIndex, entry: &MetadataLogEntry) -> (MetadataResponse, Vec<PartitionId>) {
        let outcome = match &entry.body {
            EntryBody::One(change) => {
                let mut edit = Edit::of_one(self, index, entry.time_ms);
                edit.change(change).map(|()| (edit.minted, edit.touched))
            }
            EntryBody::Batch(changes) => {
                let mut edit = Edit::of_batch(self, index, entry.time_ms);
                match edit.changes(changes) {
                    Ok(()) => Ok((edit.minted, edit.touched)),
                    Err(reason) => {
                        edit.take_back();
                        Err(reason)
                    }
                }
            }
        };
        match outcome {
            Ok((minted, mut touched)) => {
                touched.sort_unstable();
                touched.dedup();
                (MetadataResponse::Applied { minted }, touched)
            }
            Err(reason) => (MetadataResponse::Rejected(reason), Vec::new()),
        }
    }
}

impl Edit<'_> {
    fn changes(&mut self, changes: &[MetadataChange]) -> Result<(), Rejection> {
        Bound::BatchChanges.check(changes.len())?;
        self.partitions_created = changes.iter().map(partitions_created).sum();
        Bound::BatchPartitions.check(self.partitions_created)?;
        for (position, change) in (0..).zip(changes) {
            self.change(change)
                .map_err(|reason| Rejection::InBatch { position, reason: Box::new(reason) })?;
        }
        Ok(())
    }

    fn change(&mut self, change: &MetadataChange) -> Result<(), Rejection> {
        match change {
            &MetadataChange::AssignPartition { partition_id, node_id, epoch, expected } => {
                let next = OwnerEpoch { node_id, epoch };
                match expected {
                    None => self.create_partition(partition_id, next),
                    Some(expected) => self.assign_partition(partition_id, expected, next),
                }
            }
            MetadataChange::ReleasePartition { partition_id, expected, release } => {
                self.release_partition(*partition_id, *expected, release)
            }
            &MetadataChange::AcquirePartition { partition_id, node_id, epoch, expected } => {
                self.acquire_partition(partition_id, expected, OwnerEpoch { node_id, epoch })
            }
            MetadataChange::CommitCheckpoint { partition_id, expected, checkpoint } => {
                self.commit_checkpoint(*partition_id, *expected, checkpoint)
            }
            MetadataChange::UpdateNodeState { node_id, state, metadata, expected } => {
                self.update_node_state(*node_id, *state, metadata.as_ref(), *expected)
            }
            MetadataChange::RegisterNode {
                node_id,
                role,
                state,
                rpc_address,
                raft_address,
                metadata,
                expected,
            } => {
                Bound::AddressBytes.check(rpc_address.len())?;
                Bound::AddressBytes.check(raft_address.len())?;
                check_node_metadata(metadata)?;
                let node_id = self.admit_node(*node_id, *role, *expected)?;
                self.register_node(NodeRegistration {
                    node_id,
                    role: *role,
                    state: *state,
                    rpc_address: rpc_address.clone(),
                    raft_address: raft_address.clone(),
                    metadata: metadata.clone(),
                    registered_at_ms: self.time_ms,
                    last_updated_ms: self.time_ms,
                });
                Ok(())
            }
            MetadataChange::DeregisterNode { node_id, expected } => self.deregister_node(*node_id, *expected),
            MetadataChange::IncrementClusterEpoch { expected } => self.increment_cluster_epoch(*expected),
            MetadataChange::CreateStream {
                path,
                partitions,
                schema,
                key,
                machine,
                data_group,
                retention,
                limits,
            } => {
                check_stream(path, schema, key, machine)?;
                check_settings(retention, limits)?;
                Bound::StreamPartitions.check(*partitions as usize)?;
                let (stream_id, range) = self.admit_stream(path, *partitions)?;
                self.create_stream(StreamDescriptor {
                    stream_id,
                    path: path.clone(),
                    partition_ids: vec![range],
                    schema: schema.clone(),
                    key: key.clone(),
                    machine: machine.clone(),
                    data_group: *data_group,
                    created_at_ms: self.time_ms,
                    retention: *retention,
                    limits: *limits,
                });
                Ok(())
            }
            MetadataChange::AlterStream { path, expected, partitions, retention, limits } => {
                self.alter_stream(path, *expected, *partitions, *retention, *limits)
            }
            MetadataChange::DropStream { path, expected } => self.drop_stream(path, *expected),
            MetadataChange::BindQuery { path, stream_id, writer, query, expected } => {
                self.bind_query(path, *stream_id, writer, query, expected.as_deref())
            }
            &MetadataChange::CheckOwner { partition_id, expected } => {
                self.check_owner(partition_id, expected)
            }
        }
    }
}

/// How many partitions a change creates at once. A small batch could otherwise create and drop a large stream so often
/// that no replica has the time or the memory for it.
fn partitions_created(change: &MetadataChange) -> usize {
    match change {
        MetadataChange::CreateStream { partitions, .. } => *partitions as usize,
        _ => 0,
    }
}
