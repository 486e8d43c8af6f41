from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support import assign, guards_of, metadata_of

import laminar
from laminar import PartitionGuard, PartitionGuardSet


def test_fresh_guard_passes_and_tells_what_it_was_made_of() -> None:
    guard = PartitionGuard(42, 7, 1)
    guard.check()
    assert (guard.partition_id, guard.epoch, guard.node_id) == (42, 7, 1)


def test_stale_guard_is_refused_with_both_epochs_and_the_owner() -> None:
    guard = PartitionGuard(42, 7, 1)
    metadata = metadata_of({42: (3, 9)})
    with pytest.raises(laminar.StaleEpochError) as refused:
        guard.validate(metadata)
    error = refused.value
    assert (error.partition, error.epoch, error.current_epoch, error.node, error.owner) == (42, 7, 9, 1, 3)
    assert (error.kind, error.retryable) == ("stale", False)
    with pytest.raises(laminar.StaleEpochError, match="guard holds epoch 7 and epoch 9 is current"):
        guard.check()


def test_guard_that_lost_its_owner_is_poisoned_for_good() -> None:
    guard = PartitionGuard(42, 7, 1)
    with pytest.raises(laminar.NotOwnedError):
        guard.validate(metadata_of({42: (3, 7)}))
    assert not guard.refresh(metadata_of({42: (1, 7)}))
    with pytest.raises(laminar.NotOwnedError):
        guard.check()


def test_guard_of_a_vanished_partition_is_poisoned_for_good() -> None:
    guard = PartitionGuard(42, 7, 1)
    assert not guard.refresh(laminar.DeltaMetadata())
    assert not guard.refresh(metadata_of({42: (1, 7)}))
    with pytest.raises(laminar.UnknownPartitionError):
        guard.check()


def test_conditional_put_names_the_ownership() -> None:
    put = PartitionGuard(42, 7, 1).conditional_put_precondition()
    assert put == laminar.ConditionalPut(42, 7, 1)
    assert dict(put.as_metadata()) == {"x-laminar-partition": "42", "x-laminar-epoch": "7", "x-laminar-node": "1"}
    assert put.s3_condition() == "epoch-7-partition-42"


def test_set_finds_sparse_ids_and_nothing_beside_them() -> None:
    guards = guards_of(1, {0: 1, 7: 1, 4_000_000_000: 1})
    for partition in (0, 7, 4_000_000_000):
        guards.check(partition)
        assert partition in guards
    with pytest.raises(laminar.NotOwnedError):
        guards.check(8)
    assert guards.partition_ids() == [0, 7, 4_000_000_000]
    assert (len(guards), guards.is_empty(), 8 in guards, "7" in guards) == (3, False, False, False)


def test_removed_guard_no_longer_counts() -> None:
    guards = guards_of(1, {3: 1})
    removed = guards.remove(3)
    assert removed == PartitionGuard(3, 1, 1)
    assert guards.remove(3) is None
    with pytest.raises(laminar.NotOwnedError):
        guards.check(3)
    assert guards.is_empty()


def test_validate_all_and_refresh_all_name_what_was_revoked() -> None:
    guards = guards_of(1, {1: 5, 2: 5, 3: 5, 4: 5})
    metadata = metadata_of({1: (1, 5), 2: (3, 6), 3: (3, 5)})
    reasons = {partition: type(error) for partition, error in guards.validate_all(metadata)}
    assert reasons == {2: laminar.StaleEpochError, 3: laminar.NotOwnedError, 4: laminar.UnknownPartitionError}
    assert guards.refresh_all(metadata) == [2, 3, 4]


def test_guard_and_its_set_end_together() -> None:
    newer = metadata_of({1: (3, 6), 2: (3, 6)})
    guards = PartitionGuardSet(1)
    first, second = PartitionGuard(1, 5, 1), PartitionGuard(2, 5, 1)
    guards.insert(first)
    guards.insert(second)
    assert not first.refresh(newer)
    with pytest.raises(laminar.StaleEpochError):
        guards.check(1)
    guards.refresh_all(newer)
    with pytest.raises(laminar.StaleEpochError):
        second.check()


def test_guard_belongs_to_sets_of_its_own_node() -> None:
    guard = PartitionGuard(3, 1, 1)
    with pytest.raises(laminar.InvalidError, match="belongs to node 1 and the set to node 2"):
        PartitionGuardSet(2).insert(guard)
    first, second = guards_of(1, {}), guards_of(1, {})
    for guards in (first, first, second):
        guards.insert(guard)
    first.refresh_all(metadata_of({3: (2, 2)}))
    for check in (guard.check, lambda: first.check(3), lambda: second.check(3)):
        with pytest.raises(laminar.StaleEpochError):
            check()


IDS = [5, 0, 3, 9, 4_000_000_000, 3]


@pytest.mark.parametrize(
    "ids",
    [
        IDS,
        tuple(IDS),
        iter(IDS),
        np.array(IDS, dtype=np.uint32),
        np.array(IDS, dtype=np.int64),
        np.array(IDS, dtype=np.uint64),
        np.array([x for pair in zip(IDS, IDS, strict=True) for x in pair], dtype=np.int64)[::2],
        pa.array(IDS, pa.uint32()),
        pa.array(IDS, pa.int64()),
        pa.array(IDS, pa.uint64()),
        pa.array([1, *IDS, 1], pa.int64()).slice(1, len(IDS)),
        pa.chunked_array([pa.array(IDS[:2], pa.int64()), pa.array(IDS[2:], pa.int64())]),
    ],
    ids=lambda ids: f"{type(ids).__module__}.{type(ids).__name__}",
)
def test_check_many_takes_any_kind_of_ids_and_returns_what_fails(ids: Any) -> None:
    assert guards_of(1, {0: 1, 3: 1}).check_many(ids) == [5, 9, 4_000_000_000]


def test_check_many_of_small_and_empty_arrays() -> None:
    guards = guards_of(1, {0: 1})
    assert guards.check_many(np.array([0, 1], dtype=np.int32)) == [1]
    assert guards.check_many(pa.array([0, 1], pa.int32())) == [1]
    assert guards.check_many(np.array([0, 1], dtype=np.uint8)) == [1]
    assert guards.check_many(np.array([0, 1], dtype=np.int16)) == [1]
    assert guards.check_many(pa.array([0, 1], pa.uint16())) == [1]
    assert guards.check_many(np.array([])) == []
    assert guards.check_many(np.array([], dtype=np.int64)) == []
    assert guards.check_many(pa.array([], pa.int64())) == []
    assert guards.check_many([]) == []


@pytest.mark.parametrize(
    "ids",
    [
        np.array([[1, 2]], dtype=np.int64),
        np.array([1.0]),
        np.array(["1"]),
        np.array([-1]),
        np.array([2**32], dtype=np.uint64),
        pa.array([1.0]),
        pa.array(["1"]),
        pa.array([1, None]),
        pa.array([-1]),
        pa.table({"a": [1]}),
        [2**32],
        [-1],
        ["1"],
        [None],
        "12",
        12,
        None,
        {"a": 1},
    ],
    ids=repr,
)
def test_check_many_refuses_what_are_no_ids(ids: Any) -> None:
    with pytest.raises(laminar.InvalidError):
        guards_of(1, {1: 1}).check_many(ids)


def test_checks_go_on_while_other_threads_insert_and_refresh() -> None:
    guards = guards_of(1, {0: 1})
    metadata = metadata_of({0: (1, 1), 2: (3, 2)})
    done = threading.Event()

    def churn() -> None:
        for round_ in range(2_000):
            guards.insert(PartitionGuard(2 + round_ % 7, 1, 1))
            guards.refresh_all(metadata)
            guards.remove(2 + round_ % 7)
        done.set()

    thread = threading.Thread(target=churn)
    thread.start()
    while not done.is_set():
        assert guards.check_many([0, 1]) == [1]
    thread.join()


def test_deregistered_node_finds_its_guards_stale() -> None:
    metadata = metadata_of({3: (1, 1)})
    guard = PartitionGuard(3, 1, 1)
    assert metadata.apply(laminar.MetadataLogEntry.deregister_node(node_id=1)).applied
    assert not guard.refresh(metadata)
    assert assign(metadata, 3, 2, 3, expected=(0, 2)).applied


def test_reprs_say_how_fresh_things_are() -> None:
    guard = PartitionGuard(3, 1, 1)
    assert repr(guard) == "PartitionGuard(partition_id=3, epoch=1, node_id=1) <fresh>"
    guard.refresh(metadata_of({3: (2, 2)}))
    assert repr(guard).endswith("<stale, epoch 2 is current>")
    assert repr(guards_of(1, {3: 1})) == "PartitionGuardSet(node_id=1) <1 guards, 0 stale>"


def test_guards_compare_by_what_they_hold_and_whether_it_holds() -> None:
    assert PartitionGuard(3, 1, 1) == PartitionGuard(3, 1, 1)
    assert hash(PartitionGuard(3, 1, 1)) == hash(PartitionGuard(3, 1, 1))
    assert PartitionGuard(3, 1, 1) != PartitionGuard(3, 2, 1)
    assert PartitionGuard(3, 1, 1) != "guard"
    stale = PartitionGuard(3, 1, 1)
    stale.refresh(laminar.DeltaMetadata())
    assert stale != PartitionGuard(3, 1, 1)
    assert guards_of(1, {3: 1}) == guards_of(1, {3: 1})
    assert guards_of(1, {3: 1}) != guards_of(1, {3: 2})
    assert guards_of(1, {3: 1}) != guards_of(2, {3: 1})
