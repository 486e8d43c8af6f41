"""No argument can panic, and each wrong one is told with its value and the limit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from support import nodes_of

import laminar as typed

# What follows is wrong on purpose, also in the eyes of the type checker.
laminar: Any = typed
ASSIGNER: Any = laminar.ConsistentHashAssigner()
AffinityHint: Any = laminar.AffinityHint
AntiAffinityGroup: Any = laminar.AntiAffinityGroup
AssignmentConstraints: Any = laminar.AssignmentConstraints
MetadataLogEntry: Any = laminar.MetadataLogEntry
NodeInfo: Any = laminar.NodeInfo
TopologyChange: Any = laminar.TopologyChange
U32, U64 = 2**32 - 1, 2**64 - 1


class _Items:
    """A mapping by name only."""

    def __init__(self, items: Any) -> None:
        self._given = items

    def items(self) -> Any:
        return self._given


CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "negative partition": (
        lambda: laminar.PartitionGuard(-1, 1, 1),
        f"partition id is -1; it must be a whole number from 0 to {U32}",
    ),
    "huge partition": (lambda: laminar.PartitionGuard(2**32, 1, 1), f"partition id is {2**32}; .* to {U32}"),
    "partition of text": (lambda: laminar.PartitionGuard("3", 1, 1), "partition id is '3'"),
    "partition of nothing": (lambda: laminar.PartitionGuardSet(1).check(None), "partition id is None"),
    "fractional partition": (lambda: laminar.PartitionGuardSet(1).check(1.5), "partition id is 1.5"),
    "absurd partition": (lambda: laminar.PartitionGuardSet(1).check(10**400), r"partition id is 10+…; it must be"),
    "epoch zero": (lambda: laminar.PartitionGuard(3, 0, 1), f"epoch is 0; it must be a whole number from 1 to {U64}"),
    "negative epoch": (lambda: laminar.PartitionGuard(3, -1, 1), "epoch is -1"),
    "huge epoch": (lambda: laminar.PartitionGuard(3, 2**64, 1), f"epoch is {2**64}"),
    "guard of nobody": (lambda: laminar.PartitionGuard(3, 1, 0), "node id is 0; it must be a whole number from 1"),
    "set of nobody": (lambda: laminar.PartitionGuardSet(0), "node id is 0"),
    "node zero": (lambda: NodeInfo(0), "node id is 0"),
    "negative cores": (lambda: NodeInfo(1, cores=-1), f"cores is -1; it must be a whole number from 0 to {U32}"),
    "huge memory": (lambda: NodeInfo(1, memory_bytes=2**64), "memory_bytes is"),
    "unknown state": (lambda: NodeInfo(1, state="gone"), 'node state is "gone"; it must be joining, active'),
    "tags of numbers": (lambda: NodeInfo(1, tags={"a": 1}), "tag value is 1; it must be a string"),
    "tags of a list": (lambda: NodeInfo(1, tags=[]), r"tags is \[\]; it must be a mapping"),
    "domain of a number": (lambda: NodeInfo(1, failure_domain=3), "failure_domain is 3; it must be a string"),
    "weight of nan": (
        lambda: AssignmentConstraints(node_weights={1: math.nan}),
        "node 1: weight is NaN; it must be from 0 to 1000000",
    ),
    "negative weight": (lambda: AssignmentConstraints(node_weights={1: -0.5}), "node 1: weight is -0.5"),
    "infinite weight": (lambda: AssignmentConstraints(node_weights={1: math.inf}), "node 1: weight is inf"),
    "weight of text": (lambda: AssignmentConstraints(node_weights={1: "2"}), "node weight is '2'; it must be a number"),
    "weight of nobody": (lambda: AssignmentConstraints(node_weights={0: 1.0}), "node id is 0"),
    "strength above one": (
        lambda: AffinityHint("h", [1], strength=1.5),
        'affinity hint "h": strength is 1.5; it must be from 0',
    ),
    "strength below zero": (lambda: AffinityHint("h", [1], strength=-0.1), "strength is -0.1"),
    "strength of nan": (lambda: AffinityHint("h", [1], strength=math.nan), "strength is NaN"),
    "group of text": (lambda: AntiAffinityGroup("g", "12"), "partition_ids is '12'; it must be a list"),
    "group without a name": (lambda: AntiAffinityGroup(None, [1]), "name of the anti-affinity group is None"),
    "groups that are none": (
        lambda: AssignmentConstraints(anti_affinity_groups=[3]),
        "3 is not one of class AntiAffinityGroup",
    ),
    "cap of zero": (
        lambda: AssignmentConstraints(max_partitions_per_node=0),
        "max_partitions_per_node is 0; .* from 1",
    ),
    "negative domains": (lambda: AssignmentConstraints(min_failure_domains=-1), "min_failure_domains is -1"),
    "negative memory": (lambda: AssignmentConstraints(max_memory_per_node=-1), "max_memory_per_node is -1"),
    "memory of text": (lambda: AssignmentConstraints(partition_memory_bytes="1"), "partition_memory_bytes is '1'"),
    "duplicate node": (lambda: ASSIGNER.initial_assignment([1], [NodeInfo(1), NodeInfo(1)]), "node 1 is given twice"),
    "duplicate partition": (lambda: ASSIGNER.initial_assignment([1, 1], nodes_of(1)), "partition 1 is given twice"),
    "no virtual nodes": (
        lambda: laminar.ConsistentHashAssigner(virtual_nodes_per_core=0),
        "virtual_nodes_per_core is 0; it must be from 1 to 10000",
    ),
    "nodes of numbers": (lambda: ASSIGNER.initial_assignment([1], [1]), "1 is not one of class NodeInfo"),
    "nodes of nothing": (lambda: ASSIGNER.initial_assignment([1], None), "nodes is None; it must be a list"),
    "constraints of a dict": (
        lambda: ASSIGNER.initial_assignment([1], nodes_of(1), {}),
        "{} is not one of class AssignmentConstraints",
    ),
    "current of a list": (
        lambda: ASSIGNER.rebalance([], nodes_of(1), TopologyChange.manual_rebalance()),
        "current is .*; it must be a mapping",
    ),
    "owner of one number": (
        lambda: ASSIGNER.rebalance({1: 2}, nodes_of(1), TopologyChange.manual_rebalance()),
        r"owner is 2; it must be a pair \(node, epoch\)",
    ),
    "change of text": (
        lambda: ASSIGNER.rebalance({}, nodes_of(1), "leave"),
        "'leave' is not one of class TopologyChange",
    ),
    "unknown change": (lambda: TopologyChange("exploded"), 'kind of change is "exploded"'),
    "rebalance of a node": (lambda: TopologyChange("manual_rebalance", 5), "a manual rebalance names no node"),
    "request of lone surrogates": (
        lambda: MetadataLogEntry.deregister_node(node_id=1, request_id="\ud800"),
        "request_id is .*; it must be a string",
    ),
    "pairs that are none": (lambda: NodeInfo(1, tags=_Items([1])), "tags is .*; it must be a mapping"),
    "nobody left": (lambda: TopologyChange.node_left(0), "node id is 0"),
    "last epoch": (
        lambda: ASSIGNER.rebalance({1: (0, U64)}, nodes_of(1), TopologyChange.manual_rebalance()),
        "the last there is",
    ),
    "negative hash": (
        lambda: laminar.HashRing([]).lookup(-1),
        f"hash is -1; it must be a whole number from 0 to {U64}",
    ),
    "time of text": (lambda: MetadataLogEntry.deregister_node(node_id=1, time_ms="now"), "time_ms is 'now'"),
    "request of a float": (lambda: MetadataLogEntry.deregister_node(node_id=1, request_id=1.5), "request_id is 1.5"),
    "huge request": (lambda: MetadataLogEntry.deregister_node(node_id=1, request_id=2**128), "request_id is"),
    "negative request": (lambda: MetadataLogEntry.deregister_node(node_id=1, request_id=-1), "request_id is -1"),
    "unknown role": (lambda: MetadataLogEntry.register_node(role="boss"), 'node role is "boss"'),
    "unknown machine": (lambda: MetadataLogEntry.create_stream(path="/a", partitions=1, machine="SQL"), "machine"),
    "schema of a number": (
        lambda: MetadataLogEntry.create_stream(path="/a", partitions=1, schema=3),
        "schema is 3; it must be bytes",
    ),
    "snapshot of text": (lambda: laminar.DeltaMetadata.restore("x"), "snapshot is 'x'; it must be bytes"),
    "plan of bytes": (lambda: laminar.AssignmentPlan.from_json(b"x"), "plan is b'x'; it must be a string"),
}


@pytest.mark.parametrize(("call", "message"), CASES.values(), ids=CASES.keys())
def test_wrong_argument_is_an_invalid_error_with_value_and_limit(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(laminar.InvalidError, match=message) as refused:
        call()
    assert issubclass(refused.type, ValueError)
    assert refused.value.kind == "invalid"


@pytest.mark.parametrize(
    ("path", "partitions"),
    [
        ("orders", 1),
        ("/", 1),
        ("/a//b", 1),
        ("/a/", 1),
        ("/a/../b", 1),
        ("/a b", 1),
        ("/" + "a" * 600, 1),
        ("/a", 0),
        ("/a", 10**6),
    ],
)
def test_stream_that_cannot_be_is_rejected(path: str, partitions: int) -> None:
    answer = laminar.DeltaMetadata().apply(MetadataLogEntry.create_stream(path=path, partitions=partitions))
    assert answer.reason == "invalid"


def test_group_larger_than_the_cluster_names_both_numbers() -> None:
    constraints = AssignmentConstraints(anti_affinity_groups=[AntiAffinityGroup("g", range(5))])
    with pytest.raises(
        laminar.ConstraintViolationError, match="5 partitions must be on different nodes and 3 nodes are active"
    ):
        ASSIGNER.initial_assignment(range(5), nodes_of(3), constraints)


def test_extreme_clusters_do_not_break_the_assigner() -> None:
    huge = [NodeInfo(2**64 - 1, cores=2**32 - 1), NodeInfo(1, cores=1)]
    assert ASSIGNER.initial_assignment([0, 2**32 - 1], huge).stats.distribution[2**64 - 1] == 2
    weighted = AssignmentConstraints(node_weights={1: 1e6, 2: 1e-6})
    assert ASSIGNER.initial_assignment(range(10), nodes_of(2), weighted).stats.distribution == {1: 10, 2: 0}


class _Interrupted:
    def __index__(self) -> int:
        raise KeyboardInterrupt

    def __iter__(self) -> Any:
        raise KeyboardInterrupt


def test_interrupt_in_an_argument_stays_an_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt):
        laminar.PartitionGuardSet(_Interrupted())
    with pytest.raises(KeyboardInterrupt):
        laminar.PartitionGuardSet(1).check_many(_Interrupted())


def test_values_own_what_they_were_given() -> None:
    weights: Any = {1: 1.0}
    tags: Any = {"a": "b"}
    constraints = AssignmentConstraints(
        node_weights=weights,
        anti_affinity_groups=(AntiAffinityGroup(name, (i for i in range(2))) for name in "ab"),
        affinity_hints=(AffinityHint(name, iter([3, 4])) for name in "c"),
    )
    node = NodeInfo(1, tags=tags)
    weights[1] = math.nan
    tags["a"] = None
    assert constraints.node_weights == {1: 1.0}
    assert [group.partition_ids for group in constraints.anti_affinity_groups] == [(0, 1), (0, 1)]
    assert [hint.partition_ids for hint in constraints.affinity_hints] == [(3, 4)]
    assert node.tags == {"a": "b"}


def test_arrow_array_that_was_taken_before_is_refused() -> None:
    taken = pa.array([1, 2]).__arrow_c_array__()

    class Giver:
        def __arrow_c_array__(self, requested_schema: object = None) -> Any:
            return taken

    class Liar:
        def __arrow_c_array__(self, requested_schema: object = None) -> Any:
            return (1, 2)

    guards = laminar.PartitionGuardSet(1)
    assert guards.check_many(Giver()) == [1, 2]
    for giver in (Giver(), Liar()):
        with pytest.raises(laminar.InvalidError, match="cannot be read as an Arrow array"):
            guards.check_many(giver)
