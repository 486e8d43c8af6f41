"""Random sequences against models that state the rules in the plainest way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
from hypothesis import given
from support import assign, guards_of, metadata_of, nodes_of

import laminar
from laminar import MetadataLogEntry as Entry
from laminar import NodeInfo, TopologyChange

ASSIGNER: Any = laminar.ConsistentHashAssigner()

partitions = st.integers(0, 5)
nodes = st.integers(1, 3)
epochs = st.integers(1, 5)


@given(st.lists(st.tuples(st.dictionaries(partitions, st.tuples(nodes, epochs)), st.booleans()), max_size=8))
def test_guards_follow_the_model(views: list[tuple[dict[int, tuple[int, int]], bool]]) -> None:
    """EPOCH-3: what ended a guard once ends it for good, whichever replica answers next."""
    guards = guards_of(1, dict.fromkeys(range(6), 3))
    ended: set[int] = set()
    for view, validates in views:
        metadata = metadata_of(view)
        for partition in range(6):
            node, epoch = view.get(partition, (0, 2**64))
            if epoch > 3 or (epoch == 3 and node != 1):
                ended.add(partition)
        if validates:
            unconfirmed = ended | {p for p in range(6) if view.get(p) != (1, 3)}
            assert {partition for partition, _ in guards.validate_all(metadata)} == unconfirmed
        else:
            assert set(guards.refresh_all(metadata)) == ended
        assert set(guards.check_many(range(6))) == ended


changes = st.one_of(
    st.builds(
        lambda p, n, e, x, r: Entry.assign_partition(partition_id=p, node_id=n, epoch=e, expected=x, request_id=r),
        partitions,
        st.integers(0, 3),
        epochs,
        st.none() | st.tuples(st.integers(0, 3), epochs),
        st.none() | st.integers(1, 20),
    ),
    st.builds(
        lambda p, n, e, x: Entry.acquire_partition(partition_id=p, node_id=n, epoch=e, expected=x),
        partitions,
        nodes,
        epochs,
        st.tuples(st.integers(0, 3), epochs),
    ),
    st.builds(lambda n: Entry.deregister_node(node_id=n), nodes),
    st.builds(lambda n: Entry.create_stream(path=f"/s{n}", partitions=n), st.integers(1, 3)),
    st.builds(lambda n: Entry.drop_stream(path=f"/s{n}"), st.integers(1, 3)),
)


@given(st.lists(changes | st.lists(changes, max_size=4).map(Entry.batch), max_size=30))
def test_metadata_keeps_its_promises(entries: list[Entry]) -> None:
    """EPOCH-1, OWN-1 and OWN-2 over any sequence, and two replicas with the same bytes."""
    one, other = laminar.DeltaMetadata(), laminar.DeltaMetadata()
    highest: dict[int, int] = {}
    for entry in entries:
        before = one.snapshot(), one.ownership()
        answer = one.apply(entry)
        assert other.apply(Entry.decode(entry.encode())) == answer
        owners = one.ownership()
        if not answer.applied:
            assert owners == before[1]
        for partition, (_, epoch) in owners.items():
            assert epoch >= highest.get(partition, 1)
            highest[partition] = epoch
            if partition in before[1] and before[1][partition] != owners[partition]:
                assert epoch == before[1][partition][1] + 1
    assert one.snapshot() == other.snapshot()
    assert laminar.DeltaMetadata.restore(one.snapshot()) == one


@given(
    count=st.integers(1, 60),
    sizes=st.lists(st.integers(0, 16), min_size=1, max_size=6),
    joins=st.integers(1, 16),
)
def test_plans_stay_in_their_bands_and_move_no_more_than_they_must(count: int, sizes: list[int], joins: int) -> None:
    cluster = [NodeInfo(number, cores=cores) for number, cores in enumerate([*sizes, 1], start=1)]
    before = ASSIGNER.initial_assignment(range(count), cluster)
    joined = NodeInfo(99, cores=joins)
    plan = ASSIGNER.rebalance(before.assignments, cluster, TopologyChange.node_joined(joined))
    ASSIGNER.validate_plan(plan, [*cluster, joined])
    bands = ASSIGNER.bands(count, [*cluster, joined])
    held = before.stats.distribution
    surplus = sum(max(0, held.get(node, 0) - high) for node, (_, _, high, _) in bands.items())
    deficit = sum(max(0, low - held.get(node, 0)) for node, (_, low, _, _) in bands.items())
    assert len(plan.moves) == max(surplus, deficit)
    for node, (_, low, high, _) in bands.items():
        assert low <= plan.stats.distribution[node] <= high


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.lists(st.integers(), max_size=3),
)


@given(st.lists(anything, min_size=3, max_size=3))
def test_no_argument_breaks_anything_but_itself(values: list[Any]) -> None:
    a, b, c = values
    calls: list[Callable[[], Any]] = [
        lambda: laminar.PartitionGuard(a, b, c),
        lambda: laminar.PartitionGuardSet(a).check(b),
        lambda: guards_of(1, {1: 1}).check_many(a),
        lambda: NodeInfo(a, cores=b, failure_domain=c),
        lambda: laminar.AffinityHint(a, b, c),
        lambda: laminar.AssignmentConstraints(node_weights=dict.fromkeys([1], b), max_partitions_per_node=c),
        lambda: laminar.AssignmentConstraints(node_weights=a, partition_memory_bytes=b),
        lambda: ASSIGNER.initial_assignment(a, nodes_of(2), b),
        lambda: ASSIGNER.rebalance(a, nodes_of(2), b, c),
        lambda: Entry.assign_partition(partition_id=a, node_id=b, epoch=c),
        lambda: Entry.create_stream(path=a, partitions=b, schema=c),
        lambda: Entry.release_partition(partition_id=a, expected=(b, c)),
        lambda: laminar.DeltaMetadata.restore(a),
        lambda: Entry.decode(a),
        lambda: laminar.MetadataResponse.decode(a),
        lambda: laminar.AssignmentPlan.from_json(a),
    ]
    for call in calls:
        try:
            call()
        except laminar.LaminarError as error:
            if error.kind == "internal":
                raise
    assert assign(laminar.DeltaMetadata(), 1, 1, 1).applied
