"""Exclusive writers: claimed, fenced, refused, released; batches land once."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from nodes import wait_until

import laminar
from laminar import InvalidError, NotOwnedError, StaleEpochError

SCHEMA = pa.schema({"n": pa.int64()})


@pytest.fixture
def db(tmp_path: Path) -> Iterator[laminar.Cluster]:
    with laminar.open(tmp_path / "data") as db:
        yield db


@pytest.fixture
def stream(db: laminar.Cluster) -> laminar.Stream:
    # Another stream first: the partitions' ids in the cluster are not the stream's numbers.
    db.create_stream("/before", partitions=3)
    return db.create_stream("/numbers", partitions=4, schema=SCHEMA, key="n")


def _numbers(stream: laminar.Stream) -> list[int]:
    return sorted(stream.read().read_all()["n"].to_pylist())


def _rows(*numbers: int) -> list[dict[str, int]]:
    return [{"n": number} for number in numbers]


def test_writer_appends_under_its_epochs(stream: laminar.Stream) -> None:
    with stream.writer("ingest") as writer:
        assert (writer.name, writer.partitions, writer.stream) == ("ingest", [0, 1, 2, 3], stream)
        assert writer.append(_rows(*range(20))).rows == 20
        epochs = writer.epochs
        rows = stream.read(include_metadata=True).read_all().to_pylist()
        assert {row["_partition"]: row["_epoch"] for row in rows} == epochs
        assert "ingest" in repr(writer)
    assert _numbers(stream) == list(range(20))


def test_second_writer_takes_over_and_the_first_is_refused(stream: laminar.Stream) -> None:
    first = stream.writer("first")
    first.append(_rows(1))
    second = stream.writer("second")
    second.append(_rows(2))
    with pytest.raises(StaleEpochError) as raised:
        first.append(_rows(3))
    error = raised.value
    assert (error.stream, error.writer, error.owner) == ("/numbers", "second", second.node_id)
    assert error.partition is not None
    assert error.partition_id == error.partition + 3
    assert error.epoch is not None
    assert error.current_epoch is not None
    assert error.current_epoch > error.epoch
    assert error.since_ms
    assert error.outcome_unknown is False
    assert "second" in str(error)
    # Refused for good, whatever it tries.
    with pytest.raises(StaleEpochError), first.batch(query="q", batch=1) as batch:
        batch.append(_rows(4))
    first.close()
    second.append(_rows(5))
    second.close()
    assert _numbers(stream) == [1, 2, 5]


def test_guards_hear_of_a_takeover(stream: laminar.Stream) -> None:
    first = stream.writer("first")
    first.guards.check(3)
    assert first.guards.check_many(np.array([0, 1, 2, 3, 9])) == [9]
    assert first.guards.check_many(pa.array([3, 0])) == []
    with stream.writer("second", partitions=[1, 3]) as second:
        wait_until("the first writer hears of it", lambda: first.guards.check_many(range(4)) == [1, 3])
        with pytest.raises(StaleEpochError) as raised:
            first.guards.check(3)
        assert (raised.value.partition, raised.value.stream, raised.value.partition_id) == (3, "/numbers", 6)
        assert second.guards.check_many([0, 1, 2, 3]) == [0, 2]
        assert second.guards.epochs[1] == first.guards.epochs[1] + 1
        assert (second.guards.name, second.guards.node_id) == ("second", second.node_id)
        with pytest.raises(laminar.UnknownPartitionError):
            second.guards.check(7)
    first.close()


def test_claimed_partitions_refuse_managed_appends_until_released(stream: laminar.Stream) -> None:
    writer = stream.writer("ingest")
    with pytest.raises(NotOwnedError) as raised:
        stream.append(_rows(1), timeout=5.0)
    assert (raised.value.writer, raised.value.stream) == ("ingest", "/numbers")
    writer.release()
    writer.release()
    assert stream.append(_rows(1)).rows == 1
    with pytest.raises(laminar.LaminarError):
        writer.append(_rows(2))
    assert _numbers(stream) == [1]


def test_writer_of_some_partitions_leaves_the_others(stream: laminar.Stream) -> None:
    with stream.writer("half", partitions=[0, 1]) as writer:
        with pytest.raises(laminar.EpochError):
            writer.append(_rows(*range(50)))
        with pytest.raises(NotOwnedError):
            stream.append(_rows(*range(50)))
    assert _numbers(stream) == []


def test_batch_lands_once(stream: laminar.Stream) -> None:
    with stream.writer("ingest") as writer:
        with writer.batch(query="q", batch=7) as batch:
            batch.append(_rows(1, 2))
            batch.append(pa.table({"n": [3]}))
            assert (batch.appended, batch.duplicate) == (None, False)
        assert batch.appended is not None
        assert (batch.appended.rows, batch.duplicate) == (3, False)
        with pytest.raises(InvalidError, match="committed"):
            batch.append(_rows(4))
        with writer.batch(query="q", batch=7) as again:
            again.append(_rows(1, 2, 3))
        assert again.duplicate
    assert _numbers(stream) == [1, 2, 3]


def test_batch_that_goes_backwards_is_an_error(stream: laminar.Stream) -> None:
    with stream.writer("ingest") as writer:
        for number in (1, 2):
            with writer.batch(query="q", batch=number) as batch:
                batch.append(_rows(number))
        with pytest.raises(InvalidError), writer.batch(query="q", batch=1) as late:
            late.append(_rows(9))
        with writer.batch(query="other", batch=0) as batch:
            batch.append(_rows(3))
    assert _numbers(stream) == [1, 2, 3]


def _fail_in_a_batch(writer: laminar.Writer) -> None:
    with writer.batch(query="q", batch=1) as batch:
        batch.append(_rows(1))
        raise ZeroDivisionError


def test_batch_is_dropped_if_its_block_raises(stream: laminar.Stream) -> None:
    with stream.writer("ingest") as writer:
        with pytest.raises(ZeroDivisionError):
            _fail_in_a_batch(writer)
        assert _numbers(stream) == []
        with writer.batch(query="q", batch=1) as batch:
            batch.append(_rows(2))
        assert not batch.duplicate
    assert _numbers(stream) == [2]


def test_stale_batch_that_had_landed_says_so(stream: laminar.Stream) -> None:
    first = stream.writer("ingest")
    with first.batch(query="q", batch=1) as batch:
        batch.append(_rows(1))
    with stream.writer("ingest"):
        again = first
        with pytest.raises(StaleEpochError) as raised, again.batch(query="q", batch=1) as retried:
            retried.append(_rows(1))
        assert raised.value.batch_committed in (True, None)
    assert _numbers(stream) == [1]


def test_writer_of_bytes(db: laminar.Cluster) -> None:
    stream = db.create_stream("/bytes", partitions=2)
    with stream.writer("ingest") as writer:
        writer.append_bytes(1, [b"a", (b"k", b"b")])
        with writer.batch(query="q", batch=1) as batch:
            batch.append_bytes(0, [b"c"])
        assert writer.trim(1, 1) == 1
    assert stream.offsets() == {0: (0, 1), 1: (1, 2)}


def test_bytes_do_not_go_into_rows(stream: laminar.Stream) -> None:
    with stream.writer("ingest") as writer:
        with pytest.raises(InvalidError, match="schema"):
            writer.append_bytes(0, [b"a"])
        with pytest.raises(InvalidError, match="schema"):
            writer.batch(query="q", batch=1).append_bytes(0, [b"a"])
    for wrong in ([7], [(b"a", b"b", b"c")], ["text"], b"bytes"):
        with pytest.raises(InvalidError):
            stream.append_bytes(0, wrong)  # type: ignore[arg-type]


def test_writer_does_not_pickle_and_says_what_does(stream: laminar.Stream) -> None:
    with stream.writer("ingest") as writer, pytest.raises(TypeError, match="pickle the stream"):
        pickle.dumps(writer)


def test_wrong_arguments_are_refused(stream: laminar.Stream) -> None:
    with pytest.raises(laminar.UnknownPartitionError):
        stream.writer("ingest", partitions=[9])
    with pytest.raises(InvalidError):
        stream.writer(7)  # type: ignore[arg-type]
    with stream.writer("ingest") as writer:
        with pytest.raises(InvalidError):
            writer.batch(query="q", batch=-1)
        with pytest.raises(InvalidError, match="column"):
            writer.append([{"m": 1}])
