"""The errors of laminar.

Every error answers "what do I do now?" by its ``kind``, and says by ``retryable`` whether the same call may succeed
later without anything being changed. The classes live here and are raised from Rust, so they pickle across Spark's
processes and can be caught like any Python exception.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

Kind = Literal["stale", "fenced", "overloaded", "unavailable", "invalid", "corrupt", "internal"]


class LaminarError(Exception):
    """Whatever laminar refuses or fails to do.

    The typed fields of a class are given by name and are ``None`` where the place that raised did not know them.
    ``outcome_unknown`` is true where the call may have taken effect all the same.
    """

    kind: ClassVar[Kind] = "internal"
    retryable: ClassVar[bool] = False
    _fields: ClassVar[tuple[str, ...]] = ()

    outcome_unknown: bool

    def __init__(self, message: str = "", *, outcome_unknown: bool = False, **fields: Any) -> None:
        super().__init__(message)
        self.outcome_unknown = outcome_unknown
        unknown = sorted(set(fields) - set(self._fields))
        if unknown:
            raise TypeError(
                f"{type(self).__name__} has no field {unknown[0]!r}; it has {', '.join(self._fields) or 'none'}"
            )
        for name in self._fields:
            setattr(self, name, fields.get(name))

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {name: getattr(self, name) for name in self._fields}
        if self.outcome_unknown:
            fields["outcome_unknown"] = True
        return (_rebuild, (type(self), str(self), fields))


def _rebuild(error: type[LaminarError], message: str, fields: dict[str, Any]) -> LaminarError:
    return error(message, **fields)


def _from_node(name: str, message: str, outcome_unknown: bool, fields: dict[str, Any]) -> LaminarError:  # noqa: FBT001
    """The error that a node or client answered with. A newer node may tell fields that this release does not know."""
    error: type[LaminarError] = globals()[name]
    known = {field: value for field, value in fields.items() if field in error._fields}
    return error(message, outcome_unknown=outcome_unknown, **known)


class EpochError(LaminarError):
    """Ownership of a partition moved on: refresh the guard, or drop the task if another node owns the partition."""

    kind: ClassVar[Kind] = "stale"
    _fields: ClassVar[tuple[str, ...]] = ("partition", "stream", "partition_id")

    #: The partition: of the stream if one is named, else of the cluster.
    partition: int | None
    stream: str | None
    partition_id: int | None


class StaleEpochError(EpochError):
    """The epoch of this writer is over; a later owner has begun another."""

    _fields: ClassVar[tuple[str, ...]] = (
        *EpochError._fields,
        "epoch",
        "current_epoch",
        "node",
        "owner",
        "writer",
        "since_ms",
        "batch_committed",
    )

    epoch: int | None
    current_epoch: int | None
    node: int | None
    owner: int | None
    #: The name of the writer that has the partition now.
    writer: str | None
    #: Since when, in milliseconds since 1970.
    since_ms: int | None
    batch_committed: bool | None


class UnknownPartitionError(EpochError):
    """There is no such partition: it was dropped, or never created."""


class NotOwnedError(EpochError):
    """This node does not own the partition."""

    _fields: ClassVar[tuple[str, ...]] = (
        *EpochError._fields,
        "epoch",
        "current_epoch",
        "node",
        "owner",
        "writer",
        "since_ms",
    )

    epoch: int | None
    current_epoch: int | None
    node: int | None
    owner: int | None
    #: The name of the writer that has the partition.
    writer: str | None
    #: Since when, in milliseconds since 1970.
    since_ms: int | None


class ConditionalPutFailedError(EpochError):
    """The object store has a manifest of a later epoch; the new owner writes its own checkpoint."""

    _fields: ClassVar[tuple[str, ...]] = (*EpochError._fields, "expected_epoch", "actual_epoch")

    expected_epoch: int | None
    actual_epoch: int | None


class CoordinationError(LaminarError):
    """The metadata group could not answer."""

    kind: ClassVar[Kind] = "unavailable"
    retryable: ClassVar[bool] = True


class RaftError(CoordinationError):
    """Consensus failed; whether the change was made may be unknown, and the message says so."""


class NotLeaderError(CoordinationError):
    """The node asked is not the leader."""

    _fields: ClassVar[tuple[str, ...]] = ("leader_id", "leader_address")

    leader_id: int | None
    leader_address: str | None


class NotInitializedError(CoordinationError):
    """The group has not been formed yet."""


class SnapshotError(CoordinationError):
    """A snapshot could not be built or installed; the one before it is kept."""


class NetworkError(CoordinationError):
    """A peer could not be reached."""

    _fields: ClassVar[tuple[str, ...]] = ("pid", "address")

    pid: int | None
    address: str | None


class AssignmentError(LaminarError):
    """No plan can be made, or a plan breaks a constraint."""

    kind: ClassVar[Kind] = "invalid"


class NoActiveNodesError(AssignmentError):
    """No node is active and has capacity."""

    kind: ClassVar[Kind] = "unavailable"
    retryable: ClassVar[bool] = True
    _fields: ClassVar[tuple[str, ...]] = ("nodes",)

    nodes: int | None


class InsufficientCapacityError(AssignmentError):
    """The partitions need more memory than the nodes have."""

    kind: ClassVar[Kind] = "overloaded"
    _fields: ClassVar[tuple[str, ...]] = ("needed_bytes", "available_bytes", "node", "partition")

    node: int | None
    partition: int | None
    needed_bytes: int | None
    available_bytes: int | None


class ConstraintViolationError(AssignmentError):
    """A hard constraint cannot be met, or a plan does not meet it."""

    _fields: ClassVar[tuple[str, ...]] = ("constraint",)

    constraint: str | None


class MaxPartitionsExceededError(AssignmentError):
    """There are more partitions than the nodes may hold together."""

    kind: ClassVar[Kind] = "overloaded"
    _fields: ClassVar[tuple[str, ...]] = ("partitions", "limit", "node")

    partitions: int | None
    limit: int | None
    node: int | None


class AffinityConflictError(AssignmentError):
    """A hint of strength 1.0 contradicts another hard constraint."""

    _fields: ClassVar[tuple[str, ...]] = ("hint",)

    hint: str | None


class EmptyPartitionListError(AssignmentError):
    """There is nothing to validate."""


class BackpressureError(LaminarError):
    """A limit of laminar was reached: wait, or raise the limit that is named."""

    kind: ClassVar[Kind] = "overloaded"
    retryable: ClassVar[bool] = True
    _fields: ClassVar[tuple[str, ...]] = (
        "partition",
        "limit",
        "value",
        "retry_after_ms",
        "stream",
        "partition_id",
    )

    partition: int | None
    stream: str | None
    partition_id: int | None
    limit: int | None
    value: int | None
    retry_after_ms: int | None


class LeaseError(LaminarError):
    """The lease of this holder does not allow the write."""

    kind: ClassVar[Kind] = "fenced"
    _fields: ClassVar[tuple[str, ...]] = ("domain", "epoch")

    domain: str | None
    epoch: int | None


class LeaseFencedError(LeaseError):
    """The lease was fenced for good; a new one starts at a later epoch."""


class LeaseSupersededError(LeaseError):
    """A later lease of the same domain exists."""


class InvalidFenceSignatureError(LeaseError):
    """The certificate's signature does not verify."""


class UnauthorizedFenceError(LeaseError):
    """The certificate was signed by nodes that may not fence this domain."""


class FenceBeforeLeaseError(LeaseError):
    """The certificate is older than the lease it would end."""


class FenceSupersededError(LeaseError):
    """A later fence of the same domain exists."""


class CorruptionError(LaminarError):
    """Stored bytes are not what was written: repair from a replica; a retry reads the same bytes."""

    kind: ClassVar[Kind] = "corrupt"
    _fields: ClassVar[tuple[str, ...]] = ("stream", "partition", "partition_id")

    stream: str | None
    partition: int | None
    partition_id: int | None


class UnavailableError(LaminarError):
    """No quorum, store or peer answered; ``outcome_unknown`` says whether the write may have landed."""

    kind: ClassVar[Kind] = "unavailable"
    retryable: ClassVar[bool] = True
    _fields: ClassVar[tuple[str, ...]] = ("pid", "address", "waited_ms", "stream", "partition", "partition_id")

    #: The process of the node that did not answer.
    pid: int | None
    address: str | None
    waited_ms: int | None
    stream: str | None
    partition: int | None
    partition_id: int | None


class InvalidError(LaminarError, ValueError):
    """A wrong argument or configuration."""

    kind: ClassVar[Kind] = "invalid"
    _fields: ClassVar[tuple[str, ...]] = (
        "stream",
        "partition",
        "partition_id",
        "column",
        "row",
        "value",
        "limit",
        "writer",
        "query",
        "bound_query",
        "stream_changed",
    )

    stream: str | None
    partition: int | None
    partition_id: int | None
    column: str | None
    #: The row of those given, from 0.
    row: int | None
    value: int | None
    limit: int | None
    #: The name of a writer, the query that came with it, and the query that it belongs to.
    writer: str | None
    query: str | None
    bound_query: str | None
    #: The stream got more partitions since rows were placed: place them again.
    stream_changed: bool | None


class InternalError(LaminarError):
    """A bug of laminar; please report it."""

    kind: ClassVar[Kind] = "internal"


__all__ = [
    "AffinityConflictError",
    "AssignmentError",
    "BackpressureError",
    "ConditionalPutFailedError",
    "ConstraintViolationError",
    "CoordinationError",
    "CorruptionError",
    "EmptyPartitionListError",
    "EpochError",
    "FenceBeforeLeaseError",
    "FenceSupersededError",
    "InsufficientCapacityError",
    "InternalError",
    "InvalidError",
    "InvalidFenceSignatureError",
    "LaminarError",
    "LeaseError",
    "LeaseFencedError",
    "LeaseSupersededError",
    "MaxPartitionsExceededError",
    "NetworkError",
    "NoActiveNodesError",
    "NotInitializedError",
    "NotLeaderError",
    "NotOwnedError",
    "RaftError",
    "SnapshotError",
    "StaleEpochError",
    "UnauthorizedFenceError",
    "UnavailableError",
    "UnknownPartitionError",
]
