//! Entries to and from their messages, and the parts that answers and snapshots share with them.
//!
//! Whatever an entry can hold is read back: an entry that could be written to the log and not read from it would stop
//! every replica. Limits are for `apply` to check, where the answer is a rejection.

use std::collections::BTreeMap;

use super::proto::change::Change as Kind;
use super::proto::metadata_log_entry::Body;
use super::{ENTRY_VERSION, Fault, need, proto};
use crate::ids::{
    CheckpointId, DataGroupId, Epoch, LogIndex, NodeId, OwnerEpoch, PartitionId, PartitionRange, RequestId,
    StreamId,
};
use crate::metadata::{
    CheckpointRef, EntryBody, MetadataChange, MetadataLogEntry, Release, Retention, SourceOffsets,
    StreamLimits, StreamMachine,
};
use crate::node::{NodeMetadata, NodeRole, NodeState};

pub(super) fn to_proto(entry: &MetadataLogEntry) -> proto::MetadataLogEntry {
    proto::MetadataLogEntry {
        version: ENTRY_VERSION,
        time_ms: entry.time_ms,
        request_id: (entry.request_id != RequestId::NONE).then(|| request_id_to(entry.request_id)),
        body: Some(match &entry.body {
            EntryBody::One(change) => Body::One(change_to(change)),
            EntryBody::Batch(changes) => {
                Body::Batch(proto::Batch { changes: changes.iter().map(change_to).collect() })
            }
        }),
    }
}

pub(super) fn from_proto(entry: proto::MetadataLogEntry) -> Result<MetadataLogEntry, Fault> {
    if entry.version == 0 {
        return Err(Fault("version 0 never existed"));
    }
    let body = match need(entry.body, "it changes nothing")? {
        Body::One(change) => EntryBody::One(change_from(change)?),
        Body::Batch(batch) => {
            EntryBody::Batch(batch.changes.into_iter().map(change_from).collect::<Result<_, _>>()?)
        }
    };
    let request_id = entry.request_id.map_or(RequestId::NONE, request_id_from);
    Ok(MetadataLogEntry { time_ms: entry.time_ms, request_id, body })
}

fn change_to(change: &MetadataChange) -> proto::Change {
    let change = match change {
        MetadataChange::AssignPartition { partition_id, node_id, epoch, expected } => {
            Kind::AssignPartition(proto::AssignPartition {
                partition_id: partition_id.0,
                node_id: node_id.0,
                epoch: epoch.get(),
                expected: expected.map(owner_to),
            })
        }
        MetadataChange::ReleasePartition { partition_id, expected, release } => {
            Kind::ReleasePartition(Box::new(proto::ReleasePartition {
                partition_id: partition_id.0,
                expected: Some(owner_to(*expected)),
                release: Some(release_to(release)),
            }))
        }
        MetadataChange::AcquirePartition { partition_id, node_id, epoch, expected } => {
            Kind::AcquirePartition(proto::AcquirePartition {
                partition_id: partition_id.0,
                node_id: node_id.0,
                epoch: epoch.get(),
                expected: Some(owner_to(*expected)),
            })
        }
        MetadataChange::CommitCheckpoint { partition_id, expected, checkpoint } => {
            Kind::CommitCheckpoint(Box::new(proto::CommitCheckpoint {
                partition_id: partition_id.0,
                expected: Some(owner_to(*expected)),
                checkpoint: Some(checkpoint_to(checkpoint)),
            }))
        }
        MetadataChange::UpdateNodeState { node_id, state, metadata, expected } => {
            Kind::UpdateNodeState(Box::new(proto::UpdateNodeState {
                node_id: node_id.0,
                state: state_to(*state),
                metadata: metadata.as_ref().map(node_metadata_to),
                expected: expected.map(state_to),
            }))
        }
        MetadataChange::RegisterNode {
            node_id,
            role,
            state,
            rpc_address,
            raft_address,
            metadata,
            expected,
        } => Kind::RegisterNode(Box::new(proto::RegisterNode {
            node_id: node_id.map(|id| id.0),
            role: role_to(*role),
            state: state_to(*state),
            rpc_address: rpc_address.clone(),
            raft_address: raft_address.clone(),
            metadata: Some(node_metadata_to(metadata)),
            expected: expected.map(state_to),
        })),
        MetadataChange::DeregisterNode { node_id, expected } => Kind::DeregisterNode(proto::DeregisterNode {
            node_id: node_id.0,
            expected: expected.map(state_to),
        }),
        MetadataChange::IncrementClusterEpoch { expected } => {
            Kind::IncrementClusterEpoch(proto::IncrementClusterEpoch { expected: *expected })
        }
        MetadataChange::CreateStream {
            path,
            partitions,
            schema,
            key,
            machine,
            data_group,
            retention,
            limits,
        } => Kind::CreateStream(Box::new(proto::CreateStream {
            path: path.clone(),
            partitions: *partitions,
            schema: schema.clone(),
            key: key.clone(),
            machine: machine_to(machine),
            data_group: data_group.0,
            machine_name: machine_name_to(machine),
            retention: set(*retention).map(retention_to),
            limits: set(*limits).map(limits_to),
        })),
        MetadataChange::AlterStream { path, expected, partitions, retention, limits } => {
            Kind::AlterStream(Box::new(proto::AlterStream {
                path: path.clone(),
                expected: expected.0,
                partitions: *partitions,
                retention: retention.map(retention_to),
                limits: limits.map(limits_to),
            }))
        }
        MetadataChange::DropStream { path, expected } => {
            Kind::DropStream(proto::DropStream { path: path.clone(), expected: expected.map(|id| id.0) })
        }
        MetadataChange::BindQuery { path, stream_id, writer, query, expected } => {
            Kind::BindQuery(Box::new(proto::BindQuery {
                path: path.clone(),
                stream_id: stream_id.0,
                writer: writer.clone(),
                query: query.clone(),
                expected: expected.clone(),
            }))
        }
        MetadataChange::CheckOwner { partition_id, expected } => Kind::CheckOwner(proto::CheckOwner {
            partition_id: partition_id.0,
            expected: Some(owner_to(*expected)),
        }),
    };
    proto::Change { change: Some(change) }
}

fn change_from(change: proto::Change) -> Result<MetadataChange, Fault> {
    Ok(match need(change.change, "a change is of no kind this release knows")? {
        Kind::AssignPartition(change) => MetadataChange::AssignPartition {
            partition_id: PartitionId(change.partition_id),
            node_id: NodeId(change.node_id),
            epoch: epoch_from(change.epoch)?,
            expected: change.expected.map(owner_from).transpose()?,
        },
        Kind::ReleasePartition(change) => MetadataChange::ReleasePartition {
            partition_id: PartitionId(change.partition_id),
            expected: needed_owner(change.expected)?,
            release: release_from(need(change.release, "a release does not say how the partition was left")?),
        },
        Kind::AcquirePartition(change) => MetadataChange::AcquirePartition {
            partition_id: PartitionId(change.partition_id),
            node_id: NodeId(change.node_id),
            epoch: epoch_from(change.epoch)?,
            expected: needed_owner(change.expected)?,
        },
        Kind::CommitCheckpoint(change) => MetadataChange::CommitCheckpoint {
            partition_id: PartitionId(change.partition_id),
            expected: needed_owner(change.expected)?,
            checkpoint: checkpoint_from(need(change.checkpoint, "a commit names no checkpoint")?)?,
        },
        Kind::UpdateNodeState(change) => MetadataChange::UpdateNodeState {
            node_id: NodeId(change.node_id),
            state: state_from(change.state)?,
            metadata: change.metadata.map(node_metadata_from),
            expected: change.expected.map(state_from).transpose()?,
        },
        Kind::RegisterNode(change) => MetadataChange::RegisterNode {
            node_id: change.node_id.map(NodeId),
            role: role_from(change.role)?,
            state: state_from(change.state)?,
            rpc_address: change.rpc_address,
            raft_address: change.raft_address,
            metadata: node_metadata_from(need(change.metadata, "a node has no size")?),
            expected: change.expected.map(state_from).transpose()?,
        },
        Kind::DeregisterNode(change) => MetadataChange::DeregisterNode {
            node_id: NodeId(change.node_id),
            expected: change.expected.map(state_from).transpose()?,
        },
        Kind::IncrementClusterEpoch(change) => {
            MetadataChange::IncrementClusterEpoch { expected: change.expected }
        }
        Kind::CreateStream(change) => MetadataChange::CreateStream {
            path: change.path,
            partitions: change.partitions,
            schema: change.schema,
            key: change.key,
            machine: machine_from(change.machine, change.machine_name)?,
            data_group: DataGroupId(change.data_group),
            retention: change.retention.map(retention_from).unwrap_or_default(),
            limits: change.limits.map(limits_from).unwrap_or_default(),
        },
        Kind::AlterStream(change) => MetadataChange::AlterStream {
            path: change.path,
            expected: StreamId(change.expected),
            partitions: change.partitions,
            retention: change.retention.map(retention_from),
            limits: change.limits.map(limits_from),
        },
        Kind::DropStream(change) => {
            MetadataChange::DropStream { path: change.path, expected: change.expected.map(StreamId) }
        }
        Kind::BindQuery(change) => MetadataChange::BindQuery {
            path: change.path,
            stream_id: StreamId(change.stream_id),
            writer: change.writer,
            query: change.query,
            expected: change.expected,
        },
        Kind::CheckOwner(change) => MetadataChange::CheckOwner {
            partition_id: PartitionId(change.partition_id),
            expected: needed_owner(change.expected)?,
        },
    })
}

pub(super) fn request_id_to(id: RequestId) -> proto::RequestId {
    proto::RequestId { high: (id.0 >> 64) as u64, low: id.0 as u64 }
}

pub(super) fn request_id_from(id: proto::RequestId) -> RequestId {
    RequestId(u128::from(id.high) << 64 | u128::from(id.low))
}

pub(super) fn epoch_from(epoch: u64) -> Result<Epoch, Fault> {
    Epoch::new(epoch).map_err(|_| Fault("an epoch is 0"))
}

pub(super) fn owner_to(owner: OwnerEpoch) -> proto::OwnerEpoch {
    proto::OwnerEpoch { node_id: owner.node_id.0, epoch: owner.epoch.get() }
}

pub(super) fn owner_from(owner: proto::OwnerEpoch) -> Result<OwnerEpoch, Fault> {
    Ok(OwnerEpoch { node_id: NodeId(owner.node_id), epoch: epoch_from(owner.epoch)? })
}

pub(super) fn needed_owner(owner: Option<proto::OwnerEpoch>) -> Result<OwnerEpoch, Fault> {
    owner_from(need(owner, "an owner and its epoch are missing")?)
}

pub(super) fn range_to(range: PartitionRange) -> proto::PartitionRange {
    proto::PartitionRange { first: range.first().0, last: range.last().0 }
}

pub(super) fn range_from(range: proto::PartitionRange) -> Result<PartitionRange, Fault> {
    let range = PartitionRange::new(PartitionId(range.first), PartitionId(range.last));
    need(range, "a range of partitions ends before it starts")
}

pub(super) fn release_to(release: &Release) -> proto::Release {
    proto::Release {
        final_index: release.final_index.0,
        state_hash: release.state_hash,
        next_offset: release.next_offset,
        checkpoint_id: release.checkpoint_id.map(|id| id.0),
        source_offsets: offsets_to(&release.source_offsets),
    }
}

pub(super) fn release_from(release: proto::Release) -> Release {
    Release {
        final_index: LogIndex(release.final_index),
        state_hash: release.state_hash,
        next_offset: release.next_offset,
        checkpoint_id: release.checkpoint_id.map(CheckpointId),
        source_offsets: offsets_from(release.source_offsets),
    }
}

pub(super) fn checkpoint_to(checkpoint: &CheckpointRef) -> proto::CheckpointRef {
    proto::CheckpointRef {
        checkpoint_id: checkpoint.checkpoint_id.0,
        partition_id: checkpoint.partition_id.0,
        epoch: checkpoint.epoch.get(),
        storage_path: checkpoint.storage_path.clone(),
        source_offsets: offsets_to(&checkpoint.source_offsets),
        size_bytes: checkpoint.size_bytes,
        created_at_ms: checkpoint.created_at_ms,
    }
}

pub(super) fn checkpoint_from(checkpoint: proto::CheckpointRef) -> Result<CheckpointRef, Fault> {
    Ok(CheckpointRef {
        checkpoint_id: CheckpointId(checkpoint.checkpoint_id),
        partition_id: PartitionId(checkpoint.partition_id),
        epoch: epoch_from(checkpoint.epoch)?,
        storage_path: checkpoint.storage_path,
        source_offsets: offsets_from(checkpoint.source_offsets),
        size_bytes: checkpoint.size_bytes,
        created_at_ms: checkpoint.created_at_ms,
    })
}

fn offsets_to(offsets: &SourceOffsets) -> BTreeMap<String, proto::SourcePartitions> {
    let partitions =
        |next_offsets: &BTreeMap<u32, u64>| proto::SourcePartitions { next_offsets: next_offsets.clone() };
    offsets.iter().map(|(source, next_offsets)| (source.clone(), partitions(next_offsets))).collect()
}

fn offsets_from(offsets: BTreeMap<String, proto::SourcePartitions>) -> SourceOffsets {
    offsets.into_iter().map(|(source, partitions)| (source, partitions.next_offsets)).collect()
}

pub(super) fn node_metadata_to(metadata: &NodeMetadata) -> proto::NodeMetadata {
    proto::NodeMetadata {
        cores: metadata.cores,
        memory_bytes: metadata.memory_bytes,
        failure_domain: metadata.failure_domain.clone(),
        tags: metadata.tags.clone(),
    }
}

pub(super) fn node_metadata_from(metadata: proto::NodeMetadata) -> NodeMetadata {
    NodeMetadata {
        cores: metadata.cores,
        memory_bytes: metadata.memory_bytes,
        failure_domain: metadata.failure_domain,
        tags: metadata.tags,
    }
}

/// Two functions that turn an enum into its number on the wire and back; a number without a value is a fault.
macro_rules! wire_enum {
    ($to:ident, $from:ident, $ours:ident, $theirs:ident, $fault:literal, [$($value:ident),+ $(,)?]) => {
        pub(super) fn $to(value: $ours) -> i32 {
            match value {
                $($ours::$value => super::proto::$theirs::$value as i32,)+
            }
        }

        pub(super) fn $from(value: i32) -> Result<$ours, super::Fault> {
            $(if value == super::proto::$theirs::$value as i32 {
                return Ok($ours::$value);
            })+
            Err(super::Fault($fault))
        }
    };
}
pub(super) use wire_enum;

wire_enum!(
    state_to,
    state_from,
    NodeState,
    NodeState,
    "a node is in no known state",
    [Joining, Active, Draining, Left, Failed]
);
wire_enum!(role_to, role_from, NodeRole, NodeRole, "a node has no known role", [Server, Worker]);

pub(super) fn machine_to(machine: &StreamMachine) -> i32 {
    let machine = match machine {
        StreamMachine::Log => proto::StreamMachine::Log,
        StreamMachine::Kv => proto::StreamMachine::Kv,
        StreamMachine::Custom(_) => proto::StreamMachine::Custom,
    };
    machine as i32
}

pub(super) fn machine_name_to(machine: &StreamMachine) -> String {
    match machine {
        StreamMachine::Log | StreamMachine::Kv => String::new(),
        StreamMachine::Custom(name) => name.clone(),
    }
}

pub(super) fn machine_from(machine: i32, name: String) -> Result<StreamMachine, Fault> {
    match proto::StreamMachine::try_from(machine) {
        Ok(proto::StreamMachine::Custom) => Ok(StreamMachine::Custom(name)),
        _ if !name.is_empty() => Err(Fault("a machine of our own has a name beside it")),
        Ok(proto::StreamMachine::Log) => Ok(StreamMachine::Log),
        Ok(proto::StreamMachine::Kv) => Ok(StreamMachine::Kv),
        Ok(proto::StreamMachine::Unspecified) | Err(_) => Err(Fault("a stream has no known machine")),
    }
}

/// What is as if it were not there is not written: streams of before it was known keep their bytes.
pub(super) fn set<T: Default + PartialEq>(value: T) -> Option<T> {
    (value != T::default()).then_some(value)
}

pub(super) fn retention_to(retention: Retention) -> proto::Retention {
    proto::Retention { age_ms: retention.age_ms, bytes: retention.bytes }
}

pub(super) fn retention_from(retention: proto::Retention) -> Retention {
    Retention { age_ms: retention.age_ms, bytes: retention.bytes }
}

pub(super) fn limits_to(limits: StreamLimits) -> proto::StreamLimits {
    proto::StreamLimits { row_bytes_max: limits.row_bytes_max }
}

pub(super) fn limits_from(limits: proto::StreamLimits) -> StreamLimits {
    StreamLimits { row_bytes_max: limits.row_bytes_max }
}
