"""Batches of a query that many processes write together: who may begin one, told through Python."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import laminar
from laminar import InvalidError, NotOwnedError, StaleEpochError, _native

FIRST, SECOND = uuid.UUID(int=1).hex, uuid.UUID(int=2).hex


@pytest.fixture
def db(tmp_path: Path) -> Iterator[laminar.Cluster]:
    with laminar.open(tmp_path / "data") as db:
        yield db


@pytest.fixture
def stream(db: laminar.Cluster) -> laminar.Stream:
    return db.create_stream("/shop/orders", partitions=3)


def _begin(stream: laminar.Stream, run: str, batch: int, query: str = "q", **how: Any) -> dict[str, Any]:
    native: _native.Stream = stream._native
    return native.begin_batch("ingest", run, query, batch, **how)


def _commit(stream: laminar.Stream, query: str, number: int) -> None:
    """Commits a batch as a writer does, which takes the stream over and gives it back."""
    with stream.writer("other") as writer, writer.batch(query=query, batch=number) as batch:
        batch.append_bytes(0, [b"row"])


def test_a_run_gets_the_whole_stream_and_every_task_of_it_the_same(stream: laminar.Stream) -> None:
    first = _begin(stream, FIRST, 0)
    assert first["node_id"] > 0
    assert [(partition, stream._native.partition_id(partition)) for partition in range(3)] == [
        (partition, partition_id) for partition, partition_id, _ in first["epochs"]
    ]
    assert (first["committed"], first["last_batch"]) == (False, None)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: _begin(stream, FIRST, 0), range(16))) == [first] * 16
    # A UUID as text is the same run.
    assert _begin(stream, str(uuid.UUID(FIRST)), 0, host="executor-1", pid=7) == first


def test_tasks_in_other_processes_get_the_same_run(stream: laminar.Stream, tmp_path: Path) -> None:
    code = (
        "import json, sys, laminar\n"
        "with laminar.open(sys.argv[1]) as db:\n"
        "    begun = db.stream('/shop/orders')._native.begin_batch('ingest', sys.argv[2], 'q', 0)\n"
        "    print(json.dumps(begun))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "data"), FIRST]
    tasks = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = []
    for task in tasks:
        out, _ = task.communicate(timeout=60)
        assert task.returncode == 0
        told.append(json.loads(out))
    own = _begin(stream, FIRST, 0)
    own["epochs"] = [list(held) for held in own["epochs"]]
    assert told == [own, own]


def test_a_superseded_run_is_told_by_whom_and_whether_its_batch_landed(stream: laminar.Stream) -> None:
    native = stream._native
    first = _begin(stream, FIRST, 0)
    native.check_run(first["node_id"], first["epochs"])
    second = _begin(stream, SECOND, 0)
    with pytest.raises(StaleEpochError) as told:
        native.check_run(first["node_id"], first["epochs"], query="q", batch=0)
    for error in (told.value, pickle.loads(pickle.dumps(told.value))):
        assert (error.stream, error.partition, error.batch_committed) == ("/shop/orders", 0, False)
        assert (error.epoch, error.current_epoch) == (first["epochs"][0][2], second["epochs"][0][2])
        assert (error.node, error.owner, error.writer) == (first["node_id"], second["node_id"], "ingest")
        assert error.since_ms is not None
    with pytest.raises(StaleEpochError, match="took over with epoch"):
        _begin(stream, FIRST, 1)
    native.release_run(second["node_id"])
    native.release_run(0)
    with pytest.raises(StaleEpochError):
        _begin(stream, FIRST, 1)


def test_committed_batches_are_acknowledged_and_earlier_ones_refused(stream: laminar.Stream) -> None:
    native = stream._native
    assert native.last_batch("q") is None
    _commit(stream, "q", 5)
    assert native.last_batch("q", timeout=5.0) == 5
    assert _begin(stream, FIRST, 5) == {"node_id": 0, "epochs": [], "committed": True, "last_batch": 5}
    with pytest.raises(InvalidError, match="batch 4 of query q refused, batch 5 was committed already"):
        _begin(stream, FIRST, 4)
    held = _begin(stream, FIRST, 6)
    with pytest.raises(StaleEpochError, match="this run never held the stream") as behind:
        _begin(stream, SECOND, 4)
    assert (behind.value.owner, behind.value.batch_committed) == (held["node_id"], None)


def test_another_query_under_the_name_of_a_writer_must_be_adopted(db: laminar.Cluster, stream: laminar.Stream) -> None:
    _begin(stream, FIRST, 0, query="mine")
    _commit(stream, "mine", 0)
    with pytest.raises(InvalidError, match="adoptQuery=true") as refused:
        _begin(stream, SECOND, 0, query="another")
    error = pickle.loads(pickle.dumps(refused.value))
    assert (error.writer, error.query, error.bound_query) == ("ingest", "another", "mine")
    assert _begin(stream, SECOND, 0, query="another", adopt_query=True)["node_id"] > 0
    assert db.metadata().bound_query("/shop/orders", "ingest") == "another"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"run": "5"}, "run is '5'|run is \"5\""),
        ({"run": "0" * 32}, "not all 0"),
        ({"run": 7}, "run is 7"),
        ({"batch": -1}, "batch is -1"),
        ({"query": ""}, "query name is 0 bytes long; it must be from 1 to 256"),
        ({"query": "q" * 257}, "query name is 257 bytes long"),
        ({"writer": ""}, "writer name is 0 bytes long"),
    ],
)
def test_arguments_that_cannot_be_right_are_invalid(stream: laminar.Stream, how: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"writer": "ingest", "run": FIRST, "query": "q", "batch": 0, **how}
    with pytest.raises(InvalidError, match=message):
        stream._native.begin_batch(given["writer"], given["run"], given["query"], given["batch"])


def test_a_check_takes_query_and_batch_together_and_epochs_as_triples(stream: laminar.Stream) -> None:
    with pytest.raises(InvalidError, match="query and batch belong together"):
        stream._native.check_run(0, [], query="q")
    with pytest.raises(InvalidError, match="has 2 parts"):
        stream._native.check_run(0, [(0, 1)])  # type: ignore[list-item]


def test_a_job_that_is_not_bound_leaves_the_name_to_others(stream: laminar.Stream) -> None:
    assert _begin(stream, FIRST, 0)["node_id"] > 0
    stream._native.commit_batch([], query="q", batch=0, record_empty=True, **_held(stream, FIRST))
    job = _begin(stream, SECOND, 0, query="load", unbound=True)
    stream._native.commit_batch(
        [], query="load", batch=0, record_empty=True, **_held(stream, SECOND, "load", unbound=True)
    )
    stream._native.release_run(job["node_id"])
    # The name still belongs to the query, and to no other.
    with pytest.raises(InvalidError, match="adoptQuery=true"):
        _begin(stream, uuid.uuid4().hex, 0, query="another")
    assert _begin(stream, uuid.uuid4().hex, 1)["node_id"] > 0


def test_a_run_gives_back_what_it_holds_by_its_own_id(stream: laminar.Stream) -> None:
    _begin(stream, FIRST, 0)
    with pytest.raises(NotOwnedError):
        stream.append_bytes(0, [b"row"])
    # A run that nobody knows, and one that lost the stream, take nothing from the one that has it.
    stream._native.release_begun(uuid.uuid4().hex)
    _begin(stream, SECOND, 0)
    stream._native.release_begun(FIRST)
    with pytest.raises(NotOwnedError):
        stream.append_bytes(0, [b"row"])
    stream._native.release_begun(SECOND)
    stream._native.release_begun(SECOND)
    stream.append_bytes(0, [b"row"])
    with pytest.raises(StaleEpochError):
        _begin(stream, SECOND, 0)


def _held(stream: laminar.Stream, run: str, query: str = "q", **how: Any) -> dict[str, Any]:
    held = _begin(stream, run, 0, query, **how)
    return {"node_id": held["node_id"], "epochs": held["epochs"]}
