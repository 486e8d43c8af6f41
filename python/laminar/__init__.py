"""laminar: exactly one writer for every partition of a data stream, proven by an epoch that the storage checks."""

from laminar._native import __version__
from laminar.assignment import (
    AffinityHint,
    AntiAffinityGroup,
    AssignmentConstraints,
    AssignmentPlan,
    AssignmentStats,
    ConsistentHashAssigner,
    HashRing,
    NodeInfo,
    PartitionAssignment,
    PartitionMove,
    TopologyChange,
)
from laminar.cluster import Cluster, Machine, connect, open  # noqa: A004 - laminar.open is what people call
from laminar.errors import *  # noqa: F403 - errors.__all__ is the whole tree, and all of it is public
from laminar.errors import __all__ as _errors
from laminar.guards import ConditionalPut, PartitionGuard, PartitionGuardSet
from laminar.metadata import (
    CheckpointRef,
    DeltaMetadata,
    MetadataLogEntry,
    MetadataResponse,
    NodeMetadata,
    NodeRegistration,
    OwnershipEvent,
    PartitionOwnership,
    ReleaseInfo,
    StreamDescriptor,
)
from laminar.status import (
    ClusterStatus,
    GroupStatus,
    NodeIdentity,
    NodeStatus,
    OwnershipStep,
    PartitionStatus,
    PartitionStory,
    RefusedWrite,
)
from laminar.stream import Barrier, Retention, Stream, StreamLimits
from laminar.writer import Appended, Writer, WriterBatch, WriterGuards

__all__ = [  # noqa: PLE0604 - the names in errors.__all__ are strings
    "AffinityHint",
    "AntiAffinityGroup",
    "Appended",
    "AssignmentConstraints",
    "AssignmentPlan",
    "AssignmentStats",
    "Barrier",
    "CheckpointRef",
    "Cluster",
    "ClusterStatus",
    "ConditionalPut",
    "ConsistentHashAssigner",
    "DeltaMetadata",
    "GroupStatus",
    "HashRing",
    "Machine",
    "MetadataLogEntry",
    "MetadataResponse",
    "NodeIdentity",
    "NodeInfo",
    "NodeMetadata",
    "NodeRegistration",
    "NodeStatus",
    "OwnershipEvent",
    "OwnershipStep",
    "PartitionAssignment",
    "PartitionGuard",
    "PartitionGuardSet",
    "PartitionMove",
    "PartitionOwnership",
    "PartitionStatus",
    "PartitionStory",
    "RefusedWrite",
    "ReleaseInfo",
    "Retention",
    "Stream",
    "StreamDescriptor",
    "StreamLimits",
    "TopologyChange",
    "Writer",
    "WriterBatch",
    "WriterGuards",
    "__version__",
    "connect",
    "open",
    *_errors,
]
