"""The cluster's metadata: who owns what, and the rules by which that changes.

The classes here are plain values; the rules are Rust's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from laminar._native import DeltaMetadata, MetadataLogEntry, MetadataResponse
from laminar.assignment import NodeInfo, NodeState

NodeRole = Literal["server", "worker"]
SourceOffsets = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True)
class PartitionOwnership:
    """Who owns a partition; node 0 is nobody."""

    node_id: int
    epoch: int
    assigned_at_ms: int


@dataclass(frozen=True, kw_only=True)
class CheckpointRef:
    """A checkpoint in the object store."""

    checkpoint_id: int
    partition_id: int
    epoch: int
    storage_path: str
    source_offsets: SourceOffsets = field(default_factory=dict, hash=False)
    size_bytes: int = 0
    created_at_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class ReleaseInfo:
    """How an owner left a partition: what the next owner must find."""

    partition_id: int
    node_id: int
    epoch: int
    released_at_ms: int
    final_index: int
    state_hash: int
    next_offset: int
    checkpoint_id: int | None
    source_offsets: SourceOffsets = field(hash=False)


@dataclass(frozen=True, kw_only=True)
class NodeMetadata:
    """What a node brings: its size and where it stands."""

    cores: int = 1
    memory_bytes: int = 0
    failure_domain: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)

    def to_node_info(self, node_id: int, state: NodeState = "active", address: str = "") -> NodeInfo:
        """What the assigner needs to know of the node."""
        return NodeInfo(
            node_id,
            cores=self.cores,
            memory_bytes=self.memory_bytes,
            failure_domain=self.failure_domain,
            tags=self.tags,
            state=state,
            address=address,
        )


@dataclass(frozen=True, kw_only=True)
class NodeRegistration:
    """A node as the metadata knows it."""

    node_id: int
    role: NodeRole
    state: NodeState
    rpc_address: str
    raft_address: str
    metadata: NodeMetadata
    registered_at_ms: int
    last_updated_ms: int


@dataclass(frozen=True, kw_only=True)
class StreamDescriptor:
    """A stream of the catalogue; ``stream_id`` is new for every creation of a path."""

    stream_id: int
    path: str
    partition_ids: Sequence[int] = field(hash=False)
    schema: bytes
    key: Sequence[str] = field(hash=False)
    machine: str
    data_group: int
    created_at_ms: int
    retention_ms: int | None = None
    retention_bytes: int | None = None
    row_bytes_max: int | None = None


@dataclass(frozen=True, kw_only=True)
class OwnershipEvent:
    """A change of a partition's ownership, as ``why`` tells it."""

    epoch: int
    owner: int
    previous_owner: int
    cause: Literal["created", "assigned", "acquired", "released", "unassigned"]
    time_ms: int
    log_index: int


__all__ = [
    "CheckpointRef",
    "DeltaMetadata",
    "MetadataLogEntry",
    "MetadataResponse",
    "NodeMetadata",
    "NodeRegistration",
    "OwnershipEvent",
    "PartitionOwnership",
    "ReleaseInfo",
    "StreamDescriptor",
]
