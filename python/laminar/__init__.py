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

__all__ = [  # noqa: PLE0604 - the names in errors.__all__ are strings
    "AffinityHint",
    "AntiAffinityGroup",
    "AssignmentConstraints",
    "AssignmentPlan",
    "AssignmentStats",
    "CheckpointRef",
    "ConditionalPut",
    "ConsistentHashAssigner",
    "DeltaMetadata",
    "HashRing",
    "MetadataLogEntry",
    "MetadataResponse",
    "NodeInfo",
    "NodeMetadata",
    "NodeRegistration",
    "OwnershipEvent",
    "PartitionAssignment",
    "PartitionGuard",
    "PartitionGuardSet",
    "PartitionMove",
    "PartitionOwnership",
    "ReleaseInfo",
    "StreamDescriptor",
    "TopologyChange",
    "__version__",
    *_errors,
]
