//! What a change may hold, and what is wrong with one that no state could accept.

use std::fmt;

use thiserror::Error;

use crate::ids::{Epoch, NodeId, PartitionId};

/// Changes in one batch: a claim of the largest stream, and what a run changes beside it.
pub const BATCH_CHANGES_MAX: usize = PARTITIONS_PER_STREAM_MAX as usize + 16;
/// Partitions of one stream.
pub const PARTITIONS_PER_STREAM_MAX: u32 = 100_000;
/// Partitions of the cluster.
pub const PARTITIONS_MAX: usize = 1 << 20;
/// Streams of the cluster.
pub const STREAMS_MAX: usize = 1 << 16;
/// Registered nodes of the cluster, servers and workers together.
pub const NODES_MAX: usize = 1 << 16;

/// Names of writers that are bound to a query, of all streams together.
pub const BOUND_QUERIES_MAX: usize = 1 << 16;

/// A size that a change must keep to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// [`BATCH_CHANGES_MAX`].
    BatchChanges,
    /// Partitions that a batch creates or adds, of all streams, up to [`PARTITIONS_PER_STREAM_MAX`].
    BatchPartitions,
    /// From 1 to [`PARTITIONS_PER_STREAM_MAX`].
    StreamPartitions,
    /// From 1 to 512.
    StreamPathBytes,
    /// Up to 1 MiB.
    SchemaBytes,
    /// Up to 16.
    KeyColumns,
    /// From 1 to 256.
    KeyColumnBytes,
    /// Up to 1024.
    AddressBytes,
    /// Up to 1024.
    FailureDomainBytes,
    /// Up to 64.
    Tags,
    /// Name and value together, up to 1024.
    TagBytes,
    /// Up to 1024.
    StoragePathBytes,
    /// Source partitions of all sources together, up to 10,000.
    SourceOffsets,
    /// Up to 1024.
    SourceNameBytes,
    /// From 1 to 64.
    MachineNameBytes,
    /// In milliseconds, at least 1.
    RetentionAge,
    /// At least 1.
    RetentionBytes,
    /// At least 1.
    RowBytes,
    /// From 1 to 256.
    WriterBytes,
    /// From 1 to 256.
    QueryBytes,
}

impl Bound {
    /// What is bounded, the least and the most it may be.
    fn range(self) -> (&'static str, u64, u64) {
        match self {
            Bound::BatchChanges => ("number of changes in the batch", 0, BATCH_CHANGES_MAX as u64),
            Bound::BatchPartitions => {
                ("number of partitions that the batch creates", 0, u64::from(PARTITIONS_PER_STREAM_MAX))
            }
            Bound::StreamPartitions => ("number of partitions", 1, u64::from(PARTITIONS_PER_STREAM_MAX)),
            Bound::StreamPathBytes => ("length of the stream path in bytes", 1, 512),
            Bound::SchemaBytes => ("length of the schema in bytes", 0, 1 << 20),
            Bound::KeyColumns => ("number of key columns", 0, 16),
            Bound::KeyColumnBytes => ("length of the key column's name in bytes", 1, 256),
            Bound::AddressBytes => ("length of the address in bytes", 0, 1024),
            Bound::FailureDomainBytes => ("length of the failure domain in bytes", 0, 1024),
            Bound::Tags => ("number of tags", 0, 64),
            Bound::TagBytes => ("length of the tag in bytes", 0, 1024),
            Bound::StoragePathBytes => ("length of the storage path in bytes", 0, 1024),
            Bound::SourceOffsets => ("number of source offsets", 0, 10_000),
            Bound::SourceNameBytes => ("length of the source's name in bytes", 0, 1024),
            Bound::MachineNameBytes => ("length of the machine's name in bytes", 1, 64),
            Bound::RetentionAge => ("age of retention in milliseconds", 1, u64::MAX),
            Bound::RetentionBytes => ("bytes of retention", 1, u64::MAX),
            Bound::RowBytes => ("largest row in bytes", 1, u64::MAX),
            Bound::WriterBytes => ("length of the writer's name in bytes", 1, 256),
            Bound::QueryBytes => ("length of the query's name in bytes", 1, 256),
        }
    }

    pub(super) fn check(self, given: usize) -> Result<(), InvalidChange> {
        self.check_amount(given as u64)
    }

    pub(super) fn check_amount(self, given: u64) -> Result<(), InvalidChange> {
        let (_, min, max) = self.range();
        if (min..=max).contains(&given) {
            Ok(())
        } else {
            Err(InvalidChange::OutOfRange { bound: self, given })
        }
    }
}

/// A number of the whole cluster that cannot grow further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// [`PARTITIONS_MAX`].
    Partitions,
    /// [`STREAMS_MAX`].
    Streams,
    /// [`NODES_MAX`].
    Nodes,
    /// No run of unused partition ids is left that is long enough.
    PartitionIds,
    /// No server id is left to give out.
    ServerIds,
    /// No worker id is left to give out.
    WorkerIds,
    /// The cluster epoch cannot grow.
    ClusterEpochs,
    /// [`BOUND_QUERIES_MAX`].
    BoundQueries,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Partitions => {
                write!(f, "the cluster holds {PARTITIONS_MAX} partitions at most; drop a stream first")
            }
            Limit::Streams => write!(f, "the cluster holds {STREAMS_MAX} streams at most; drop one first"),
            Limit::Nodes => write!(f, "the cluster holds {NODES_MAX} nodes at most; deregister one first"),
            Limit::PartitionIds => {
                f.write_str("no run of unused partition ids is long enough; ask for fewer partitions")
            }
            Limit::ServerIds => f.write_str("no server id is left to give out; configure an unused one"),
            Limit::WorkerIds => f.write_str("no worker id is left to give out"),
            Limit::ClusterEpochs => f.write_str("the cluster epoch is the last there is"),
            Limit::BoundQueries => write!(
                f,
                "the cluster knows the queries of {BOUND_QUERIES_MAX} writers at most; use the name of one again, or drop a \
                 stream"
            ),
        }
    }
}

/// What is wrong with the text of a stream path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathFault {
    /// It does not start with `/`.
    NotAbsolute,
    /// Two slashes follow each other, or one ends it.
    EmptySegment,
    /// A segment is `.` or `..`.
    DotSegment,
    /// This character is not a letter, a digit, `.`, `_` or `-`.
    Character(char),
}

impl fmt::Display for PathFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathFault::NotAbsolute => f.write_str("it must start with /"),
            PathFault::EmptySegment => f.write_str("no segment may be empty, and no / may end it"),
            PathFault::DotSegment => f.write_str("no segment may be . or .."),
            PathFault::Character(character) => {
                write!(f, "{character:?} is not a letter from a to z, a digit, ., _ or -")
            }
        }
    }
}

/// A change that no state could accept: fix it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidChange {
    /// A size is below its least or above its most.
    #[error("{} is {given}; it must be from {} to {}", .bound.range().0, .bound.range().1, .bound.range().2)]
    OutOfRange {
        /// The bound.
        bound: Bound,
        /// The size given.
        given: u64,
    },
    /// Node 0 is nobody, and cannot register, own, release or leave.
    #[error("node id is 0, which means nobody; node ids start at 1")]
    NodeUnassigned,
    /// Not a name for a stream.
    #[error("stream path is {path:?}; {fault}")]
    StreamPath {
        /// The path given.
        path: String,
        /// What is wrong with it.
        fault: PathFault,
    },
    /// Not a name for an application's machine.
    #[error(
        "machine name is {name:?}; it must be of letters from a to z, digits, _ or -, and neither log nor kv"
    )]
    MachineName {
        /// The name given.
        name: String,
    },
    /// A key names a column twice.
    #[error("key column {column:?} stands twice; name each column once")]
    KeyRepeated {
        /// The column.
        column: String,
    },
    /// A worker brought an id.
    #[error("a worker brought node id {node_id}; leave it out, ids of workers are given out here")]
    WorkerIdGiven {
        /// The id given.
        node_id: NodeId,
    },
    /// A server brought an id that servers cannot have.
    #[error("a server brought node id {node_id}; it must be from 1 to {}", NodeId::WORKER_MIN.0 - 1)]
    ServerId {
        /// The id given.
        node_id: NodeId,
    },
    /// A registration that expects an earlier one does not say whose.
    #[error("the registration expects an earlier one and brings no node id; name the server")]
    ReregistrationWithoutId,
    /// The checkpoint was taken of another partition or in another epoch than the change says.
    #[error(
        "partition {partition}: the checkpoint is of partition {checkpoint_partition} at epoch {checkpoint_epoch}, and the \
         change of epoch {epoch}; commit each checkpoint where it was taken"
    )]
    CheckpointMismatch {
        /// The partition of the change.
        partition: PartitionId,
        /// The epoch the change expects.
        epoch: Epoch,
        /// The partition of the checkpoint.
        checkpoint_partition: PartitionId,
        /// The epoch of the checkpoint.
        checkpoint_epoch: Epoch,
    },
}
