"""Values travel: pickled to another process, and used on both sides of a fork."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from support import guards_of, metadata_of, nodes_of

import laminar
from laminar import MetadataLogEntry, NodeInfo

ASSIGNER = laminar.ConsistentHashAssigner()
ENTRY = MetadataLogEntry.assign_partition(partition_id=3, node_id=1, epoch=1, request_id="x")


def _stale_guard() -> laminar.PartitionGuard:
    guard = laminar.PartitionGuard(3, 1, 1)
    guard.refresh(metadata_of({3: (2, 2)}))
    return guard


def _poisoned_guard(owners: dict[int, tuple[int, int]]) -> laminar.PartitionGuard:
    guard = laminar.PartitionGuard(3, 1, 1)
    guard.refresh(metadata_of(owners))
    return guard


VALUES: list[Any] = [
    laminar.PartitionGuard(3, 1, 1),
    _stale_guard(),
    _poisoned_guard({}),
    _poisoned_guard({3: (2, 1)}),
    guards_of(1, {3: 1, 4_000_000_000: 7}),
    laminar.ConditionalPut(3, 1, 1),
    NodeInfo(1, cores=8, failure_domain="az-1", tags={"a": "b"}),
    laminar.NodeMetadata(cores=3),
    laminar.AntiAffinityGroup("g", [1, 2]),
    laminar.AffinityHint("h", [1, 2], strength=0.25),
    laminar.AssignmentConstraints(node_weights={1: 2.0}, partition_memory_bytes={1: 2}),
    laminar.TopologyChange.node_joined(NodeInfo(1)),
    laminar.TopologyChange.manual_rebalance(),
    laminar.PartitionMove(1, 2, 3, 4, 5),
    laminar.PartitionAssignment(1, 2, 3),
    laminar.ConsistentHashAssigner(virtual_nodes_per_core=10),
    laminar.HashRing(nodes_of(3), virtual_nodes_per_core=7),
    laminar.HashRing(nodes_of(2), constraints=laminar.AssignmentConstraints(node_weights={1: 2.0})),
    ASSIGNER.initial_assignment(range(10), nodes_of(3)),
    ASSIGNER.initial_assignment(range(10), nodes_of(3)).stats,
    metadata_of({3: (1, 1)}),
    ENTRY,
    laminar.DeltaMetadata().apply(ENTRY),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_value_survives_pickling_and_copying(value: Any) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        twin = pickle.loads(pickle.dumps(value, protocol))
        assert twin == value
        assert repr(twin) == repr(value)
    assert copy.deepcopy(value) == value


def test_pickled_stale_guard_stays_stale() -> None:
    for guard in (_stale_guard(), _poisoned_guard({}), _poisoned_guard({3: (2, 1)})):
        twin = pickle.loads(pickle.dumps(guard))
        assert not twin.refresh(metadata_of({3: (1, 1)}))
        with pytest.raises(laminar.EpochError):
            twin.check()


def test_partition_assignments_differ_by_partition_too() -> None:
    assert laminar.PartitionAssignment(1, 2, 3) == (2, 3)
    assert laminar.PartitionAssignment(1, 2, 3) != laminar.PartitionAssignment(9, 2, 3)
    assert {laminar.PartitionAssignment(1, 2, 3): "x"}[laminar.PartitionAssignment(1, 2, 3)] == "x"


def _in_child(guards: laminar.PartitionGuardSet, metadata: laminar.DeltaMetadata, out: Any) -> None:
    plan = ASSIGNER.initial_assignment(range(100), nodes_of(5))
    try:
        guards.check(9)
    except laminar.NotOwnedError as error:
        out.put((guards.refresh_all(metadata), plan.stats.total_partitions, error))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_process_uses_what_its_parent_made(method: str) -> None:
    guards, metadata = guards_of(1, {3: 1, 4: 1}), metadata_of({3: (1, 1), 4: (2, 2)})
    context: Any = multiprocessing.get_context(method)
    out = context.Queue()
    child = context.Process(target=_in_child, args=(guards, metadata, out))
    child.start()
    revoked, total, error = out.get(timeout=60)
    child.join(timeout=60)
    assert (revoked, total, error.partition, child.exitcode) == ([4], 100, 9, 0)
    # What the child learnt stays in the child.
    assert guards.check_many([3, 4]) == []


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_while_other_threads_hold_locks_leaves_the_child_free() -> None:
    """A forked child must not find a lock taken by a thread that it does not have."""
    guards, metadata = guards_of(1, dict.fromkeys(range(5_000), 1)), metadata_of({0: (1, 1)})
    batch = MetadataLogEntry.batch([ENTRY] * 100)
    stop = threading.Event()

    def refresh() -> None:
        while not stop.is_set():
            guards.refresh_all(metadata)
            metadata.snapshot()
            metadata.apply(batch)

    threads = [threading.Thread(target=refresh) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(30):
            child = os.fork()
            if child == 0:
                guards.remove(7)
                guards.refresh_all(metadata)
                metadata.apply(ENTRY)
                os._exit(0)
            assert _exit_code(child) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _exit_code(child: int) -> int | None:
    """The exit code of a child, or ``None`` if it hangs."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def test_import_starts_nothing_and_needs_no_spark_and_no_numpy() -> None:
    code = (
        "import sys, threading\n"
        "sys.modules['numpy'] = None\n"
        "import laminar\n"
        "assert threading.active_count() == 1\n"
        "assert 'pyspark' not in sys.modules and 'pyarrow' not in sys.modules\n"
        "guards = laminar.PartitionGuardSet(1)\n"
        "assert guards.check_many([1]) == [1]\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)
