"""Partition assignment: which node should own which partition.

The classes here are plain values; the rules are Rust's. Each checks itself against those rules when it is made, so a
wrong value is reported where it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from laminar import _native
from laminar._native import AssignmentPlan, ConsistentHashAssigner, HashRing

if TYPE_CHECKING:
    from typing_extensions import Self

NodeState = Literal["joining", "active", "draining", "left", "failed"]


def _own_tuple(value: Any) -> Any:
    """A tuple of what can be iterated; anything else stays as it is, for the check to refuse."""
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, (str, bytes)) else value


def _own_dict(value: Any) -> Any:
    """A copy of a mapping, which its giver cannot change; anything else stays as it is."""
    return dict(value) if isinstance(value, Mapping) else value


def _keep(value: object, name: str, own: Callable[[Any], Any]) -> None:
    """Make a field of a frozen value its own."""
    object.__setattr__(value, name, own(getattr(value, name)))


@dataclass(frozen=True)
class NodeInfo:
    """A server as the assigner sees it.

    A node with no cores, or in any state but ``"active"``, is given no partitions. ``memory_bytes=0`` means not stated,
    and sets no limit.

    >>> NodeInfo(1, cores=8, failure_domain="az-1")
    NodeInfo(id=1, cores=8, memory_bytes=0, failure_domain='az-1', tags={}, state='active', address='')
    """

    id: int
    _: KW_ONLY
    cores: int = 1
    memory_bytes: int = 0
    failure_domain: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)
    state: NodeState = "active"
    address: str = ""

    def __post_init__(self) -> None:
        _keep(self, "tags", _own_dict)
        _native.check_node_info(self)


@dataclass(frozen=True)
class AntiAffinityGroup:
    """Partitions of which no two may be on the same node.

    >>> AntiAffinityGroup("orders", [0, 1, 2])
    AntiAffinityGroup(name='orders', partition_ids=(0, 1, 2))
    """

    name: str
    partition_ids: Sequence[int]

    def __post_init__(self) -> None:
        _keep(self, "partition_ids", _own_tuple)
        _native.check_anti_affinity_group(self)


@dataclass(frozen=True)
class AffinityHint:
    """Partitions that should be on the same node.

    ``strength`` goes from 0.0 (ignored) to 1.0 (must: a plan that cannot do it raises ``AffinityConflictError``). In
    between the stronger hint goes first, and a plan lists in its violations which hints it dropped, and why. A hint
    that is met may take a node out of its band, up to its cap; the violations then name the node.
    """

    name: str
    partition_ids: Sequence[int]
    strength: float = 0.5

    def __post_init__(self) -> None:
        _keep(self, "partition_ids", _own_tuple)
        _native.check_affinity_hint(self)


@dataclass(frozen=True, kw_only=True)
class AssignmentConstraints:
    """What a plan must respect.

    ``max_partitions_per_node`` is 1.5 times a node's share, rounded up, unless given. ``partition_memory_bytes`` is one
    size for all partitions or a map by partition; together they must fit ``max_memory_per_node`` and the memory of each
    node. ``node_weights`` (1.0 unless given) multiply a node's cores. Groups and hints may name partitions that are
    not part of a plan; those are ignored.
    """

    max_partitions_per_node: int | None = None
    min_failure_domains: int | None = None
    anti_affinity_groups: Sequence[AntiAffinityGroup] = ()
    affinity_hints: Sequence[AffinityHint] = ()
    max_memory_per_node: int | None = None
    node_weights: Mapping[int, float] = field(default_factory=dict, hash=False)
    partition_memory_bytes: int | Mapping[int, int] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        _keep(self, "anti_affinity_groups", _own_tuple)
        _keep(self, "affinity_hints", _own_tuple)
        _keep(self, "node_weights", _own_dict)
        _keep(self, "partition_memory_bytes", _own_dict)
        _native.check_constraints(self)


@dataclass(frozen=True)
class TopologyChange:
    """What a rebalance reacts to. Made by the four functions below.

    >>> TopologyChange.node_left(3)
    TopologyChange(kind='node_left', node=3)
    """

    kind: Literal["node_joined", "node_left", "node_updated", "manual_rebalance"]
    node: NodeInfo | int | None = None

    def __post_init__(self) -> None:
        _native.check_topology_change(self)

    @classmethod
    def node_joined(cls, node: NodeInfo) -> TopologyChange:
        """A node joined; it takes its share of the partitions."""
        return cls("node_joined", node)

    @classmethod
    def node_left(cls, node_id: int) -> TopologyChange:
        """A node left; its partitions are given to the others."""
        return cls("node_left", node_id)

    @classmethod
    def node_updated(cls, node: NodeInfo) -> TopologyChange:
        """A node's cores, memory, domain or state changed."""
        return cls("node_updated", node)

    @classmethod
    def manual_rebalance(cls) -> TopologyChange:
        """An operator asks for balance; soft hints are honoured with moves of their own."""
        return cls("manual_rebalance")


@dataclass(frozen=True)
class PartitionMove:
    """A partition that changes its owner, and the epoch that begins with it."""

    partition_id: int
    from_node: int
    to_node: int
    old_epoch: int
    new_epoch: int


class PartitionAssignment(tuple[int, int]):  # noqa: SLOT001 - a tuple cannot have slots of its own
    """Who owns a partition: the pair ``(node_id, epoch)``, which also knows its partition.

    >>> node, epoch = PartitionAssignment(7, node_id=2, epoch=5)
    >>> (node, epoch)
    (2, 5)
    """

    partition_id: int

    def __new__(cls, partition_id: int, node_id: int, epoch: int) -> Self:
        """Pairs node and epoch."""
        self = super().__new__(cls, (node_id, epoch))
        self.partition_id = partition_id
        return self

    @property
    def node_id(self) -> int:
        """The owner."""
        return self[0]

    @property
    def epoch(self) -> int:
        """The epoch of the ownership."""
        return self[1]

    def __repr__(self) -> str:
        return f"PartitionAssignment(partition_id={self.partition_id}, node_id={self.node_id}, epoch={self.epoch})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PartitionAssignment) and other.partition_id != self.partition_id:
            return False
        return tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    # A pair equals its plain tuple, so it must hash like it.
    __hash__ = tuple.__hash__

    def __getnewargs__(self) -> Any:
        return (self.partition_id, *self)


@dataclass(frozen=True)
class AssignmentStats:
    """A plan in numbers."""

    total_partitions: int
    partitions_moved: int
    distribution: Mapping[int, int] = field(hash=False)
    failure_domains_used: int
    constraints_satisfied: bool
    violations: Sequence[str] = field(default=(), hash=False)


__all__ = [
    "AffinityHint",
    "AntiAffinityGroup",
    "AssignmentConstraints",
    "AssignmentPlan",
    "AssignmentStats",
    "ConsistentHashAssigner",
    "HashRing",
    "NodeInfo",
    "PartitionAssignment",
    "PartitionMove",
    "TopologyChange",
]
