"""The Rust core of laminar. Import these names from ``laminar``."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, final
from uuid import UUID

import pyarrow as pa

from laminar.assignment import (
    AffinityHint,
    AntiAffinityGroup,
    AssignmentConstraints,
    AssignmentStats,
    NodeInfo,
    PartitionAssignment,
    PartitionMove,
    TopologyChange,
)
from laminar.errors import EpochError
from laminar.metadata import (
    CheckpointRef,
    NodeMetadata,
    NodeRegistration,
    OwnershipEvent,
    PartitionOwnership,
    ReleaseInfo,
    StreamDescriptor,
)

__all__ = [
    "EXIT_INVALID",
    "EXIT_NOT_THE_NODE",
    "AssignmentPlan",
    "Cluster",
    "ConditionalPut",
    "ConsistentHashAssigner",
    "DeltaMetadata",
    "HashRing",
    "MetadataLogEntry",
    "MetadataResponse",
    "PartitionGuard",
    "PartitionGuardSet",
    "Reader",
    "Stream",
    "TaskWriter",
    "Writer",
    "WriterBatch",
    "WriterGuards",
    "__version__",
    "check_affinity_hint",
    "check_anti_affinity_group",
    "check_constraints",
    "check_node_info",
    "check_topology_change",
    "inspect_log",
    "node_settings",
    "run_node",
    "stored_schema",
    "verify_log",
]

__version__: str
#: How the process of a node ends that would fail again, whatever happens around it.
EXIT_INVALID: int
#: How it ends if another process is the node.
EXIT_NOT_THE_NODE: int

_Owner: TypeAlias = tuple[int, int]
_RequestId: TypeAlias = int | str | bytes | UUID | None
_NodeState: TypeAlias = Literal["joining", "active", "draining", "left", "failed"]

@final
class PartitionGuard:
    """Proof that a node owns a partition at an epoch, as far as this process has heard.

    Dropping a guard frees it and tells nobody: ownership ends in the metadata. A guard that was found stale never
    becomes fresh again, also not in a copy that was pickled.

    >>> from laminar import PartitionGuard
    >>> guard = PartitionGuard(42, 7, 1)
    >>> guard.check()
    >>> guard
    PartitionGuard(partition_id=42, epoch=7, node_id=1) <fresh>
    """

    def __new__(cls, partition_id: int, epoch: int, node_id: int) -> PartitionGuard: ...
    @property
    def partition_id(self) -> int:
        """The guarded partition."""
    @property
    def epoch(self) -> int:
        """The epoch the guard holds."""
    @property
    def node_id(self) -> int:
        """The node the guard was made for."""
    def check(self) -> None:
        """Raise unless the guard is fresh; asks nobody.

        Raises ``StaleEpochError`` if a later epoch was seen, ``NotOwnedError`` or ``UnknownPartitionError`` if the
        owner changed or the partition vanished without one.
        """
    def validate(self, metadata: DeltaMetadata) -> None:
        """Raise unless the metadata confirms this ownership; what is learnt here also fails every later ``check``."""
    def refresh(self, metadata: DeltaMetadata) -> bool:
        """Take over what the metadata knows; true while the guard is fresh."""
    def conditional_put_precondition(self) -> ConditionalPut:
        """Labels for an object written under this ownership."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def __setstate__(self, ended_by: int | str) -> None: ...

@final
class PartitionGuardSet:
    """The guards of all partitions a node owns.

    Checks never lock and never wait, also while another thread inserts, removes or refreshes. The set remembers the
    newest epoch it has heard of each partition: a guard of an earlier one is stale from the start.

    >>> from laminar import PartitionGuard, PartitionGuardSet
    >>> guards = PartitionGuardSet(1)
    >>> guards.insert(PartitionGuard(3, 1, 1))
    >>> guards.check_many([3, 4])
    [4]
    """

    def __new__(cls, node_id: int) -> PartitionGuardSet: ...
    @property
    def node_id(self) -> int:
        """The node that all guards of the set belong to."""
    def insert(self, guard: PartitionGuard) -> None:
        """Take a guard in, in place of an older one of its partition. From then on the two end together."""
    def remove(self, partition_id: int) -> PartitionGuard | None:
        """Give the guard back; checks of its partition then raise ``NotOwnedError``."""
    def get(self, partition_id: int) -> PartitionGuard | None:
        """The guard of a partition; it stays in the set."""
    def check(self, partition_id: int) -> None:
        """Raise unless the guard of this partition is there and fresh; asks nobody."""
    def check_many(self, partition_ids: Iterable[int] | Any) -> list[int]:
        """The partitions whose check fails, in the order given.

        One-dimensional NumPy and Arrow arrays of 32 or 64 bit integers are read in place.
        """
    def validate_all(self, metadata: DeltaMetadata) -> list[tuple[int, EpochError]]:
        """The partitions that the metadata does not confirm, each with the error."""
    def refresh_all(self, metadata: DeltaMetadata) -> list[int]:
        """Take over what the metadata knows and return the partitions that are no longer fresh."""
    def is_empty(self) -> bool:
        """True if the set holds no guard."""
    def partition_ids(self) -> list[int]:
        """The partitions with a guard, stale ones too, in ascending order."""
    def __len__(self) -> int: ...
    def __contains__(self, partition_id: object, /) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]
    def __reduce__(self) -> tuple[Any, ...]: ...
    def __setstate__(self, state: tuple[Sequence[PartitionGuard], Sequence[tuple[int, int]]]) -> None: ...

@final
class ConditionalPut:
    """Who writes a checkpoint, and at which epoch.

    Labels for people and tools that look at objects. What refuses a stale checkpoint is the create-only manifest chain,
    because a client cannot choose an object's ETag.

    >>> from laminar import PartitionGuard
    >>> PartitionGuard(42, 7, 1).conditional_put_precondition().as_metadata()
    [('x-laminar-partition', '42'), ('x-laminar-epoch', '7'), ('x-laminar-node', '1')]
    """

    def __new__(cls, partition_id: int, epoch: int, node_id: int) -> ConditionalPut: ...
    @property
    def partition_id(self) -> int:
        """The partition of the checkpoint."""
    @property
    def epoch(self) -> int:
        """The epoch it is written at."""
    @property
    def node_id(self) -> int:
        """The node that writes it."""
    def as_metadata(self) -> list[tuple[str, str]]:
        """Metadata pairs for the object."""
    def s3_condition(self) -> str:
        """One line that names the ownership; a label only, no store compares it."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __getnewargs__(self) -> tuple[int, int, int]: ...

@final
class HashRing:
    """The ring that decides which node a partition prefers.

    Positions are 64-bit hashes (xxh3 with laminar's seed), the same on every platform and in every release.

    >>> from laminar import HashRing, NodeInfo
    >>> ring = HashRing([NodeInfo(1, cores=2), NodeInfo(2, cores=2)])
    >>> len(ring)
    600
    """

    def __new__(
        cls,
        nodes: Iterable[NodeInfo],
        *,
        virtual_nodes_per_core: int | None = None,
        constraints: AssignmentConstraints | None = None,
    ) -> HashRing: ...
    @staticmethod
    def partition_hash(partition_id: int) -> int:
        """Where a partition stands on the ring."""
    def lookup(self, hash: int) -> int | None:  # noqa: A002 - the word of the domain
        """The node of the first point at or after this position, from the top on if there is none."""
    def lookup_excluding(self, hash: int, failure_domains: Iterable[str]) -> int | None:  # noqa: A002
        """The same, passing over the nodes in these failure domains."""
    def __len__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __getnewargs_ex__(self) -> tuple[tuple[list[NodeInfo]], dict[str, Any]]: ...

@final
class ConsistentHashAssigner:
    """Decides which node should own which partition.

    The ring gives each partition its preference, a band around each node's share keeps the balance, and a rebalance
    moves the fewest partitions that the band allows. The same input gives the same plan on every platform.

    >>> from laminar import ConsistentHashAssigner, NodeInfo
    >>> plan = ConsistentHashAssigner().initial_assignment(range(6), [NodeInfo(1), NodeInfo(2)])
    >>> plan.stats.distribution
    {1: 3, 2: 3}
    """

    def __new__(cls, *, virtual_nodes_per_core: int | None = None) -> ConsistentHashAssigner: ...
    @property
    def virtual_nodes_per_core(self) -> int:
        """Points on the ring for each core of a node; 150 unless given."""
    def initial_assignment(
        self, partitions: Iterable[int], nodes: Iterable[NodeInfo], constraints: AssignmentConstraints | None = None
    ) -> AssignmentPlan:
        """A plan for partitions that nobody owns yet, each at epoch 1."""
    def rebalance(
        self,
        current: Mapping[int, tuple[int, int]],
        nodes: Iterable[NodeInfo],
        change: TopologyChange,
        constraints: AssignmentConstraints | None = None,
    ) -> AssignmentPlan:
        """A plan for partitions with owners, ``{partition: (node, epoch)}``; whatever moves gets the next epoch.

        ``nodes`` may be the cluster before or after the change. Node 0 owns nothing.
        """
    def validate_plan(
        self, plan: AssignmentPlan, nodes: Iterable[NodeInfo], constraints: AssignmentConstraints | None = None
    ) -> None:
        """Raise the error of the first constraint that the plan breaks."""
    def bands(
        self, partition_count: int, nodes: Iterable[NodeInfo], constraints: AssignmentConstraints | None = None
    ) -> dict[int, tuple[float, int, int, int]]:
        """For each node its share, the low and high end of its band, and its cap."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, int]]: ...

@final
class AssignmentPlan:
    """Who should own what, which partitions move for it, and what could not be had."""

    @property
    def assignments(self) -> dict[int, PartitionAssignment]:
        """``{partition: (node, epoch)}``, ready to be the ``current`` of the next rebalance."""
    @property
    def moves(self) -> list[PartitionMove]:
        """The partitions that change their owner."""
    @property
    def stats(self) -> AssignmentStats:
        """The plan in numbers, with the violations."""
    def to_json(self) -> str:
        """The plan as JSON."""
    @staticmethod
    def from_json(text: str) -> AssignmentPlan:
        """The plan that ``to_json`` wrote."""
    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON would have it, in Python's types."""
    def to_arrow(self) -> pa.Table:
        """One row a partition: its node and epoch, and from where and when it moves, if it does."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class MetadataLogEntry:
    """A change of the metadata, with its time, its request id and what it expects to find.

    A request id is a whole number, a UUID, a string or bytes; an entry with the same id as one before it changes
    nothing and is answered with the first answer. Without one, only what the entry expects protects it.

    >>> from laminar import MetadataLogEntry
    >>> entry = MetadataLogEntry.assign_partition(partition_id=3, node_id=2, epoch=2, expected=(1, 1))
    >>> entry.kind
    'assign_partition'
    """

    @staticmethod
    def assign_partition(
        *,
        partition_id: int,
        node_id: int,
        epoch: int,
        expected: _Owner | None = None,
        time_ms: int | None = None,
        request_id: _RequestId = None,
    ) -> MetadataLogEntry:
        """Give a partition to a node, or to nobody (0). With nothing expected it creates the partition."""
    @staticmethod
    def release_partition(
        *,
        partition_id: int,
        expected: _Owner,
        final_index: int | None = None,
        state_hash: int | None = None,
        next_offset: int | None = None,
        checkpoint_id: int | None = None,
        source_offsets: Mapping[str, Mapping[int, int]] | None = None,
        time_ms: int | None = None,
        request_id: _RequestId = None,
    ) -> MetadataLogEntry:
        """Record how the owner left a partition; it stays the owner until another takes over."""
    @staticmethod
    def acquire_partition(
        *,
        partition_id: int,
        node_id: int,
        epoch: int,
        expected: _Owner,
        time_ms: int | None = None,
        request_id: _RequestId = None,
    ) -> MetadataLogEntry:
        """Take a partition: a claim, or the end of a move."""
    @staticmethod
    def commit_checkpoint(
        *,
        partition_id: int,
        checkpoint: CheckpointRef,
        expected: _Owner,
        time_ms: int | None = None,
        request_id: _RequestId = None,
    ) -> MetadataLogEntry:
        """Make a checkpoint the latest of its partition."""
    @staticmethod
    def update_node_state(
        *,
        node_id: int,
        state: _NodeState,
        metadata: NodeMetadata | None = None,
        expected: _NodeState | None = None,
        time_ms: int | None = None,
        request_id: _RequestId = None,
    ) -> MetadataLogEntry:
        """Move a node through its life; what it owns stays its own."""
    @staticmethod
    def register_node(
        *,
        node_id: int | None = None,
        role: Literal["server", "worker"] | None = None,
        state: _NodeState | None = None,
        rpc_address: str | None = None,
        raft_address: str | None = None,
        metadata: NodeMetadata | None = None,
        expected: _NodeState | None = None,
        time_ms: int | None = None,
        request_id: _RequestId = None,
    ) -> MetadataLogEntry:
        """Register a node: an active server with one core unless told otherwise. The answer has its id."""
    @staticmethod
    def deregister_node(
        *, node_id: int, expected: _NodeState | None = None, time_ms: int | None = None, request_id: _RequestId = None
    ) -> MetadataLogEntry:
        """End a registration and take all its partitions from the node, each at its next epoch."""
    @staticmethod
    def increment_cluster_epoch(
        *, expected: int | None = None, time_ms: int | None = None, request_id: _RequestId = None
    ) -> MetadataLogEntry:
        """Mark a change of topology."""
    @staticmethod
    def create_stream(
        *,
        path: str,
        partitions: int,
        schema: bytes | pa.Schema | None = None,
        key: str | Sequence[str] | None = None,
        machine: str | None = None,
        data_group: int | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        row_bytes_max: int | None = None,
        time_ms: int | None = None,
        request_id: _RequestId = None,
    ) -> MetadataLogEntry:
        """Create a stream; the answer has its id and the ids of its partitions.

        ``machine`` is ``"log"``, ``"kv"`` or the name of an application's machine.
        """
    @staticmethod
    def alter_stream(
        *,
        path: str,
        expected: int,
        partitions: int | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        keep_forever: bool = False,
        row_bytes_max: int | None = None,
        time_ms: int | None = None,
        request_id: _RequestId = None,
    ) -> MetadataLogEntry:
        """Add partitions to a stream, up to a new total, or change its retention and limits.

        The answer has the ids of the new partitions. ``expected`` is the stream's id. What is left out stays as it was,
        but retention is set as a whole: ``retention_ms=None`` beside ``retention_bytes`` keeps rows of any age, and
        ``keep_forever=True`` all rows.
        """
    @staticmethod
    def drop_stream(
        *, path: str, expected: int | None = None, time_ms: int | None = None, request_id: _RequestId = None
    ) -> MetadataLogEntry:
        """Remove a stream and its partitions, whose ids are never used again. ``expected`` is its stream id."""
    @staticmethod
    def bind_query(
        *,
        path: str,
        stream_id: int,
        writer: str,
        query: str,
        expected: str | None = None,
        time_ms: int | None = None,
        request_id: _RequestId = None,
    ) -> MetadataLogEntry:
        """Bind the name of a writer of a stream to a query. ``expected`` is the query before, ``None`` for none."""
    @staticmethod
    def check_owner(
        *, partition_id: int, expected: _Owner, time_ms: int | None = None, request_id: _RequestId = None
    ) -> MetadataLogEntry:
        """Change nothing; the batch that it stands in takes effect only if this is the owner."""
    @staticmethod
    def batch(
        entries: Iterable[MetadataLogEntry], *, time_ms: int | None = None, request_id: _RequestId = None
    ) -> MetadataLogEntry:
        """All of these in order, or none. The batch's own time and request id hold for all of them."""
    @property
    def kind(self) -> str:
        """The name of the function that made it."""
    @property
    def time_ms(self) -> int:
        """Milliseconds since the Unix epoch, for people, never for decisions."""
    @property
    def request_id(self) -> int | None:
        """The id as a number, or ``None``."""
    def encode(self) -> bytes:
        """The bytes that stand in the log."""
    @staticmethod
    def decode(data: bytes) -> MetadataLogEntry:
        """The entry that ``encode`` wrote."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class MetadataResponse:
    """The answer to an entry: applied, or rejected with the reason. A rejection is returned, never raised."""

    @property
    def applied(self) -> bool:
        """True if the entry took effect."""
    @property
    def success(self) -> bool:
        """The same as ``applied``."""
    @property
    def reason(self) -> str | None:
        """Why nothing took effect, in a word: ``"stale_epoch"``, ``"not_owner"``, ``"unknown_partition"`` or others."""
    @property
    def message(self) -> str | None:
        """Why nothing took effect, for people."""
    @property
    def first(self) -> MetadataResponse | None:
        """The first answer, if the reason is ``"duplicate_request"``."""
    @property
    def node_id(self) -> int | None:
        """The id of the node that registered."""
    @property
    def node_ids(self) -> list[int]:
        """The ids of all nodes that a batch registered."""
    @property
    def stream_id(self) -> int | None:
        """The id of the stream that was created."""
    @property
    def stream_ids(self) -> list[int]:
        """The ids of all streams that a batch created."""
    @property
    def partition_ids(self) -> list[int]:
        """The ids of the partitions that were created with streams or added to them."""
    def encode(self) -> bytes:
        """The answer as bytes."""
    @staticmethod
    def decode(data: bytes) -> MetadataResponse:
        """The answer that ``encode`` wrote."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class DeltaMetadata:
    """The cluster's metadata: streams, owners and epochs, nodes, checkpoints.

    The same entries in the same order give the same state and the same snapshot, byte for byte.

    >>> from laminar import DeltaMetadata, MetadataLogEntry
    >>> metadata = DeltaMetadata()
    >>> metadata.apply(MetadataLogEntry.assign_partition(partition_id=3, node_id=1, epoch=1)).applied
    True
    >>> metadata.partition_owner(3)
    1
    """

    def __new__(cls) -> DeltaMetadata: ...
    def apply(self, entry: MetadataLogEntry) -> MetadataResponse:
        """Apply an entry, or reject it and change nothing."""
    def partition_epoch(self, partition_id: int) -> int | None:
        """The current epoch of a partition."""
    def partition_owner(self, partition_id: int) -> int | None:
        """The owner of a partition; 0 if it waits for one, ``None`` if there is no such partition."""
    def partition_ownership(self, partition_id: int) -> PartitionOwnership | None:
        """Owner, epoch and since when."""
    def partitions_for_node(self, node_id: int) -> list[int]:
        """The partitions a node owns, in ascending order."""
    def ownership(self) -> dict[int, tuple[int, int]]:
        """``{partition: (node, epoch)}`` of what the assigner may move; what workers claimed is left out."""
    def get_release_info(self, partition_id: int, epoch: int) -> ReleaseInfo | None:
        """How the owner of this epoch left the partition, until the next owner has taken it."""
    def latest_checkpoint(self, partition_id: int) -> CheckpointRef | None:
        """The newest checkpoint of a partition."""
    def node(self, node_id: int) -> NodeRegistration | None:
        """A registered node."""
    def servers(self) -> list[NodeInfo]:
        """The registered servers, as the assigner takes them."""
    def stream(self, path: str) -> StreamDescriptor | None:
        """The stream of this path."""
    def streams(self, prefix: str | None = None) -> list[StreamDescriptor]:
        """The streams whose path starts with the prefix, in the order of paths."""
    def stream_of(self, partition_id: int) -> StreamDescriptor | None:
        """The stream a partition belongs to."""
    def bound_query(self, path: str, writer: str) -> str | None:
        """The query that a writer's name is bound to on a stream."""
    def history(self, partition_id: int) -> list[OwnershipEvent]:
        """The last changes of a partition's ownership, oldest first."""
    @property
    def partition_map(self) -> dict[int, PartitionOwnership]:
        """Who owns each partition."""
    @property
    def latest_checkpoints(self) -> dict[int, CheckpointRef]:
        """The newest checkpoint of each partition that has one."""
    @property
    def pending_releases(self) -> dict[int, ReleaseInfo]:
        """Releases that no new owner has answered yet."""
    @property
    def node_states(self) -> dict[int, NodeRegistration]:
        """The registered nodes."""
    @property
    def cluster_epoch(self) -> int:
        """Grows with every change of topology."""
    @property
    def last_applied_log(self) -> int:
        """The index of the last entry applied, rejected ones too."""
    @property
    def last_applied_time_ms(self) -> int:
        """The time of that entry."""
    def snapshot(self) -> bytes:
        """The whole state, versioned and checksummed."""
    @staticmethod
    def restore(snapshot: bytes) -> DeltaMetadata:
        """The state of a snapshot; ``CorruptionError`` if its bytes are not what was written."""
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]
    def __reduce__(self) -> tuple[Any, ...]: ...

def check_node_info(node: NodeInfo, /) -> None: ...
def check_anti_affinity_group(group: AntiAffinityGroup, /) -> None: ...
def check_affinity_hint(hint: AffinityHint, /) -> None: ...
def check_constraints(constraints_: AssignmentConstraints, /) -> None: ...
def check_topology_change(change: TopologyChange, /) -> None: ...
def inspect_log(path: str | os.PathLike[str], progress: Callable[[int, int], object] | None = None) -> str:
    """What the logs in a folder hold, as JSON: a replica's, or that of one log. Nothing is changed.

    ``progress`` is called with the bytes read so far and about how many there are, some ten times a second.
    """

def verify_log(path: str | os.PathLike[str], progress: Callable[[int, int], object] | None = None) -> str:
    """Reads every record of every log and every snapshot in a folder, and returns what was found, as JSON.

    A bad place is part of it: ``first_error``. Nothing is changed. ``progress`` is called as by ``inspect_log``.
    """

_Appended: TypeAlias = tuple[int, int, dict[int, tuple[int, int]], bool]
# Where a property is called bytes, the type is not.
_Message: TypeAlias = bytes
_Values: TypeAlias = Iterable[bytes | tuple[bytes | None, bytes | None]]
_Retention: TypeAlias = tuple[int | None, int | None]

@final
class Cluster:
    """The node of a folder, or a running cluster. Import ``laminar.Cluster``."""

    @staticmethod
    def of_folder(
        path: str | os.PathLike[str],
        role: str,
        *,
        command: Sequence[str],
        machines: Mapping[str, Any],
        settings: dict[str, Any],
        timeout: float,
        client_id: str,
        cluster_id: str | None,
    ) -> Cluster:
        """The node of a folder; ``role`` is embedded, detached or client."""
    @staticmethod
    def of_addresses(
        addresses: str, *, secret: str | None, timeout: float, client_id: str, cluster_id: str | None
    ) -> Cluster:
        """A running cluster, by its addresses."""
    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster that this handle is of; ``None`` before the first connection, unless it was given."""
    def hello(self) -> dict[str, Any]:
        """Who is there; connects if there is no connection."""
    def close(self) -> None:
        """End the handle. A node in this process ends with its last handle."""
    def create_stream(
        self,
        path: str,
        partitions: int,
        *,
        schema: pa.Schema | None,
        key: Sequence[str],
        machine: str,
        retention: _Retention,
        row_bytes_max: int | None,
    ) -> Stream:
        """Create a stream."""
    def streams(self, prefix: str) -> list[tuple[str, int]]:
        """The streams whose names begin so, each with its id, in order."""
    def drop_stream(self, path: str) -> None:
        """Drop a stream with all its rows."""
    def alter(
        self,
        stream: Stream,
        *,
        partitions: int | None,
        retention: _Retention | None,
        row_bytes_max: tuple[int | None] | None,
    ) -> None:
        """Change a stream; what is ``None`` stays."""
    def status(self, *, partitions: bool, stream: str | None) -> dict[str, Any]:
        """What the node does; with partitions, of one stream or of all."""
    def metrics(self) -> str:
        """What the node counted, as text in the format that Prometheus reads."""
    def why(self, path: str, partition: int | None) -> list[dict[str, Any]]:
        """The story of a partition of a stream, or of all."""
    def metadata(self, linearizable: bool) -> DeltaMetadata:
        """The metadata as the node knows it."""
    def resume(self, partition_id: int) -> bool:
        """Let a paused partition, by the cluster's id, try again; false if it was not paused."""
    def skip(self, partition_id: int, index: int) -> None:
        """Leave out a record that its machine cannot apply, of a partition by the cluster's id."""
    def snapshot(self, group: str) -> None:
        """Have a group, metadata or data, build a snapshot."""

@final
class Stream:
    """A stream of a cluster. Import ``laminar.Stream``."""

    def __new__(cls, cluster: Cluster, path: str, stream_id: int | None = None) -> Stream: ...
    def describe(self, refresh: bool) -> dict[str, Any]:
        """What the stream is: as known, or as the node says now."""
    def append(self, rows: Any, timeout: float | None) -> _Appended:
        """Append Arrow data: rows, global index, ``{partition: (first, end)}`` and whether they had landed before."""
    def append_bytes(self, partition: int | None, values: _Values, timeout: float | None) -> _Appended:
        """Append values, or pairs of key and value, as bytes; told as by ``append``."""
    def read(
        self,
        *,
        partitions: Sequence[int] | None,
        start: str | dict[int, int] | int,
        end: str | dict[int, int] | int,
        at: int | None,
        columns: Sequence[str] | None,
        follow: bool,
        include_metadata: bool,
        batch_rows: int | None,
        timeout: float | None,
    ) -> Reader:
        """Read rows. ``start`` and ``end`` are a word, ``{partition: offset}``, or a time in ms since 1970."""
    def offsets(self, at: int | None) -> dict[int, tuple[int, int]]:
        """Where partitions begin and end; as of a global index, if one is given."""
    def barrier(self, timeout: float) -> int:
        """Wait until everything that was acknowledged is applied, and return the global index up to which it is."""
    def cut(
        self,
        start: dict[int, int],
        *,
        rows_max: int | None = None,
        bytes_max: int | None = None,
        at: int | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """The furthest consistent cut after ``start``: whole commits, as many as the limits allow and at least one.

        ``bytes`` is counted only with ``bytes_max``.
        """
    def offsets_for_time(self, time_ms: int, timeout: float | None = None) -> dict[int, int]:
        """The offset of the first row at or after a time in ms since 1970, or the end, by partition."""
    def verify(
        self, partition: int, start: int, end: int | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        """Check every record and block of a partition from ``start`` to ``end``, or to what is there now.

        The first place that is not as it must be is ``fault``: ``offset`` and ``what``. Trimmed rows are left out.
        """
    def get(self, key: pa.RecordBatch) -> pa.RecordBatch | None:
        """The newest row of a key, given as a batch of one row of key columns."""
    def get_bytes(self, key: bytes) -> bytes | None:
        """The newest value of a key of a stream of bytes."""
    def scan(self) -> Reader:
        """The newest row of every key."""
    def trim(self, partition: int, offset: int) -> int:
        """Remove the rows of a partition before an offset, and return where it begins now."""
    def partition_id(self, partition: int) -> int:
        """The cluster's id of a partition of the stream."""
    def writer(self, name: str, *, partitions: Sequence[int] | None, timeout: float | None) -> Writer:
        """Claim partitions for this process, fencing whoever held them."""
    def task_writer(self, *, block_bytes: int | None = None, partition: int | None = None) -> TaskWriter:
        """Begin to write the rows of one task. Nothing of them can be read before they are committed."""
    def commit_batch(
        self,
        messages: Sequence[bytes],
        *,
        query: str | None = None,
        batch: int | None = None,
        node_id: int | None = None,
        epochs: Sequence[tuple[int, int, int]] | None = None,
        overwrite: bool = False,
        record_empty: bool = False,
        timeout: float | None = None,
    ) -> _Appended:
        """Commit what tasks wrote as one entry, all or nothing; told as by ``append``."""
    def compact(self, partition: int, keep_removed: float, *, block_bytes: int | None = None) -> dict[str, Any]:
        """Stage the newest row of each key of a partition of a ``kv`` stream, for ``commit_compacted``.

        Keys that were removed more than ``keep_removed`` seconds ago are left out.
        """
    def commit_compacted(
        self,
        partition: int,
        message: bytes,
        end: int,
        *,
        node_id: int | None = None,
        epochs: Sequence[tuple[int, int, int]] | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Append what ``compact`` staged, read up to ``end``. Rows whose key was written since are left out.

        ``committed`` is false if others wrote all the time; then nothing may be trimmed.
        """
    def begin_batch(
        self,
        writer: str,
        run: str,
        query: str,
        batch: int,
        *,
        adopt_query: bool = False,
        unbound: bool = False,
        host: str | None = None,
        pid: int | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Begin a batch: claim the whole stream for a run, or go on with it. Every task of the run may ask."""
    def check_run(
        self,
        node_id: int,
        epochs: Sequence[tuple[int, int, int]],
        *,
        query: str | None = None,
        batch: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Raise as a write would if a run has lost one of its partitions. ``epochs`` are those of ``begin_batch``."""
    def last_batch(self, query: str, timeout: float | None = None) -> int | None:
        """The last committed batch of a query on this stream."""
    def release_begun(self, run: str, timeout: float | None = None) -> None:
        """Give back what a run holds of this stream, by the id that it began its batches with."""
    def release_run(self, node_id: int, timeout: float | None = None) -> None:
        """Give back what a run holds."""

@final
class TaskWriter:
    """What one task writes: encoded as it comes, and staged while more comes."""

    def add(self, rows: Any) -> None:
        """Add Arrow data."""
    def finish(self) -> _Message:
        """Wait until everything is staged, and return the message for ``Stream.commit_batch``."""
    @property
    def rows(self) -> int:
        """How many rows were added."""
    @property
    def bytes(self) -> int:
        """Their bytes, before they were encoded."""

@final
class Reader:
    """Rows of a stream, batch by batch."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the batches."""
    def next(self) -> pa.RecordBatch | None:
        """The next batch; ``None`` at the end, and once it is closed, also by another thread meanwhile."""
    def close(self) -> None:
        """Let go of the node; reading is over, also for a thread that waits for rows."""

@final
class Writer:
    """The one writer of partitions. Import ``laminar.Writer``."""

    @property
    def name(self) -> str:
        """The writer's name."""
    @property
    def node_id(self) -> int:
        """The node id of this run."""
    @property
    def partitions(self) -> list[int]:
        """The partitions of the stream that were claimed."""
    @property
    def guards(self) -> WriterGuards:
        """The guards of the claimed partitions."""
    def append(self, rows: Any) -> _Appended:
        """Append Arrow data; told as by ``Stream.append``."""
    def append_bytes(self, partition: int | None, values: _Values) -> _Appended:
        """Append values, or pairs of key and value, as bytes; told as by ``Stream.append``."""
    def batch(self, query: str, number: int) -> WriterBatch:
        """Begin a batch that is committed as one entry, once."""
    def trim(self, partition: int, offset: int) -> int:
        """Remove the rows of a partition before an offset, and return where it begins now."""
    def close(self) -> None:
        """Give the partitions back. A second time does nothing."""

@final
class WriterBatch:
    """Rows that are committed as one entry, once."""

    def append(self, rows: Any) -> None:
        """Collect Arrow data; nothing is sent."""
    def append_bytes(self, partition: int | None, values: _Values) -> None:
        """Collect values, or pairs of key and value, as bytes; nothing is sent."""
    def commit(self) -> _Appended:
        """Commit; told as by ``Stream.append``. After an error whose outcome is unknown it may be called again."""

@final
class WriterGuards:
    """The guards of a writer, by the stream's partition numbers.

    Checks ask nobody. The node tells of every takeover as it happens; the storage refuses a stale writer also if it was
    not told.
    """

    def check(self, partition: int) -> None:
        """Raise unless this writer owns the partition, as far as this process has heard; asks nobody."""
    def check_many(self, partitions: Any) -> list[int]:
        """The partitions whose check fails, in the order given.

        One-dimensional NumPy and Arrow arrays of 32 or 64 bit integers are read in place.
        """
    @property
    def epochs(self) -> dict[int, int]:
        """The epoch under which each claimed partition is written."""
    @property
    def node_id(self) -> int:
        """The node id of this run of the writer."""
    @property
    def name(self) -> str:
        """The writer's name."""

def node_settings() -> list[str]:
    """The names of all settings of a node, as ``laminar.open`` takes them."""

def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The schema as a stream of it has it: dictionaries by value."""

def run_node(
    path: str | os.PathLike[str],
    *,
    machines: Mapping[str, Any],
    settings: dict[str, Any],
    linger: float | None,
    stop: Callable[[], bool],
) -> bool:
    """Be the node of a folder until no client has needed it for a while, or ``stop`` says so.

    ``stop`` is called some twenty times a second, from when the node answers. Returns ``False`` at once if another
    process is the node.
    """
