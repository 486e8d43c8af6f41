//! The cluster's metadata and its rules: the state machine of the metadata group.
//!
//! # One change, through the files in order
//!
//! 1. `entry`: a [`MetadataLogEntry`] names its time, its request and what it expects.
//! 2. `dedup`: a request answered before is answered again and changes nothing.
//! 3. `apply`: the rules look at the state and accept or reject each change; `limits` says what no state accepts.
//! 4. `journal`: every accepted change goes through a few setters, which can take a batch back.
//! 5. `records`, `history`, `catalogue`, `retired`: what the setters write to.
//! 6. `response`: the answer, with the ids minted or the reason.
//! 7. `format`: entries, answers and snapshots as bytes.
//!
//! # Invariants
//!
//! 1. **EPOCH-1**: each change of owner, to nobody too, is one epoch more. Partition ids are never given out twice, so
//!    dropping and re-creating a stream restarts no epoch.
//! 2. **OWN-1**: one record, and so at most one owner, a partition.
//! 3. **OWN-2**: a change that names what it expects takes effect only if it holds; a repeated request changes nothing.
//! 4. **APPLY-2**: the answer and the next state are functions of the state and the entry. A rejected entry changes
//!    nothing but the index and time of the last entry, and the table of answered requests.
//! 5. A pending release belongs to the current owner and epoch: the next change of owner removes it.
//!
//! # Example
//!
//! ```
//! use laminar_core::ids::{Epoch, NodeId, OwnerEpoch, PartitionId, RequestId};
//! use laminar_core::metadata::{DeltaMetadata, MetadataChange, MetadataLogEntry};
//!
//! let mut metadata = DeltaMetadata::new();
//! let create = MetadataChange::AssignPartition {
//!     partition_id: PartitionId(0),
//!     node_id: NodeId(1),
//!     epoch: Epoch::FIRST,
//!     expected: None,
//! };
//! assert!(metadata.apply(&MetadataLogEntry::one(1_000, RequestId(1), create)).is_applied());
//!
//! let claim = |node: u64| MetadataChange::AcquirePartition {
//!     partition_id: PartitionId(0),
//!     node_id: NodeId(node),
//!     epoch: Epoch::new(2).unwrap(),
//!     expected: OwnerEpoch { node_id: NodeId(1), epoch: Epoch::FIRST },
//! };
//! assert!(metadata.apply(&MetadataLogEntry::one(2_000, RequestId(2), claim(2))).is_applied());
//! let late = metadata.apply(&MetadataLogEntry::one(3_000, RequestId(3), claim(3)));
//! assert_eq!(late.rejection().map(|reason| reason.code()), Some("stale_epoch"));
//! ```

use std::collections::BTreeMap;

use crate::ids::{Epoch, LogIndex, NodeId, OwnerEpoch, PartitionId, PartitionRange, RequestId, StreamId};
use crate::node::{NodeInfo, NodeRegistration, NodeRole};

mod apply;
mod catalogue;
mod dedup;
mod entry;
mod format;
mod history;
mod journal;
mod limits;
mod records;
mod response;
mod retired;
#[cfg(test)]
mod tests;

use catalogue::Catalogue;
use dedup::Requests;
use history::History;
use retired::RetiredIds;

pub use catalogue::{
    Retention, StreamDescriptor, StreamLimits, StreamMachine, check_machine_name, check_stream_path,
};
pub use dedup::{MINTED_REMEMBERED_MAX, REQUESTS_REMEMBERED_MAX};
pub use entry::{EntryBody, MetadataChange, MetadataLogEntry};
pub use history::{HISTORY_PER_PARTITION_MAX, OwnershipCause, OwnershipEvent};
pub use limits::{
    BATCH_CHANGES_MAX, BOUND_QUERIES_MAX, Bound, InvalidChange, Limit, NODES_MAX, PARTITIONS_MAX,
    PARTITIONS_PER_STREAM_MAX, PathFault, STREAMS_MAX,
};
pub use records::{CheckpointRef, PartitionOwnership, Release, ReleaseInfo, SourceOffsets};
pub use response::{CheckpointMark, MetadataResponse, Minted, Rejection};

/// The metadata of the cluster: the state that the metadata group replicates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeltaMetadata {
    partition_map: BTreeMap<PartitionId, PartitionOwnership>,
    latest_checkpoints: BTreeMap<PartitionId, CheckpointRef>,
    cluster_epoch: u64,
    node_states: BTreeMap<NodeId, NodeRegistration>,
    pending_releases: BTreeMap<PartitionId, ReleaseInfo>,
    last_applied_log: LogIndex,
    last_applied_time_ms: i64,
    streams: Catalogue,
    /// The query of each writer's name, by stream.
    bound_queries: BTreeMap<(StreamId, String), String>,
    counters: Counters,
    retired: RetiredIds,
    history: BTreeMap<PartitionId, History>,
    requests: Requests,
}

/// The next ids to give out. They only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counters {
    /// 2^32 when none is left, hence wider than the id.
    partition_id: u64,
    stream_id: u64,
    /// [`NodeId::WORKER_MIN`] when none is left.
    server_id: u64,
    worker_id: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Counters { partition_id: 0, stream_id: 1, server_id: 1, worker_id: NodeId::WORKER_MIN.0 }
    }
}

impl DeltaMetadata {
    /// The metadata of a cluster in which nothing has happened yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Who owns each partition, in the order of partition ids.
    pub fn partition_map(&self) -> &BTreeMap<PartitionId, PartitionOwnership> {
        &self.partition_map
    }

    /// Who owns `partition_id`, or `None` if there is no such partition.
    pub fn partition_ownership(&self, partition_id: PartitionId) -> Option<&PartitionOwnership> {
        self.partition_map.get(&partition_id)
    }

    /// The current epoch of `partition_id`, or `None` if there is no such partition.
    pub fn partition_epoch(&self, partition_id: PartitionId) -> Option<Epoch> {
        self.partition_ownership(partition_id).map(|ownership| ownership.epoch)
    }

    /// The owner of `partition_id`, [`NodeId::UNASSIGNED`] if it waits for one, or `None` if there is no such
    /// partition.
    pub fn partition_owner(&self, partition_id: PartitionId) -> Option<NodeId> {
        self.partition_ownership(partition_id).map(|ownership| ownership.node_id)
    }

    /// The partitions that `node_id` owns, in order. Of [`NodeId::UNASSIGNED`], those that wait for an owner.
    pub fn partitions_for_node(&self, node_id: NodeId) -> Vec<PartitionId> {
        self.partition_map
            .iter()
            .filter(|(_, ownership)| ownership.node_id == node_id)
            .map(|(partition_id, _)| *partition_id)
            .collect()
    }

    /// What the assigner may decide about: every partition that no worker owns.
    ///
    /// A partition owned by a worker is claimed, and stays so when the worker's registration has failed, until it is
    /// released, taken over, or taken away by deregistering the worker; moving it would fence a live writer. So
    /// claims are told by the owner's id and not by its registration. A partition of a server that is not registered
    /// is in here, for the assigner to find its owner gone.
    pub fn ownership(&self) -> BTreeMap<PartitionId, OwnerEpoch> {
        self.partition_map
            .iter()
            .filter(|(_, ownership)| !ownership.node_id.is_worker())
            .map(|(partition_id, ownership)| (*partition_id, ownership.owner_epoch()))
            .collect()
    }

    /// How `partition_id` was released at `epoch`, until its next owner takes it.
    pub fn get_release_info(&self, partition_id: PartitionId, epoch: Epoch) -> Option<&ReleaseInfo> {
        self.pending_releases.get(&partition_id).filter(|release| release.epoch == epoch)
    }

    /// The releases no new owner has answered yet.
    pub fn pending_releases(&self) -> &BTreeMap<PartitionId, ReleaseInfo> {
        &self.pending_releases
    }

    /// The newest checkpoint of `partition_id`.
    pub fn latest_checkpoint(&self, partition_id: PartitionId) -> Option<&CheckpointRef> {
        self.latest_checkpoints.get(&partition_id)
    }

    /// The newest checkpoint of each partition that has one.
    pub fn latest_checkpoints(&self) -> &BTreeMap<PartitionId, CheckpointRef> {
        &self.latest_checkpoints
    }

    /// One more with every change of topology.
    pub fn cluster_epoch(&self) -> u64 {
        self.cluster_epoch
    }

    /// The registration of `node_id`.
    pub fn node(&self, node_id: NodeId) -> Option<&NodeRegistration> {
        self.node_states.get(&node_id)
    }

    /// All registrations, servers first.
    pub fn node_states(&self) -> &BTreeMap<NodeId, NodeRegistration> {
        &self.node_states
    }

    /// The registered servers in any state, as the assigner takes them. Never a worker.
    pub fn servers(&self) -> Vec<NodeInfo> {
        self.node_states
            .values()
            .filter(|node| node.role == NodeRole::Server)
            .map(NodeRegistration::to_node_info)
            .collect()
    }

    /// The stream of this path.
    pub fn stream(&self, path: &str) -> Option<&StreamDescriptor> {
        self.streams.get(path)
    }

    /// The streams whose path starts with `prefix`, sorted by path; all of them for an empty one.
    pub fn streams<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a StreamDescriptor> {
        self.streams.with_prefix(prefix)
    }

    /// The stream that `partition_id` belongs to; `None` for a partition assigned without one.
    pub fn stream_of(&self, partition_id: PartitionId) -> Option<&StreamDescriptor> {
        self.streams.of_partition(partition_id)
    }

    /// The query that a writer's name is bound to on a stream.
    pub fn bound_query(&self, stream_id: StreamId, writer: &str) -> Option<&str> {
        self.bound_queries.get(&(stream_id, writer.to_owned())).map(String::as_str)
    }

    /// Every writer's name that is bound to a query, by stream, with the query.
    pub fn bound_queries(&self) -> impl ExactSizeIterator<Item = (StreamId, &str, &str)> {
        self.bound_queries.iter().map(|((stream_id, writer), query)| (*stream_id, &**writer, &**query))
    }

    /// The newest [`HISTORY_PER_PARTITION_MAX`] steps of the ownership of `partition_id`, oldest first.
    pub fn history(&self, partition_id: PartitionId) -> impl DoubleEndedIterator<Item = &OwnershipEvent> {
        self.history.get(&partition_id).into_iter().flat_map(History::iter)
    }

    /// The ids of dropped partitions, which are never used again.
    pub fn retired_partitions(&self) -> impl Iterator<Item = PartitionRange> {
        self.retired.iter()
    }

    /// How a request was answered, if it is among those remembered.
    pub fn answer(&self, request_id: RequestId) -> Option<&MetadataResponse> {
        self.requests.answer(request_id)
    }

    /// The last entry applied; [`LogIndex::NONE`] before the first.
    pub fn last_applied_log(&self) -> LogIndex {
        self.last_applied_log
    }

    /// Time of the last entry applied; 0 before the first.
    pub fn last_applied_time_ms(&self) -> i64 {
        self.last_applied_time_ms
    }
}
