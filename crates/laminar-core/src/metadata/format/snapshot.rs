//! The whole state to and from its message. Reading refuses a state that no log could have led to, because a replica
//! that went on from one would break what the rules rely on.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::{
    checkpoint_from, checkpoint_to, epoch_from, limits_from, limits_to, machine_from, machine_name_to,
    machine_to, node_metadata_from, node_metadata_to, range_from, range_to, release_from, release_to,
    request_id_from, request_id_to, retention_from, retention_to, role_from, role_to, set, state_from,
    state_to, wire_enum,
};
use super::response;
use super::{Fault, need, proto};
use crate::ids::{DataGroupId, LogIndex, NodeId, PartitionId, RequestId, StreamId};
use crate::metadata::apply::LOG_INDEX_MAX;
use crate::metadata::catalogue::{Catalogue, check_settings, check_stream};
use crate::metadata::dedup::{REQUESTS_REMEMBERED_MAX, Requests};
use crate::metadata::history::{HISTORY_PER_PARTITION_MAX, History};
use crate::metadata::limits::{BOUND_QUERIES_MAX, Bound};
use crate::metadata::retired::RetiredIds;
use crate::metadata::{
    Counters, DeltaMetadata, OwnershipCause, OwnershipEvent, PartitionOwnership, Rejection, ReleaseInfo,
    StreamDescriptor,
};
use crate::node::{NodeRegistration, NodeRole};

pub(super) fn to_proto(state: &DeltaMetadata) -> proto::MetadataSnapshot {
    let metadata = proto::DeltaMetadata {
        partitions: state
            .partition_map
            .iter()
            .map(|(id, ownership)| partition_to(*id, ownership, state.history.get(id)))
            .collect(),
        latest_checkpoints: state.latest_checkpoints.values().map(checkpoint_to).collect(),
        pending_releases: state.pending_releases.values().map(pending_to).collect(),
        nodes: state.node_states.values().map(node_to).collect(),
        cluster_epoch: state.cluster_epoch,
        streams: state.streams.iter().map(stream_to).collect(),
        retired: state.retired.iter().map(range_to).collect(),
        requests: state
            .requests
            .iter()
            .map(|(request_id, answer)| proto::AnsweredRequest {
                request_id: Some(request_id_to(request_id)),
                response: Some(response::to_proto(answer)),
            })
            .collect(),
        next_partition_id: state.counters.partition_id,
        next_stream_id: state.counters.stream_id,
        next_server_id: state.counters.server_id,
        next_worker_id: state.counters.worker_id,
        bound_queries: state.bound_queries().map(bound_query_to).collect(),
    };
    proto::MetadataSnapshot {
        metadata: Some(metadata),
        last_applied_log: state.last_applied_log.0,
        created_at_ms: state.last_applied_time_ms,
    }
}

/// The order of tables is not looked at here: the caller compares the bytes of the result with those it was given.
pub(super) fn from_proto(snapshot: proto::MetadataSnapshot) -> Result<DeltaMetadata, Fault> {
    let metadata = need(snapshot.metadata, "it holds no state")?;
    let mut state = DeltaMetadata {
        cluster_epoch: metadata.cluster_epoch,
        last_applied_log: LogIndex(snapshot.last_applied_log),
        last_applied_time_ms: snapshot.created_at_ms,
        counters: Counters {
            partition_id: metadata.next_partition_id,
            stream_id: metadata.next_stream_id,
            server_id: metadata.next_server_id,
            worker_id: metadata.next_worker_id,
        },
        retired: retired_from(metadata.retired)?,
        streams: streams_from(metadata.streams)?,
        requests: requests_from(metadata.requests)?,
        ..DeltaMetadata::default()
    };
    state.bound_queries = bound_queries_from(metadata.bound_queries, &state.streams)?;
    for partition in metadata.partitions {
        let id = PartitionId(partition.partition_id);
        let ownership = PartitionOwnership {
            node_id: NodeId(partition.node_id),
            epoch: epoch_from(partition.epoch)?,
            assigned_at_ms: partition.assigned_at_ms,
        };
        let history = history_from(need(partition.history, "a partition has no history")?)?;
        state.partition_map.insert(id, ownership);
        state.history.insert(id, history);
    }
    for checkpoint in metadata.latest_checkpoints {
        state.latest_checkpoints.insert(PartitionId(checkpoint.partition_id), checkpoint_from(checkpoint)?);
    }
    for pending in metadata.pending_releases {
        let pending = pending_from(pending, &state.partition_map)?;
        state.pending_releases.insert(pending.partition_id, pending);
    }
    for node in metadata.nodes {
        state.node_states.insert(NodeId(node.node_id), node_from(node)?);
    }
    check_partitions(&state)?;
    check_counters(&state)?;
    Ok(state)
}

/// The tables of partitions agree with each other.
fn check_partitions(state: &DeltaMetadata) -> Result<(), Fault> {
    for (id, ownership) in &state.partition_map {
        if state.retired.contains(*id) {
            return Err(Fault("a dropped partition still has an owner"));
        }
        let newest = state.history.get(id).and_then(History::newest);
        let newest = need(newest, "a partition has no history")?;
        if (newest.owner, newest.epoch) != (ownership.node_id, ownership.epoch) {
            return Err(Fault("the history of a partition does not end with its owner"));
        }
        if newest.log_index > state.last_applied_log {
            return Err(Fault("the history of a partition goes beyond the last entry"));
        }
    }
    for (id, checkpoint) in &state.latest_checkpoints {
        let ownership = need(state.partition_map.get(id), "a checkpoint is of no partition")?;
        if checkpoint.epoch > ownership.epoch {
            return Err(Fault("a checkpoint is of an epoch to come"));
        }
    }
    let streams = state.streams.iter().flat_map(|stream| &stream.partition_ids);
    if streams.flat_map(|range| range.iter()).any(|id| !state.partition_map.contains_key(&id)) {
        return Err(Fault("a stream has a partition that does not exist"));
    }
    Ok(())
}

/// No id that is in use, or was, can be given out.
fn check_counters(state: &DeltaMetadata) -> Result<(), Fault> {
    let Counters { partition_id, stream_id, server_id, worker_id } = state.counters;
    let node_id_is_given_out = |node: &NodeRegistration| match node.role {
        NodeRole::Server => (1..server_id).contains(&node.node_id.0),
        NodeRole::Worker => (NodeId::WORKER_MIN.0..worker_id).contains(&node.node_id.0),
    };
    let stream_ranges = state.streams.iter().flat_map(|stream| stream.partition_ids.iter().copied());
    let last_partition = stream_ranges.chain(state.retired.iter()).map(|range| range.last()).max();
    let right = state.last_applied_log <= LOG_INDEX_MAX
        && partition_id <= 1 << 32
        && last_partition.is_none_or(|last| u64::from(last.0) < partition_id)
        && (1..=LOG_INDEX_MAX.0).contains(&stream_id)
        && state.streams.iter().all(|stream| (1..stream_id).contains(&stream.stream_id.0))
        && (1..=NodeId::WORKER_MIN.0).contains(&server_id)
        && worker_id >= NodeId::WORKER_MIN.0
        && state.node_states.values().all(node_id_is_given_out);
    if right { Ok(()) } else { Err(Fault("an id in use could be given out again")) }
}

fn partition_to(
    id: PartitionId,
    ownership: &PartitionOwnership,
    history: Option<&History>,
) -> proto::Partition {
    proto::Partition {
        partition_id: id.0,
        node_id: ownership.node_id.0,
        epoch: ownership.epoch.get(),
        assigned_at_ms: ownership.assigned_at_ms,
        history: history.map(history_to),
    }
}

fn history_to(history: &History) -> proto::History {
    let count = history.iter().len();
    let mut message = proto::History {
        previous_owner: history.iter().next().map_or(0, |event| event.previous_owner.0),
        epochs: Vec::with_capacity(count),
        owners: Vec::with_capacity(count),
        causes: Vec::with_capacity(count),
        times_ms: Vec::with_capacity(count),
        log_indices: Vec::with_capacity(count),
    };
    let (mut epoch, mut time_ms, mut log_index) = (0, 0_i64, 0);
    for event in history.iter() {
        message.epochs.push(event.epoch.get() - epoch);
        message.owners.push(event.owner.0);
        message.causes.push(cause_to(event.cause));
        // Wrapping: times come from outside, and two of them can be further apart than an i64 holds.
        message.times_ms.push(event.time_ms.wrapping_sub(time_ms));
        message.log_indices.push(event.log_index.0 - log_index);
        (epoch, time_ms, log_index) = (event.epoch.get(), event.time_ms, event.log_index.0);
    }
    message
}

fn history_from(message: proto::History) -> Result<History, Fault> {
    let count = message.owners.len();
    let columns =
        [message.epochs.len(), message.causes.len(), message.times_ms.len(), message.log_indices.len()];
    if count > HISTORY_PER_PARTITION_MAX || columns != [count; 4] {
        return Err(Fault("a history is too long or its columns differ in length"));
    }
    let beyond = "a history goes beyond the last epoch or index";
    let mut history = History::default();
    let (mut epoch, mut time_ms, mut log_index) = (0_u64, 0_i64, 0_u64);
    let mut previous_owner = NodeId(message.previous_owner);
    for at in 0..count {
        epoch = need(epoch.checked_add(message.epochs[at]), beyond)?;
        time_ms = time_ms.wrapping_add(message.times_ms[at]);
        log_index = need(log_index.checked_add(message.log_indices[at]), beyond)?;
        let owner = NodeId(message.owners[at]);
        history.push(OwnershipEvent {
            epoch: epoch_from(epoch)?,
            owner,
            previous_owner,
            cause: cause_from(message.causes[at])?,
            time_ms,
            log_index: LogIndex(log_index),
        });
        previous_owner = owner;
    }
    Ok(history)
}

fn pending_to(pending: &ReleaseInfo) -> proto::PendingRelease {
    proto::PendingRelease {
        partition_id: pending.partition_id.0,
        released_at_ms: pending.released_at_ms,
        release: Some(release_to(&pending.release)),
    }
}

fn pending_from(
    pending: proto::PendingRelease,
    partition_map: &BTreeMap<PartitionId, PartitionOwnership>,
) -> Result<ReleaseInfo, Fault> {
    let partition_id = PartitionId(pending.partition_id);
    let ownership = need(partition_map.get(&partition_id), "a release is of no partition")?;
    if !ownership.node_id.is_assigned() {
        return Err(Fault("a partition without an owner was released"));
    }
    Ok(ReleaseInfo {
        partition_id,
        node_id: ownership.node_id,
        epoch: ownership.epoch,
        released_at_ms: pending.released_at_ms,
        release: release_from(need(pending.release, "a release does not say how the partition was left")?),
    })
}

fn node_to(node: &NodeRegistration) -> proto::NodeRegistration {
    proto::NodeRegistration {
        node_id: node.node_id.0,
        role: role_to(node.role),
        state: state_to(node.state),
        rpc_address: node.rpc_address.clone(),
        raft_address: node.raft_address.clone(),
        metadata: Some(node_metadata_to(&node.metadata)),
        registered_at_ms: node.registered_at_ms,
        last_updated_ms: node.last_updated_ms,
    }
}

fn node_from(node: proto::NodeRegistration) -> Result<NodeRegistration, Fault> {
    Ok(NodeRegistration {
        node_id: NodeId(node.node_id),
        role: role_from(node.role)?,
        state: state_from(node.state)?,
        rpc_address: node.rpc_address,
        raft_address: node.raft_address,
        metadata: node_metadata_from(need(node.metadata, "a node has no size")?),
        registered_at_ms: node.registered_at_ms,
        last_updated_ms: node.last_updated_ms,
    })
}

fn stream_to(stream: &StreamDescriptor) -> proto::StreamDescriptor {
    proto::StreamDescriptor {
        stream_id: stream.stream_id.0,
        path: stream.path.clone(),
        partitions: stream.partition_ids.iter().copied().map(range_to).collect(),
        schema: stream.schema.clone(),
        key: stream.key.clone(),
        machine: machine_to(&stream.machine),
        data_group: stream.data_group.0,
        created_at_ms: stream.created_at_ms,
        machine_name: machine_name_to(&stream.machine),
        retention: set(stream.retention).map(retention_to),
        limits: set(stream.limits).map(limits_to),
    }
}

fn streams_from(streams: Vec<proto::StreamDescriptor>) -> Result<Catalogue, Fault> {
    let mut catalogue = Catalogue::default();
    for stream in streams {
        let machine = machine_from(stream.machine, stream.machine_name)?;
        let retention = stream.retention.map(retention_from).unwrap_or_default();
        let limits = stream.limits.map(limits_from).unwrap_or_default();
        check_stream(&stream.path, &stream.schema, &stream.key, &machine)
            .and_then(|()| check_settings(&retention, &limits))
            .map_err(|_| Fault("a stream has a path, schema, key or setting that is not allowed"))?;
        if stream.partitions.is_empty() || catalogue.get(&stream.path).is_some() {
            return Err(Fault("a stream stands twice or has no partitions"));
        }
        catalogue.insert(StreamDescriptor {
            stream_id: StreamId(stream.stream_id),
            path: stream.path,
            partition_ids: stream.partitions.into_iter().map(range_from).collect::<Result<_, _>>()?,
            schema: stream.schema,
            key: stream.key,
            machine,
            data_group: DataGroupId(stream.data_group),
            created_at_ms: stream.created_at_ms,
            retention,
            limits,
        });
    }
    check_disjoint(&catalogue)?;
    Ok(catalogue)
}

fn bound_query_to((stream_id, writer, query): (StreamId, &str, &str)) -> proto::BoundQuery {
    proto::BoundQuery { stream_id: stream_id.0, writer: writer.to_owned(), query: query.to_owned() }
}

fn bound_queries_from(
    bound: Vec<proto::BoundQuery>,
    streams: &Catalogue,
) -> Result<BTreeMap<(StreamId, String), String>, Fault> {
    if bound.len() > BOUND_QUERIES_MAX {
        return Err(Fault("more writers are bound to queries than there is room for"));
    }
    let ids: BTreeSet<StreamId> = streams.iter().map(|stream| stream.stream_id).collect();
    let mut queries = BTreeMap::new();
    for proto::BoundQuery { stream_id, writer, query } in bound {
        Bound::WriterBytes
            .check(writer.len())
            .and_then(|()| Bound::QueryBytes.check(query.len()))
            .map_err(|_| Fault("a writer or the query that it is bound to has a name that is not allowed"))?;
        if !ids.contains(&StreamId(stream_id)) {
            return Err(Fault("a writer of no stream is bound to a query"));
        }
        queries.insert((StreamId(stream_id), writer), query);
    }
    Ok(queries)
}

/// No partition belongs to two streams, and no two streams have one id.
fn check_disjoint(catalogue: &Catalogue) -> Result<(), Fault> {
    let mut ranges: Vec<_> = catalogue.iter().flat_map(|stream| &stream.partition_ids).collect();
    ranges.sort();
    let mut ids: Vec<_> = catalogue.iter().map(|stream| stream.stream_id).collect();
    ids.sort();
    let overlap = ranges.windows(2).any(|pair| pair[0].last() >= pair[1].first());
    if overlap || ids.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Fault("two streams share a partition or an id"));
    }
    Ok(())
}

fn retired_from(ranges: Vec<proto::PartitionRange>) -> Result<RetiredIds, Fault> {
    let mut retired = RetiredIds::default();
    let mut free_from = 0;
    for range in ranges {
        let range = range_from(range)?;
        if u64::from(range.first().0) < free_from {
            return Err(Fault("the ranges of dropped partitions overlap or are out of order"));
        }
        free_from = u64::from(range.last().0) + 1;
        retired.insert(range);
    }
    Ok(retired)
}

fn requests_from(requests: Vec<proto::AnsweredRequest>) -> Result<Requests, Fault> {
    if requests.len() > REQUESTS_REMEMBERED_MAX {
        return Err(Fault("more requests are remembered than there is room for"));
    }
    let mut remembered = Requests::default();
    for request in requests {
        let request_id = request_id_from(need(request.request_id, "a remembered request has no id")?);
        let answer = response::from_proto(need(request.response, "a remembered request has no answer")?)?;
        if request_id == RequestId::NONE || remembered.answer(request_id).is_some() {
            return Err(Fault("a remembered request stands twice or has no id"));
        }
        if matches!(answer.rejection(), Some(Rejection::DuplicateRequest { .. })) {
            return Err(Fault("a repeated request is remembered as if it were the first"));
        }
        remembered.remember(request_id, answer);
    }
    Ok(remembered)
}

wire_enum!(
    cause_to,
    cause_from,
    OwnershipCause,
    OwnershipCause,
    "an ownership changed for no known cause",
    [Created, Assigned, Acquired, Released, Unassigned]
);
