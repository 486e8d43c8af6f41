//! Answers to and from their messages.

use super::entry::{
    epoch_from, needed_owner, owner_from, owner_to, range_from, range_to, state_from, state_to, wire_enum,
};
use super::proto::invalid_change::Fault as InvalidKind;
use super::proto::metadata_response::Outcome;
use super::proto::minted::Minted as MintedKind;
use super::proto::rejection::Reason;
use super::proto::stream_path_fault::Fault as PathKind;
use super::{Fault, need, proto};
use crate::ids::{CheckpointId, NodeId, PartitionId, StreamId};
use crate::metadata::{
    Bound, CheckpointMark, InvalidChange, Limit, MetadataResponse, Minted, PathFault, Rejection,
};

pub(super) fn to_proto(response: &MetadataResponse) -> proto::MetadataResponse {
    let outcome = match response {
        MetadataResponse::Applied { minted } => {
            Outcome::Applied(proto::Applied { minted: minted.iter().map(minted_to).collect() })
        }
        MetadataResponse::Rejected(rejection) => Outcome::Rejected(Box::new(rejection_to(rejection))),
    };
    proto::MetadataResponse { outcome: Some(outcome) }
}

pub(super) fn from_proto(response: proto::MetadataResponse) -> Result<MetadataResponse, Fault> {
    Ok(match need(response.outcome, "an answer is neither applied nor rejected")? {
        Outcome::Applied(applied) => MetadataResponse::Applied {
            minted: applied.minted.into_iter().map(minted_from).collect::<Result<_, _>>()?,
        },
        Outcome::Rejected(rejection) => MetadataResponse::Rejected(rejection_from(*rejection)?),
    })
}

fn minted_to(minted: &Minted) -> proto::Minted {
    let minted = match *minted {
        Minted::Node(node_id) => MintedKind::NodeId(node_id.0),
        Minted::Stream { stream_id, partitions } => MintedKind::Stream(proto::MintedStream {
            stream_id: stream_id.0,
            partitions: Some(range_to(partitions)),
        }),
        Minted::Partitions(partitions) => MintedKind::Partitions(range_to(partitions)),
    };
    proto::Minted { minted: Some(minted) }
}

fn minted_from(minted: proto::Minted) -> Result<Minted, Fault> {
    Ok(match need(minted.minted, "a minted id is of no known kind")? {
        MintedKind::NodeId(node_id) => Minted::Node(NodeId(node_id)),
        MintedKind::Stream(stream) => Minted::Stream {
            stream_id: StreamId(stream.stream_id),
            partitions: range_from(need(stream.partitions, "a minted stream has no partitions")?)?,
        },
        MintedKind::Partitions(partitions) => Minted::Partitions(range_from(partitions)?),
    })
}

fn rejection_to(rejection: &Rejection) -> proto::Rejection {
    let reason = match rejection {
        Rejection::StaleEpoch { partition, expected, current } => Reason::StaleEpoch(proto::StaleEpoch {
            partition_id: partition.0,
            expected: expected.map(owner_to),
            current: Some(owner_to(*current)),
        }),
        Rejection::NotOwner { partition, expected, current } => Reason::NotOwner(proto::NotOwner {
            partition_id: partition.0,
            expected: Some(owner_to(*expected)),
            current: Some(owner_to(*current)),
        }),
        Rejection::EpochSkipped { partition, epoch, current } => Reason::EpochSkipped(proto::EpochSkipped {
            partition_id: partition.0,
            epoch: epoch.get(),
            current: Some(owner_to(*current)),
        }),
        Rejection::EpochExhausted { partition } => Reason::EpochExhausted(partition.0),
        Rejection::UnknownPartition { partition } => Reason::UnknownPartition(partition.0),
        Rejection::UnknownNode { node_id } => Reason::UnknownNode(node_id.0),
        Rejection::NodeExists { node_id, state } => {
            Reason::NodeExists(proto::NodeExists { node_id: node_id.0, state: state_to(*state) })
        }
        Rejection::NodeStateChanged { node_id, expected, current } => {
            Reason::NodeStateChanged(proto::NodeStateChanged {
                node_id: node_id.0,
                expected: state_to(*expected),
                current: state_to(*current),
            })
        }
        Rejection::AlreadyReleased { partition, current } => {
            Reason::AlreadyReleased(proto::AlreadyReleased {
                partition_id: partition.0,
                current: Some(owner_to(*current)),
            })
        }
        Rejection::StaleCheckpoint { partition, given, latest } => {
            Reason::StaleCheckpoint(proto::StaleCheckpoint {
                partition_id: partition.0,
                given: Some(mark_to(*given)),
                latest: Some(mark_to(*latest)),
            })
        }
        Rejection::ClusterEpochChanged { expected, current } => {
            Reason::ClusterEpochChanged(proto::ClusterEpochChanged { expected: *expected, current: *current })
        }
        Rejection::StreamExists { path, stream_id } => {
            Reason::StreamExists(proto::StreamExists { path: path.clone(), stream_id: stream_id.0 })
        }
        Rejection::UnknownStream { path } => Reason::UnknownStream(path.clone()),
        Rejection::StreamReplaced { path, expected, current } => {
            Reason::StreamReplaced(proto::StreamReplaced {
                path: path.clone(),
                expected: expected.0,
                current: current.0,
            })
        }
        Rejection::PartitionsShrunk { path, current, given } => {
            Reason::PartitionsShrunk(proto::PartitionsShrunk {
                path: path.clone(),
                current: *current,
                given: *given,
            })
        }
        Rejection::QueryChanged { path, writer, expected, current } => {
            Reason::QueryChanged(proto::QueryChanged {
                path: path.clone(),
                writer: writer.clone(),
                expected: expected.clone(),
                current: current.clone(),
            })
        }
        Rejection::LimitReached { limit } => {
            Reason::LimitReached(proto::LimitReached { limit: limit_to(*limit) })
        }
        Rejection::Invalid(invalid) => Reason::Invalid(invalid_to(invalid)),
        Rejection::InBatch { position, reason } => Reason::InBatch(Box::new(proto::InBatch {
            position: *position,
            reason: Some(Box::new(rejection_to(reason))),
        })),
        Rejection::DuplicateRequest { first } => Reason::DuplicateRequest(Box::new(to_proto(first))),
    };
    proto::Rejection { reason: Some(reason) }
}

fn rejection_from(rejection: proto::Rejection) -> Result<Rejection, Fault> {
    Ok(match need(rejection.reason, "a rejection has no known reason")? {
        Reason::StaleEpoch(reason) => Rejection::StaleEpoch {
            partition: PartitionId(reason.partition_id),
            expected: reason.expected.map(owner_from).transpose()?,
            current: needed_owner(reason.current)?,
        },
        Reason::NotOwner(reason) => Rejection::NotOwner {
            partition: PartitionId(reason.partition_id),
            expected: needed_owner(reason.expected)?,
            current: needed_owner(reason.current)?,
        },
        Reason::EpochSkipped(reason) => Rejection::EpochSkipped {
            partition: PartitionId(reason.partition_id),
            epoch: epoch_from(reason.epoch)?,
            current: needed_owner(reason.current)?,
        },
        Reason::EpochExhausted(partition) => Rejection::EpochExhausted { partition: PartitionId(partition) },
        Reason::UnknownPartition(partition) => {
            Rejection::UnknownPartition { partition: PartitionId(partition) }
        }
        Reason::UnknownNode(node_id) => Rejection::UnknownNode { node_id: NodeId(node_id) },
        Reason::NodeExists(reason) => {
            Rejection::NodeExists { node_id: NodeId(reason.node_id), state: state_from(reason.state)? }
        }
        Reason::NodeStateChanged(reason) => Rejection::NodeStateChanged {
            node_id: NodeId(reason.node_id),
            expected: state_from(reason.expected)?,
            current: state_from(reason.current)?,
        },
        Reason::AlreadyReleased(reason) => Rejection::AlreadyReleased {
            partition: PartitionId(reason.partition_id),
            current: needed_owner(reason.current)?,
        },
        Reason::StaleCheckpoint(reason) => Rejection::StaleCheckpoint {
            partition: PartitionId(reason.partition_id),
            given: mark_from(reason.given)?,
            latest: mark_from(reason.latest)?,
        },
        Reason::ClusterEpochChanged(reason) => {
            Rejection::ClusterEpochChanged { expected: reason.expected, current: reason.current }
        }
        Reason::StreamExists(reason) => {
            Rejection::StreamExists { path: reason.path, stream_id: StreamId(reason.stream_id) }
        }
        Reason::UnknownStream(path) => Rejection::UnknownStream { path },
        Reason::StreamReplaced(reason) => Rejection::StreamReplaced {
            path: reason.path,
            expected: StreamId(reason.expected),
            current: StreamId(reason.current),
        },
        Reason::PartitionsShrunk(reason) => {
            Rejection::PartitionsShrunk { path: reason.path, current: reason.current, given: reason.given }
        }
        Reason::QueryChanged(reason) => Rejection::QueryChanged {
            path: reason.path,
            writer: reason.writer,
            expected: reason.expected,
            current: reason.current,
        },
        Reason::LimitReached(reason) => Rejection::LimitReached { limit: limit_from(reason.limit)? },
        Reason::Invalid(invalid) => Rejection::Invalid(invalid_from(invalid)?),
        Reason::InBatch(reason) => Rejection::InBatch {
            position: reason.position,
            reason: Box::new(rejection_from(*need(reason.reason, "a rejected batch has no reason")?)?),
        },
        Reason::DuplicateRequest(first) => {
            Rejection::DuplicateRequest { first: Box::new(from_proto(*first)?) }
        }
    })
}

fn mark_to(mark: CheckpointMark) -> proto::CheckpointMark {
    proto::CheckpointMark { epoch: mark.epoch.get(), checkpoint_id: mark.checkpoint_id.0 }
}

fn mark_from(mark: Option<proto::CheckpointMark>) -> Result<CheckpointMark, Fault> {
    let mark = need(mark, "a rejected checkpoint is not named")?;
    Ok(CheckpointMark { epoch: epoch_from(mark.epoch)?, checkpoint_id: CheckpointId(mark.checkpoint_id) })
}

fn invalid_to(invalid: &InvalidChange) -> proto::InvalidChange {
    let fault = match invalid {
        InvalidChange::OutOfRange { bound, given } => {
            InvalidKind::OutOfRange(proto::OutOfRange { bound: bound_to(*bound), given: *given })
        }
        InvalidChange::NodeUnassigned => InvalidKind::NodeUnassigned(true),
        InvalidChange::StreamPath { path, fault } => {
            let fault = match fault {
                PathFault::NotAbsolute => PathKind::NotAbsolute(true),
                PathFault::EmptySegment => PathKind::EmptySegment(true),
                PathFault::DotSegment => PathKind::DotSegment(true),
                PathFault::Character(character) => PathKind::Character(u32::from(*character)),
            };
            InvalidKind::StreamPath(proto::StreamPathFault { path: path.clone(), fault: Some(fault) })
        }
        InvalidChange::MachineName { name } => InvalidKind::MachineName(name.clone()),
        InvalidChange::KeyRepeated { column } => InvalidKind::KeyRepeated(column.clone()),
        InvalidChange::WorkerIdGiven { node_id } => InvalidKind::WorkerIdGiven(node_id.0),
        InvalidChange::ServerId { node_id } => InvalidKind::ServerId(node_id.0),
        InvalidChange::ReregistrationWithoutId => InvalidKind::ReregistrationWithoutId(true),
        InvalidChange::CheckpointMismatch { partition, epoch, checkpoint_partition, checkpoint_epoch } => {
            InvalidKind::CheckpointMismatch(proto::CheckpointMismatch {
                partition_id: partition.0,
                epoch: epoch.get(),
                checkpoint_partition_id: checkpoint_partition.0,
                checkpoint_epoch: checkpoint_epoch.get(),
            })
        }
    };
    proto::InvalidChange { fault: Some(fault) }
}

fn invalid_from(invalid: proto::InvalidChange) -> Result<InvalidChange, Fault> {
    Ok(match need(invalid.fault, "an invalid change has no known fault")? {
        InvalidKind::OutOfRange(fault) => {
            InvalidChange::OutOfRange { bound: bound_from(fault.bound)?, given: fault.given }
        }
        InvalidKind::NodeUnassigned(_) => InvalidChange::NodeUnassigned,
        InvalidKind::StreamPath(stream_path) => {
            let fault = match need(stream_path.fault, "a stream path has no known fault")? {
                PathKind::NotAbsolute(_) => PathFault::NotAbsolute,
                PathKind::EmptySegment(_) => PathFault::EmptySegment,
                PathKind::DotSegment(_) => PathFault::DotSegment,
                PathKind::Character(character) => {
                    PathFault::Character(need(char::from_u32(character), "a character does not exist")?)
                }
            };
            InvalidChange::StreamPath { path: stream_path.path, fault }
        }
        InvalidKind::MachineName(name) => InvalidChange::MachineName { name },
        InvalidKind::KeyRepeated(column) => InvalidChange::KeyRepeated { column },
        InvalidKind::WorkerIdGiven(node_id) => InvalidChange::WorkerIdGiven { node_id: NodeId(node_id) },
        InvalidKind::ServerId(node_id) => InvalidChange::ServerId { node_id: NodeId(node_id) },
        InvalidKind::ReregistrationWithoutId(_) => InvalidChange::ReregistrationWithoutId,
        InvalidKind::CheckpointMismatch(fault) => InvalidChange::CheckpointMismatch {
            partition: PartitionId(fault.partition_id),
            epoch: epoch_from(fault.epoch)?,
            checkpoint_partition: PartitionId(fault.checkpoint_partition_id),
            checkpoint_epoch: epoch_from(fault.checkpoint_epoch)?,
        },
    })
}

wire_enum!(
    limit_to,
    limit_from,
    Limit,
    Limit,
    "a limit is not known",
    [Partitions, Streams, Nodes, PartitionIds, ServerIds, WorkerIds, ClusterEpochs, BoundQueries]
);
wire_enum!(
    bound_to,
    bound_from,
    Bound,
    Bound,
    "a bound is not known",
    [
        BatchChanges,
        BatchPartitions,
        StreamPartitions,
        StreamPathBytes,
        SchemaBytes,
        KeyColumns,
        KeyColumnBytes,
        AddressBytes,
        FailureDomainBytes,
        Tags,
        TagBytes,
        StoragePathBytes,
        SourceOffsets,
        SourceNameBytes,
        MachineNameBytes,
        RetentionAge,
        RetentionBytes,
        RowBytes,
        WriterBytes,
        QueryBytes,
    ]
);
