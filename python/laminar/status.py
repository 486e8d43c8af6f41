"""What a node tells about itself and its partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _time(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)


@dataclass(frozen=True, kw_only=True)
class NodeIdentity:
    """Who the node is."""

    version: str
    pid: int
    node_id: int
    #: Grows whenever a process becomes the node of the folder.
    folder_epoch: int
    cluster_id: str
    #: Where the node answers ``GET /metrics`` and ``GET /health``; empty if it does not.
    metrics_address: str = ""


@dataclass(frozen=True, kw_only=True)
class GroupStatus:
    """A Raft group as its replica on the node sees it."""

    phase: str
    leader: int
    term: int
    last_index: int
    durable_index: int
    committed_index: int
    applied_index: int
    snapshot_index: int
    purged_index: int
    recovered: bool
    #: How often its storage failed and it was started again.
    rebuilds: int
    last_fault: str
    snapshot_fault: str


@dataclass(frozen=True, kw_only=True)
class NodeStatus:
    """A server, or a run of a writer."""

    node_id: int
    role: str
    state: str
    address: str
    writer: str
    stream: str
    host: str
    pid: int
    #: How many partitions it owns.
    partitions: int
    silent_ms: int
    registered_at: datetime

    @classmethod
    def _of(cls, told: Mapping[str, Any]) -> NodeStatus:
        rest = dict(told)
        return cls(registered_at=_time(rest.pop("registered_at_ms")), **rest)


@dataclass(frozen=True, kw_only=True)
class PartitionStatus:
    """A partition on the node."""

    stream: str
    partition: int
    partition_id: int
    owner: int
    epoch: int
    #: The name of the writer that holds it; empty if none does.
    writer: str
    start_offset: int
    next_offset: int
    applied_index: int
    #: Records that wait to be applied.
    queued: int
    #: Why nothing is applied; empty if it is.
    paused: str
    #: The record that it stands at, as ``Cluster.skip`` takes it.
    paused_at: int
    repairing: bool
    machine: str
    #: open, throttled, closed or frozen
    admission: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class ClusterStatus:
    """What the node does."""

    node: NodeIdentity
    started_at: datetime
    metadata_group: GroupStatus
    data_group: GroupStatus
    streams: int
    partition_count: int
    nodes: Sequence[NodeStatus] = field(hash=False)
    partitions: Sequence[PartitionStatus] = field(hash=False)
    #: What happened to partitions lately, oldest first.
    events: Sequence[str] = field(hash=False)
    resident_bytes: int

    @property
    def paused(self) -> list[PartitionStatus]:
        """The partitions that apply nothing."""
        return [partition for partition in self.partitions if partition.paused]

    @classmethod
    def _of(cls, told: Mapping[str, Any]) -> ClusterStatus:
        return cls(
            node=NodeIdentity(**told["node"]),
            started_at=_time(told["started_at_ms"]),
            metadata_group=GroupStatus(**told["metadata_group"]),
            data_group=GroupStatus(**told["data_group"]),
            streams=told["streams"],
            partition_count=told["partition_count"],
            nodes=[NodeStatus._of(node) for node in told["nodes"]],
            partitions=[PartitionStatus(**partition) for partition in told["partitions"]],
            events=list(told["events"]),
            resident_bytes=told["resident_bytes"],
        )


@dataclass(frozen=True, kw_only=True)
class OwnershipStep:
    """A change of a partition's owner."""

    epoch: int
    owner: int
    previous_owner: int
    cause: str
    time: datetime
    metadata_index: int
    writer: str
    previous_writer: str

    @classmethod
    def _of(cls, told: Mapping[str, Any]) -> OwnershipStep:
        rest = dict(told)
        return cls(time=_time(rest.pop("time_ms")), **rest)

    def __str__(self) -> str:
        line = f"{_clock(self.time)}  epoch {self.epoch}  {self.cause} by {_name(self.owner, self.writer)}"
        if self.previous_owner and self.previous_owner != self.owner:
            line += f", before {_name(self.previous_owner, self.previous_writer)}"
        return line


@dataclass(frozen=True, kw_only=True)
class RefusedWrite:
    """A write that was refused."""

    time: datetime
    owner: int
    epoch: int
    writer: str
    reason: str
    rows: int

    @classmethod
    def _of(cls, told: Mapping[str, Any]) -> RefusedWrite:
        rest = dict(told)
        return cls(time=_time(rest.pop("time_ms")), **rest)

    def __str__(self) -> str:
        who = _name(self.owner, self.writer) if self.owner else "a managed append"
        return f"{_clock(self.time)}  refused {self.rows} rows of {who} at epoch {self.epoch}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class PartitionStory:
    """Who owned a partition when, at which epoch, who fenced whom, and which writes were refused."""

    stream: str
    partition: int
    partition_id: int
    owner: int
    epoch: int
    writer: str
    steps: Sequence[OwnershipStep] = field(hash=False)
    #: How many writes were refused since ``refused_since``.
    refused: int
    refused_since: datetime
    #: The last few of them, oldest first.
    last_refused: Sequence[RefusedWrite] = field(hash=False)

    @classmethod
    def _of(cls, stream: str, told: Mapping[str, Any]) -> PartitionStory:
        return cls(
            stream=stream,
            partition=told["partition"],
            partition_id=told["partition_id"],
            owner=told["owner"],
            epoch=told["epoch"],
            writer=told["writer"],
            steps=[OwnershipStep._of(step) for step in told["steps"]],
            refused=told["refused"],
            refused_since=_time(told["refused_since_ms"]),
            last_refused=[RefusedWrite._of(refused) for refused in told["last_refused"]],
        )

    def __str__(self) -> str:
        head = f"partition {self.partition} of {self.stream}: epoch {self.epoch}, {_name(self.owner, self.writer)}"
        lines = [head, *(f"  {step}" for step in self.steps)]
        if self.refused:
            lines.append(f"  {self.refused} writes refused since {_clock(self.refused_since)}, the last:")
            lines.extend(f"  {refused}" for refused in self.last_refused)
        return "\n".join(lines)


def _clock(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}.{time.microsecond // 1000:03d}Z"


def _name(node: int, writer: str) -> str:
    if writer:
        return f"writer {writer} (node {node})"
    return f"node {node}" if node else "nobody"


__all__ = [
    "ClusterStatus",
    "GroupStatus",
    "NodeIdentity",
    "NodeStatus",
    "OwnershipStep",
    "PartitionStatus",
    "PartitionStory",
    "RefusedWrite",
]
