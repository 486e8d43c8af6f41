from __future__ import annotations

import json
from collections import Counter

import pytest
from support import nodes_of

import laminar
from laminar import AffinityHint, AntiAffinityGroup, AssignmentConstraints, NodeInfo, TopologyChange

ASSIGNER = laminar.ConsistentHashAssigner()


def test_every_partition_gets_an_owner_and_every_node_its_share() -> None:
    plan = ASSIGNER.initial_assignment(range(1_000), nodes_of(10))
    assert sorted(plan.assignments) == list(range(1_000))
    assert set(plan.stats.distribution.values()) == {100}
    assert {epoch for _, epoch in plan.assignments.values()} == {1}
    assert plan.moves == []
    ASSIGNER.validate_plan(plan, nodes_of(10))


def test_plan_does_not_depend_on_the_order_of_its_input() -> None:
    forwards = ASSIGNER.initial_assignment(range(100), nodes_of(5))
    backwards = ASSIGNER.initial_assignment(reversed(range(100)), nodes_of(5)[::-1])
    assert forwards == backwards
    assert hash(forwards) == hash(backwards)


def test_join_takes_the_fewest_moves_the_band_allows() -> None:
    before = ASSIGNER.initial_assignment(range(1_000), nodes_of(10))
    plan = ASSIGNER.rebalance(before.assignments, nodes_of(10), TopologyChange.node_joined(NodeInfo(11, cores=8)))
    _, low, _, _ = ASSIGNER.bands(1_000, nodes_of(11))[11]
    assert len(plan.moves) == low == plan.stats.partitions_moved
    assert {move.to_node for move in plan.moves} == {11}
    for move in plan.moves:
        assert (move.old_epoch, move.new_epoch) == (1, 2)
        assert plan.assignments[move.partition_id] == (11, 2)


def test_leave_moves_what_the_node_had_and_nothing_else() -> None:
    before = ASSIGNER.initial_assignment(range(1_000), nodes_of(10))
    plan = ASSIGNER.rebalance(before.assignments, nodes_of(10), TopologyChange.node_left(4))
    had = {partition for partition, (node, _) in before.assignments.items() if node == 4}
    assert {move.partition_id for move in plan.moves} == had
    assert 4 not in plan.stats.distribution


def test_unassigned_partitions_are_taken_up_at_their_next_epoch() -> None:
    plan = ASSIGNER.rebalance({7: (0, 5)}, nodes_of(1), TopologyChange.manual_rebalance())
    assert plan.assignments == {7: (1, 6)}
    assert plan.moves == [laminar.PartitionMove(7, 0, 1, 5, 6)]


def test_updated_node_gets_more_or_nothing() -> None:
    before = ASSIGNER.initial_assignment(range(120), nodes_of(3, cores=4))
    bigger = TopologyChange.node_updated(NodeInfo(3, cores=16))
    assert ASSIGNER.rebalance(before.assignments, nodes_of(3, cores=4), bigger).stats.distribution[3] >= 72
    drained = TopologyChange.node_updated(NodeInfo(3, cores=4, state="draining"))
    assert 3 not in ASSIGNER.rebalance(before.assignments, nodes_of(3, cores=4), drained).stats.distribution


def test_weights_shift_the_shares() -> None:
    weighted = AssignmentConstraints(node_weights={1: 3.0})
    plan = ASSIGNER.initial_assignment(range(100), nodes_of(2), weighted)
    assert plan.stats.distribution == {1: 75, 2: 25}


def test_anti_affinity_keeps_partitions_apart_and_says_which_hint_it_dropped() -> None:
    constraints = AssignmentConstraints(
        anti_affinity_groups=[AntiAffinityGroup("replicas", [0, 1, 2])],
        affinity_hints=[AffinityHint("joined", [0, 1], strength=0.5), AffinityHint("friends", [3, 4], strength=0.9)],
    )
    plan = ASSIGNER.initial_assignment(range(9), nodes_of(3), constraints)
    assert len({plan.assignments[partition].node_id for partition in (0, 1, 2)}) == 3
    assert plan.assignments[3].node_id == plan.assignments[4].node_id
    assert not plan.stats.constraints_satisfied
    assert len(plan.stats.violations) == 1
    assert "joined" in plan.stats.violations[0]
    assert "replicas" in plan.stats.violations[0]


def test_failure_domains_and_memory_are_respected() -> None:
    nodes = [NodeInfo(n, cores=8, failure_domain=f"az-{n % 2}", memory_bytes=100) for n in (1, 2, 3)]
    constraints = AssignmentConstraints(min_failure_domains=2, partition_memory_bytes={0: 100, 1: 100, 2: 50, 3: 50})
    plan = ASSIGNER.initial_assignment(range(4), nodes, constraints)
    used = Counter[int]()
    for partition, (node, _) in plan.assignments.items():
        used[node] += {0: 100, 1: 100, 2: 50, 3: 50}[partition]
    assert max(used.values()) <= 100
    assert plan.stats.failure_domains_used == 2


def test_validate_plan_catches_what_another_constraint_forbids() -> None:
    plan = ASSIGNER.initial_assignment(range(4), nodes_of(2))
    node = plan.assignments[0].node_id
    together = [partition for partition, (owner, _) in plan.assignments.items() if owner == node]
    apart = AssignmentConstraints(anti_affinity_groups=[AntiAffinityGroup("g", together)])
    with pytest.raises(laminar.ConstraintViolationError, match=f"both on node {node}"):
        ASSIGNER.validate_plan(plan, nodes_of(2), apart)
    with pytest.raises(laminar.AssignmentError):
        ASSIGNER.validate_plan(plan, nodes_of(1))


def test_empty_partition_list_gives_an_empty_plan() -> None:
    plan = ASSIGNER.initial_assignment([], nodes_of(2))
    assert (plan.assignments, plan.moves) == ({}, [])
    with pytest.raises(laminar.EmptyPartitionListError):
        ASSIGNER.validate_plan(plan, nodes_of(2))


def test_plan_converts_to_dict_json_and_arrow() -> None:
    before = ASSIGNER.initial_assignment(range(6), nodes_of(2))
    plan = ASSIGNER.rebalance(before.assignments, nodes_of(2), TopologyChange.node_left(2))
    as_dict = plan.to_dict()
    assert as_dict == json.loads(plan.to_json())
    assert set(as_dict) == {"assignments", "moves", "stats"}
    assert laminar.AssignmentPlan.from_json(plan.to_json()) == plan
    table = plan.to_arrow()
    assert table.column_names == ["partition_id", "node_id", "epoch", "from_node", "old_epoch"]
    assert table.num_rows == 6
    moved = {row["partition_id"] for row in table.to_pylist() if row["from_node"] is not None}
    assert moved == {move.partition_id for move in plan.moves}
    with pytest.raises(laminar.InvalidError, match="not a plan in JSON"):
        laminar.AssignmentPlan.from_json("{}")


def test_stats_have_all_six_fields() -> None:
    stats = ASSIGNER.initial_assignment(range(4), nodes_of(2)).stats
    assert stats == laminar.AssignmentStats(4, 0, {1: 2, 2: 2}, 0, constraints_satisfied=True, violations=[])


def test_bands_hold_floor_and_ceiling_of_the_share() -> None:
    bands = ASSIGNER.bands(10, nodes_of(3))
    assert {node: band[1:] for node, band in bands.items()} == dict.fromkeys((1, 2, 3), (3, 4, 5))
    assert all(band[0] == pytest.approx(10 / 3) for band in bands.values())


def test_ring_positions_never_change() -> None:
    # Golden: a release that moves these moves every partition of every cluster that has no current map.
    assert laminar.HashRing.partition_hash(0) == 7185268526139162326
    ring = laminar.HashRing([NodeInfo(1), NodeInfo(2), NodeInfo(3)])
    assert [ring.lookup(laminar.HashRing.partition_hash(p)) for p in range(12)] == [1, 3, 1, 1, 3, 2, 3, 2, 2, 2, 2, 2]


def test_ring_wraps_around_and_can_pass_over_domains() -> None:
    ring = laminar.HashRing([NodeInfo(1, failure_domain="a"), NodeInfo(2, failure_domain="b")])
    assert ring.lookup(2**64 - 1) == ring.lookup(0)
    assert {ring.lookup_excluding(hash_, {"a"}) for hash_ in range(0, 2**64, 2**58)} == {2}
    assert ring.lookup_excluding(0, {"a", "b"}) is None
    assert laminar.HashRing([]).lookup(0) is None
    assert repr(ring) == "HashRing <300 points, 2 nodes>"


def test_fewer_virtual_nodes_make_a_smaller_ring() -> None:
    assert len(laminar.HashRing(nodes_of(2, cores=1), virtual_nodes_per_core=10)) == 20
    assert laminar.ConsistentHashAssigner(virtual_nodes_per_core=10) != ASSIGNER
    assert repr(ASSIGNER) == "ConsistentHashAssigner(virtual_nodes_per_core=150)"
