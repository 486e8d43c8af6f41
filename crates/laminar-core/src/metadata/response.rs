//! The answer to an entry: applied, or rejected with the reason.

use thiserror::Error;

use super::limits::{InvalidChange, Limit};
use crate::ids::{CheckpointId, Epoch, NodeId, OwnerEpoch, PartitionId, PartitionRange, StreamId};
use crate::node::NodeState;

/// What became of an entry. The same on every replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetadataResponse {
    /// The change took effect, or every change of the batch did.
    Applied {
        /// The ids given out, in the order of the changes that asked for them.
        minted: Vec<Minted>,
    },
    /// Nothing took effect.
    Rejected(Rejection),
}

impl MetadataResponse {
    /// True if the change took effect now. A repeated request is rejected, with its first answer inside.
    pub fn is_applied(&self) -> bool {
        matches!(self, MetadataResponse::Applied { .. })
    }

    /// The answer that counts: of a repeated request, the first one.
    pub fn settled(self) -> MetadataResponse {
        match self {
            MetadataResponse::Rejected(Rejection::DuplicateRequest { first }) => *first,
            response => response,
        }
    }

    /// The ids given out; none if rejected.
    pub fn minted(&self) -> &[Minted] {
        match self {
            MetadataResponse::Applied { minted } => minted,
            MetadataResponse::Rejected(_) => &[],
        }
    }

    /// Why nothing took effect, if so.
    pub fn rejection(&self) -> Option<&Rejection> {
        match self {
            MetadataResponse::Applied { .. } => None,
            MetadataResponse::Rejected(rejection) => Some(rejection),
        }
    }
}

/// An id that came to be with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Minted {
    /// The id of a node that registered, given out or brought.
    Node(NodeId),
    /// A new stream.
    Stream {
        /// Its id.
        stream_id: StreamId,
        /// The ids of its partitions.
        partitions: PartitionRange,
    },
    /// Further partitions of a stream.
    Partitions(PartitionRange),
}

/// Which checkpoint of a partition: newer ones compare greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CheckpointMark {
    /// The epoch it was taken in.
    pub epoch: Epoch,
    /// Its id.
    pub checkpoint_id: CheckpointId,
}

/// Why an entry changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Rejection {
    /// The partition is at another epoch.
    #[error(
        "partition {partition}: change refused, it names {} and {current} is current; read the metadata and decide again",
        named(*.expected)
    )]
    StaleEpoch {
        /// The partition.
        partition: PartitionId,
        /// What the change expects; or, if its own epoch is not above the current one, what it would have made.
        /// `None` if it expects that there is no such partition.
        expected: Option<OwnerEpoch>,
        /// What holds.
        current: OwnerEpoch,
    },
    /// The epoch is right and the owner is another.
    #[error(
        "partition {partition}: change refused, it names {expected} and {current} is current; send it to the owner or \
         claim the partition"
    )]
    NotOwner {
        /// The partition.
        partition: PartitionId,
        /// What the change expects.
        expected: OwnerEpoch,
        /// What holds.
        current: OwnerEpoch,
    },
    /// The new epoch is not the next one. An epoch far ahead would use up those between, and they cannot come back.
    #[error(
        "partition {partition}: change refused, it brings epoch {epoch} and {current} is current; bring the next epoch"
    )]
    EpochSkipped {
        /// The partition.
        partition: PartitionId,
        /// The epoch the change brings.
        epoch: Epoch,
        /// What holds.
        current: OwnerEpoch,
    },
    /// No epoch is left.
    #[error(
        "partition {partition}: change refused, its epoch is {}, the last there is; it cannot change its owner again",
        u64::MAX
    )]
    EpochExhausted {
        /// The partition.
        partition: PartitionId,
    },
    /// No such partition.
    #[error(
        "partition {partition}: change refused, there is no such partition; it was dropped or never created"
    )]
    UnknownPartition {
        /// The partition asked for.
        partition: PartitionId,
    },
    /// No such node.
    #[error("node {node_id}: change refused, it is not registered; register it first")]
    UnknownNode {
        /// The node asked for.
        node_id: NodeId,
    },
    /// A node of this id is registered.
    #[error(
        "node {node_id}: registration refused, it is registered already ({state}); choose another id, or name the state \
         {state} as expected to register it again"
    )]
    NodeExists {
        /// The node.
        node_id: NodeId,
        /// Its state.
        state: NodeState,
    },
    /// The node is in another state.
    #[error(
        "node {node_id}: change refused, it expects the state {expected} and the node is {current}; read the metadata and \
         decide again"
    )]
    NodeStateChanged {
        /// The node.
        node_id: NodeId,
        /// The state the change expects.
        expected: NodeState,
        /// The state it is in.
        current: NodeState,
    },
    /// The owner released it before.
    #[error(
        "partition {partition}: release refused, {current} has released it already; wait for the next owner"
    )]
    AlreadyReleased {
        /// The partition.
        partition: PartitionId,
        /// Its owner.
        current: OwnerEpoch,
    },
    /// A checkpoint at least as new is known.
    #[error(
        "partition {partition}: checkpoint {} of epoch {} refused, checkpoint {} of epoch {} is the latest; commit newer \
         checkpoints only",
        .given.checkpoint_id, .given.epoch, .latest.checkpoint_id, .latest.epoch
    )]
    StaleCheckpoint {
        /// The partition.
        partition: PartitionId,
        /// The checkpoint of the change.
        given: CheckpointMark,
        /// The latest one known.
        latest: CheckpointMark,
    },
    /// The cluster epoch moved on.
    #[error("cluster epoch {expected} expected and {current} is current; read the metadata and decide again")]
    ClusterEpochChanged {
        /// The cluster epoch the change expects.
        expected: u64,
        /// The one that holds.
        current: u64,
    },
    /// A stream has this path.
    #[error(
        "stream {path}: creation refused, it exists (stream id {stream_id}); open it or choose another path"
    )]
    StreamExists {
        /// The path.
        path: String,
        /// The stream there.
        stream_id: StreamId,
    },
    /// No stream has this path.
    #[error("stream {path}: change refused, there is no such stream; it was dropped or never created")]
    UnknownStream {
        /// The path.
        path: String,
    },
    /// Another stream has this path now.
    #[error(
        "stream {path}: change refused, it expects stream id {expected} and {current} is there; the stream was dropped and \
         created again"
    )]
    StreamReplaced {
        /// The path.
        path: String,
        /// The stream the change expects.
        expected: StreamId,
        /// The stream there.
        current: StreamId,
    },
    /// The stream has more partitions than it should have.
    #[error(
        "stream {path}: change refused, it has {current} partitions and the change asks for {given}; partitions are only \
         added, ask for {current} or more"
    )]
    PartitionsShrunk {
        /// The path.
        path: String,
        /// How many it has.
        current: u32,
        /// How many the change asks for.
        given: u32,
    },
    /// The writer is bound to another query.
    #[error(
        "stream {path}: change refused, it expects that writer {writer:?} is bound to {} and it is to {}; read the metadata \
         and decide again",
        query(.expected.as_deref()), query(.current.as_deref())
    )]
    QueryChanged {
        /// The stream.
        path: String,
        /// The writer's name.
        writer: String,
        /// The query the change expects.
        expected: Option<String>,
        /// The query that it is bound to.
        current: Option<String>,
    },
    /// The cluster is full.
    #[error("change refused, {limit}")]
    LimitReached {
        /// What is full.
        limit: Limit,
    },
    /// No state could accept the change.
    #[error("change refused, {0}")]
    Invalid(InvalidChange),
    /// A change of a batch was rejected, and so the whole batch.
    #[error("batch refused at change {position}: {reason}")]
    InBatch {
        /// Which change, the first being 0.
        position: u32,
        /// Why.
        reason: Box<Rejection>,
    },
    /// The request was answered before.
    #[error("request answered before ({}); use that answer", outcome(.first))]
    DuplicateRequest {
        /// The first answer.
        first: Box<MetadataResponse>,
    },
}

impl Rejection {
    /// The reason in one word, for tools. Of a batch, that of the change which was rejected.
    pub fn code(&self) -> &'static str {
        match self {
            Rejection::StaleEpoch { .. } => "stale_epoch",
            Rejection::NotOwner { .. } => "not_owner",
            Rejection::EpochSkipped { .. } => "epoch_skipped",
            Rejection::EpochExhausted { .. } => "epoch_exhausted",
            Rejection::UnknownPartition { .. } => "unknown_partition",
            Rejection::UnknownNode { .. } => "unknown_node",
            Rejection::NodeExists { .. } => "node_exists",
            Rejection::NodeStateChanged { .. } => "node_state_changed",
            Rejection::AlreadyReleased { .. } => "already_released",
            Rejection::StaleCheckpoint { .. } => "stale_checkpoint",
            Rejection::ClusterEpochChanged { .. } => "cluster_epoch_changed",
            Rejection::StreamExists { .. } => "stream_exists",
            Rejection::UnknownStream { .. } => "unknown_stream",
            Rejection::StreamReplaced { .. } => "stream_replaced",
            Rejection::PartitionsShrunk { .. } => "partitions_shrunk",
            Rejection::QueryChanged { .. } => "query_changed",
            Rejection::LimitReached { .. } => "limit_reached",
            Rejection::Invalid(_) => "invalid",
            Rejection::InBatch { reason, .. } => reason.code(),
            Rejection::DuplicateRequest { .. } => "duplicate_request",
        }
    }
}

impl From<InvalidChange> for Rejection {
    fn from(invalid: InvalidChange) -> Self {
        Rejection::Invalid(invalid)
    }
}

fn named(expected: Option<OwnerEpoch>) -> String {
    expected.map_or_else(|| "no earlier owner".to_owned(), |expected| expected.to_string())
}

fn query(name: Option<&str>) -> String {
    name.map_or_else(|| "no query".to_owned(), |name| format!("query {name:?}"))
}

fn outcome(response: &MetadataResponse) -> &'static str {
    match response {
        MetadataResponse::Applied { .. } => "applied",
        MetadataResponse::Rejected(rejection) => rejection.code(),
    }
}
