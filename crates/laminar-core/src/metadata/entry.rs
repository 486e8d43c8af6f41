//! The entries of the metadata group's log: each names its time, its request, and what it expects to find.

use std::fmt;

use super::catalogue::{Retention, StreamLimits, StreamMachine};
use super::records::{CheckpointRef, Release};
use crate::ids::{DataGroupId, Epoch, NodeId, OwnerEpoch, PartitionId, RequestId, StreamId};
use crate::node::{NodeMetadata, NodeRole, NodeState};

/// One entry. All a replica needs to decide it stands in it or in the state; there is no clock to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataLogEntry {
    /// The proposer's time, in milliseconds since the Unix epoch: for people, never for decisions.
    pub time_ms: i64,
    /// Chosen by the caller; a retry carries the same one. [`RequestId::NONE`] is never remembered.
    pub request_id: RequestId,
    /// What to change.
    pub body: EntryBody,
}

impl MetadataLogEntry {
    /// An entry of one change.
    pub fn one(time_ms: i64, request_id: RequestId, change: MetadataChange) -> Self {
        MetadataLogEntry { time_ms, request_id, body: EntryBody::One(change) }
    }

    /// An entry of several changes, all or nothing.
    pub fn batch(time_ms: i64, request_id: RequestId, changes: Vec<MetadataChange>) -> Self {
        MetadataLogEntry { time_ms, request_id, body: EntryBody::Batch(changes) }
    }
}

/// What an entry changes. Batches do not nest, by their type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryBody {
    /// One change.
    One(MetadataChange),
    /// All of these in order, or none: a plan or a claim is one entry. At most
    /// [`BATCH_CHANGES_MAX`](super::BATCH_CHANGES_MAX).
    Batch(Vec<MetadataChange>),
}

impl fmt::Display for MetadataLogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.body {
            EntryBody::One(change) => change.fmt(f),
            EntryBody::Batch(changes) => write!(f, "batch of {} changes", changes.len()),
        }
    }
}

/// A single change. Where it names what it expects, it takes effect only if that holds (OWN-2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetadataChange {
    /// Gives a partition to a node.
    AssignPartition {
        /// The partition.
        partition_id: PartitionId,
        /// The new owner, registered or not; [`NodeId::UNASSIGNED`] takes the partition from its owner.
        node_id: NodeId,
        /// The new epoch: the one after what is expected; any, if nothing is.
        epoch: Epoch,
        /// `None`: there is no such partition yet, and this creates it.
        expected: Option<OwnerEpoch>,
    },
    /// Records how the owner left a partition. It stays the owner until another takes over.
    ReleasePartition {
        /// The partition.
        partition_id: PartitionId,
        /// The owner that releases it.
        expected: OwnerEpoch,
        /// How it was left.
        release: Release,
    },
    /// Takes a partition: a claim, or the end of a move.
    AcquirePartition {
        /// The partition.
        partition_id: PartitionId,
        /// The new owner.
        node_id: NodeId,
        /// The new epoch: the one after what is expected.
        epoch: Epoch,
        /// Who loses it.
        expected: OwnerEpoch,
    },
    /// Makes a checkpoint the latest of its partition.
    CommitCheckpoint {
        /// The partition.
        partition_id: PartitionId,
        /// The owner that took it.
        expected: OwnerEpoch,
        /// The checkpoint; its files exist by now.
        checkpoint: CheckpointRef,
    },
    /// Moves a node through its life. Ownership stays as it is: a worker that missed its heartbeats becomes failed,
    /// and what it claimed stays claimed.
    UpdateNodeState {
        /// The node.
        node_id: NodeId,
        /// Its new state.
        state: NodeState,
        /// Its new size and place; `None` leaves them.
        metadata: Option<NodeMetadata>,
        /// The state it must be in; `None` for any.
        expected: Option<NodeState>,
    },
    /// Registers a node.
    RegisterNode {
        /// A server's configured id. `None` mints one, as always for workers.
        node_id: Option<NodeId>,
        /// Server or worker.
        role: NodeRole,
        /// Its first state.
        state: NodeState,
        /// Where clients and nodes call it.
        rpc_address: String,
        /// Where Raft peers call it.
        raft_address: String,
        /// Its size and place.
        metadata: NodeMetadata,
        /// `None`: it is not registered. A state: it is a server, registered in this state, that comes back.
        expected: Option<NodeState>,
    },
    /// Ends a registration and takes all its partitions from the node, each at its next epoch. Also for a node that
    /// owns something without being registered.
    DeregisterNode {
        /// The node.
        node_id: NodeId,
        /// The state it must be registered in; `None` for any.
        expected: Option<NodeState>,
    },
    /// Marks a change of topology.
    IncrementClusterEpoch {
        /// The cluster epoch before; `None` for any.
        expected: Option<u64>,
    },
    /// Creates a stream whose partitions wait for an owner at [`Epoch::FIRST`].
    CreateStream {
        /// Its name.
        path: String,
        /// How many partitions it starts with.
        partitions: u32,
        /// The Arrow IPC bytes of its schema; empty if it carries bytes.
        schema: Vec<u8>,
        /// The columns that place a row.
        key: Vec<String>,
        /// What it keeps of its rows.
        machine: StreamMachine,
        /// The group that will hold its data.
        data_group: DataGroupId,
        /// How long its rows are kept.
        retention: Retention,
        /// What it refuses.
        limits: StreamLimits,
    },
    /// Adds partitions to a stream, or changes how long it keeps its rows and what it refuses. The new partitions wait
    /// for an owner at [`Epoch::FIRST`].
    AlterStream {
        /// Its name.
        path: String,
        /// The stream that must be there.
        expected: StreamId,
        /// How many partitions it has from here on, not fewer than before; `None` leaves them.
        partitions: Option<u32>,
        /// `None` leaves it.
        retention: Option<Retention>,
        /// `None` leaves them.
        limits: Option<StreamLimits>,
    },
    /// Removes a stream and its partitions, whose ids are never used again.
    DropStream {
        /// Its name.
        path: String,
        /// The stream that must be there; `None` for any.
        expected: Option<StreamId>,
    },
    /// Binds the name of a writer of a stream to a query, so that another query is not taken for the next run of this one.
    BindQuery {
        /// The stream's name.
        path: String,
        /// The stream that must be there.
        stream_id: StreamId,
        /// The writer's name.
        writer: String,
        /// The query that it is bound to from here on.
        query: String,
        /// The query that it is bound to before; `None`: to none yet.
        expected: Option<String>,
    },
    /// Changes nothing. The batch that it stands in takes effect only if this is the owner: what a batch builds on and
    /// does not change.
    CheckOwner {
        /// The partition.
        partition_id: PartitionId,
        /// Its owner and epoch.
        expected: OwnerEpoch,
    },
}

impl MetadataChange {
    /// The kind of change, as users name it.
    pub fn name(&self) -> &'static str {
        match self {
            MetadataChange::AssignPartition { .. } => "assign_partition",
            MetadataChange::ReleasePartition { .. } => "release_partition",
            MetadataChange::AcquirePartition { .. } => "acquire_partition",
            MetadataChange::CommitCheckpoint { .. } => "commit_checkpoint",
            MetadataChange::UpdateNodeState { .. } => "update_node_state",
            MetadataChange::RegisterNode { .. } => "register_node",
            MetadataChange::DeregisterNode { .. } => "deregister_node",
            MetadataChange::IncrementClusterEpoch { .. } => "increment_cluster_epoch",
            MetadataChange::CreateStream { .. } => "create_stream",
            MetadataChange::AlterStream { .. } => "alter_stream",
            MetadataChange::DropStream { .. } => "drop_stream",
            MetadataChange::BindQuery { .. } => "bind_query",
            MetadataChange::CheckOwner { .. } => "check_owner",
        }
    }
}

impl fmt::Display for MetadataChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetadataChange::AssignPartition { partition_id, node_id, epoch, expected } => {
                write!(f, "assign partition {partition_id} to node {node_id} at epoch {epoch}")?;
                expected.map_or(Ok(()), |expected| write!(f, ", expecting {expected}"))
            }
            MetadataChange::ReleasePartition { partition_id, expected, .. } => {
                write!(f, "release partition {partition_id}, expecting {expected}")
            }
            MetadataChange::AcquirePartition { partition_id, node_id, epoch, expected } => {
                write!(
                    f,
                    "acquire partition {partition_id} for node {node_id} at epoch {epoch}, expecting {expected}"
                )
            }
            MetadataChange::CommitCheckpoint { partition_id, expected, checkpoint } => {
                let id = checkpoint.checkpoint_id;
                write!(f, "commit checkpoint {id} of partition {partition_id}, expecting {expected}")
            }
            MetadataChange::UpdateNodeState { node_id, state, .. } => {
                write!(f, "update node {node_id} to {state}")
            }
            MetadataChange::RegisterNode { node_id: Some(node_id), role, .. } => {
                write!(f, "register {role} {node_id}")
            }
            MetadataChange::RegisterNode { node_id: None, role, .. } => write!(f, "register a {role}"),
            MetadataChange::DeregisterNode { node_id, .. } => write!(f, "deregister node {node_id}"),
            MetadataChange::IncrementClusterEpoch { .. } => f.write_str("increment the cluster epoch"),
            MetadataChange::CreateStream { path, partitions, .. } => {
                write!(f, "create stream {path} with {partitions} partitions")
            }
            MetadataChange::AlterStream { path, expected, partitions, .. } => {
                write!(f, "alter stream {path}")?;
                partitions.map_or(Ok(()), |partitions| write!(f, " to {partitions} partitions"))?;
                write!(f, ", expecting stream id {expected}")
            }
            MetadataChange::DropStream { path, .. } => write!(f, "drop stream {path}"),
            MetadataChange::BindQuery { path, writer, query, expected, .. } => {
                write!(f, "bind writer {writer:?} of stream {path} to query {query:?}")?;
                expected.as_ref().map_or(Ok(()), |expected| write!(f, ", expecting {expected:?}"))
            }
            MetadataChange::CheckOwner { partition_id, expected } => {
                write!(f, "check that {expected} owns partition {partition_id}")
            }
        }
    }
}
