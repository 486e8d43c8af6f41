"""What many tasks wrote is committed as one entry: all of it, once, under the epochs of the run."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from nodes import wait_until

import laminar
from laminar import InvalidError, NotOwnedError, StaleEpochError

SCHEMA = pa.schema({"n": pa.int64(), "text": pa.string()})
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[laminar.Cluster]:
    with laminar.open(tmp_path / "data", inline_bytes_max=64 << 10) as db:
        yield db


@pytest.fixture
def stream(db: laminar.Cluster) -> laminar.Stream:
    db.create_stream("/before", partitions=3)
    return db.create_stream("/numbers", partitions=4, schema=SCHEMA, key="n")


def _batch(numbers: range, text: str = "row") -> pa.RecordBatch:
    return pa.record_batch([pa.array(numbers, pa.int64()), pa.array([f"{text} {n}" for n in numbers])], schema=SCHEMA)


def _task(stream: laminar.Stream, *batches: pa.RecordBatch, block_bytes: int | None = None) -> bytes:
    writer = stream._native.task_writer(block_bytes=block_bytes)
    for batch in batches:
        writer.add(batch)
    assert writer.rows == sum(batch.num_rows for batch in batches)
    return writer.finish()


def _numbers(stream: laminar.Stream) -> list[int]:
    return sorted(stream.read().read_all()["n"].to_pylist())


def _held(stream: laminar.Stream, writer: laminar.Writer) -> dict[str, Any]:
    """What a run commits under."""
    ids = {partition: stream._native.partition_id(partition) for partition in writer.epochs}
    epochs = [(partition, ids[partition], epoch) for partition, epoch in writer.epochs.items()]
    return {"node_id": writer.node_id, "epochs": epochs}


def _staged(db_path: Path) -> int:
    return sum(1 for _ in (db_path / "data" / "objects" / "stage").glob("*"))


def _write_and_send(stream: laminar.Stream, numbers: range, out: Connection) -> None:
    step = 5_000
    batches = [
        _batch(range(begin, min(begin + step, numbers.stop))) for begin in range(numbers.start, numbers.stop, step)
    ]
    out.send_bytes(_task(stream, *batches, block_bytes=256 << 10))


def test_many_forked_tasks_commit_as_one(stream: laminar.Stream) -> None:
    tasks = []
    for task in range(4):
        receive, send = FORK.Pipe(duplex=False)
        numbers = range(task * 20_000, (task + 1) * 20_000)
        process = FORK.Process(target=_write_and_send, args=(stream, numbers, send))
        process.start()
        send.close()
        tasks.append((process, receive))
    messages = [receive.recv_bytes() for _, receive in tasks]
    for process, receive in tasks:
        process.join()
        receive.close()
        assert process.exitcode == 0
    assert _numbers(stream) == []
    rows, index, offsets, duplicate = stream._native.commit_batch(messages, query="q", batch=0)
    assert (rows, duplicate) == (80_000, False)
    assert index > 0
    assert sum(end - first for first, end in offsets.values()) == 80_000
    assert _numbers(stream) == list(range(80_000))
    # One entry: every row has the same global index, so a barrier before it sees none.
    assert stream.offsets(at=index - 1) == dict.fromkeys(range(4), (0, 0))


def test_rows_of_a_partition_keep_the_order_of_messages_and_rows(stream: laminar.Stream) -> None:
    messages = [
        _task(stream, *(_batch(range(at, at + 500)) for at in range(begin, begin + 5_000, 500))) for begin in (5_000, 0)
    ]
    stream._native.commit_batch(messages)
    expected = [*range(5_000, 10_000), *range(5_000)]
    for partition in range(4):
        numbers = stream.read(partitions=[partition]).read_all()["n"].to_pylist()
        assert numbers == [n for n in expected if n in set(numbers)]
    assert _numbers(stream) == list(range(10_000))


def test_small_tasks_travel_inline_and_large_ones_as_blocks(stream: laminar.Stream, tmp_path: Path) -> None:
    small = [_task(stream, _batch(range(at, at + 10))) for at in range(0, 100, 10)]
    stream._native.commit_batch(small)
    assert _staged(tmp_path) == 0
    large = _task(stream, _batch(range(100, 100_000)), block_bytes=100 << 10)
    assert _staged(tmp_path) > 1
    stream._native.commit_batch([large])
    # Small ones that are too many for an entry become a block with the commit.
    before = _staged(tmp_path)
    many = [_task(stream, _batch(range(at, at + 2_000))) for at in range(100_000, 140_000, 2_000)]
    assert _staged(tmp_path) == before
    stream._native.commit_batch(many)
    assert _staged(tmp_path) == before + 1
    assert _numbers(stream) == list(range(140_000))


def test_batch_is_committed_once(stream: laminar.Stream) -> None:
    first = stream._native.commit_batch([_task(stream, _batch(range(10)))], query="app", batch=3)
    again = stream._native.commit_batch([_task(stream, _batch(range(10, 30)))], query="app", batch=3)
    assert (first[3], again[3]) == (False, True)
    assert again[:3] == first[:3]
    with pytest.raises(InvalidError, match="3"):
        stream._native.commit_batch([_task(stream, _batch(range(10)))], query="app", batch=2)
    assert _numbers(stream) == list(range(10))


def test_duplicate_is_told_also_when_a_writer_has_claimed_the_stream_since(stream: laminar.Stream) -> None:
    message = _task(stream, _batch(range(10)))
    first = stream._native.commit_batch([message], query="app", batch=3)
    with stream.writer("holder"):
        again = stream._native.commit_batch([message], query="app", batch=3)
        assert (again[1], again[3]) == (first[1], True)
        with pytest.raises(NotOwnedError) as raised:
            stream._native.commit_batch([message], query="app", batch=4)
        assert raised.value.writer == "holder"
        with pytest.raises(NotOwnedError):
            stream._native.commit_batch([message])
    assert _numbers(stream) == list(range(10))


def test_run_commits_under_its_epochs_and_is_refused_after_a_takeover(stream: laminar.Stream) -> None:
    first = stream.writer("first")
    held = _held(stream, first)
    stream._native.commit_batch([_task(stream, _batch(range(10)))], query="q", batch=0, **held)
    assert {row["_epoch"] for row in stream.read(include_metadata=True).read_all().to_pylist()} == set(
        first.epochs.values()
    )
    with stream.writer("second") as second:
        for batch, landed in ((0, True), (1, False)):
            with pytest.raises(StaleEpochError) as raised:
                stream._native.commit_batch([_task(stream, _batch(range(10, 20)))], query="q", batch=batch, **held)
            error = raised.value
            assert (error.stream, error.writer, error.owner) == ("/numbers", "second", second.node_id)
            assert (error.current_epoch or 0) > (error.epoch or 0) > 0
            assert error.batch_committed is landed
        with pytest.raises(StaleEpochError):
            stream._native.commit_batch([], query="q", batch=1, record_empty=True, **held)
    assert _numbers(stream) == list(range(10))


def test_nothing_is_recorded_of_an_empty_batch_unless_asked(stream: laminar.Stream) -> None:
    assert stream._native.commit_batch([], query="q", batch=5) == (0, 0, {}, False)
    empty = _task(stream)
    assert stream._native.commit_batch([empty], query="q", batch=5) == (0, 0, {}, False)
    assert stream._native.commit_batch([_task(stream, _batch(range(5)))], query="q", batch=5)[3] is False
    with stream.writer("run") as writer:
        held = _held(stream, writer)
        recorded = stream._native.commit_batch([empty], query="q", batch=6, record_empty=True, **held)
        assert (recorded[0], recorded[2], recorded[3]) == (0, {}, False)
        assert recorded[1] > 0
        assert stream._native.commit_batch([], query="q", batch=6, record_empty=True, **held)[3] is True
        assert stream._native.commit_batch([_task(stream, _batch(range(9)))], query="q", batch=6, **held)[3] is True
    assert stream._native.commit_batch([empty], query="q", batch=7, record_empty=True)[3] is False
    assert stream._native.commit_batch([empty], query="q", batch=7, record_empty=True)[3] is True
    assert _numbers(stream) == list(range(5))


def test_overwrite_trims_and_appends_in_one_entry(stream: laminar.Stream) -> None:
    stream._native.commit_batch([_task(stream, _batch(range(1_000)))])
    before = stream.offsets()
    rows, _, _, _ = stream._native.commit_batch([_task(stream, _batch(range(5)))], query="o", batch=1, overwrite=True)
    assert rows == 5
    assert _numbers(stream) == list(range(5))
    after = stream.offsets()
    assert {partition: start for partition, (start, _) in after.items()} == {p: end for p, (_, end) in before.items()}
    # Again it is a duplicate, and nothing is trimmed.
    assert stream._native.commit_batch([_task(stream, _batch(range(9)))], query="o", batch=1, overwrite=True)[3] is True
    assert _numbers(stream) == list(range(5))
    with stream.writer("run") as writer:
        held = _held(stream, writer)
        stream._native.commit_batch([_task(stream, _batch(range(7)))], overwrite=True, **held)
    assert _numbers(stream) == list(range(7))
    stream._native.commit_batch([], overwrite=True)
    assert _numbers(stream) == []
    stream.append([{"n": 1, "text": "x"}])
    assert _numbers(stream) == [1]


def test_overwrite_of_a_stream_of_keys_is_refused(db: laminar.Cluster) -> None:
    stream = db.create_stream("/state", partitions=2, schema=SCHEMA, key="n", machine="kv")
    message = _task(stream, _batch(range(5)))
    with pytest.raises(InvalidError, match="kv"):
        stream._native.commit_batch([message], overwrite=True)
    stream._native.commit_batch([message])
    assert stream.scan().num_rows == 5


def test_rows_without_a_key_are_spread_over_partitions(db: laminar.Cluster) -> None:
    stream = db.create_stream("/plain", partitions=4, schema=SCHEMA)
    messages = [_task(stream, *(_batch(range(at, at + 10_000)) for at in range(0, 300_000, 10_000)))]
    _, _, offsets, _ = stream._native.commit_batch(messages)
    assert sorted(offsets) == [0, 1, 2, 3]
    assert _numbers(stream) == list(range(300_000))
    chosen = stream._native.task_writer(partition=2)
    chosen.add(_batch(range(10)))
    assert list(stream._native.commit_batch([chosen.finish()])[2]) == [2]


def test_stream_that_got_partitions_since_asks_to_repeat_the_batch(db: laminar.Cluster, stream: laminar.Stream) -> None:
    with stream.writer("run") as writer:
        held = _held(stream, writer)
        old = _task(stream, _batch(range(100)))
        with pytest.warns(UserWarning, match="8 partitions"):
            stream.alter(partitions=8)
        with pytest.raises(InvalidError) as raised:
            stream._native.commit_batch([old], query="q", batch=1)
        assert raised.value.stream_changed is True
        new = _task(db.stream("/numbers"), _batch(range(100)))
        for messages in ([new], [old, new]):
            with pytest.raises(InvalidError, match="more partitions") as raised:
                stream._native.commit_batch(messages, query="q", batch=1, **held)
            assert raised.value.stream_changed is True
    assert stream._native.commit_batch([new], query="q", batch=1)[0] == 100


def test_messages_that_are_none_are_refused(db: laminar.Cluster, stream: laminar.Stream) -> None:
    message = _task(stream, _batch(range(100)))
    changed = bytearray(message)
    changed[-1] ^= 1
    newer = message[:4] + b"\x09" + message[5:]
    for bad in (b"", b"hello", message[:-1], message[:10], bytes(changed), newer, message + b"x"):
        with pytest.raises(InvalidError, match="message of a task"):
            stream._native.commit_batch([message, bad], query="q", batch=1)
    other = db.create_stream("/other", partitions=4, schema=SCHEMA, key="n")
    with pytest.raises(InvalidError, match="another stream"):
        other._native.commit_batch([message])
    for wrong in ({"query": "q"}, {"batch": 1}, {"epochs": [(1, 2)]}, {"epochs": [(0, 1, 0)]}, {"messages": "x"}):
        with pytest.raises(InvalidError):
            stream._native.commit_batch(**{"messages": [message], **wrong})  # type: ignore[arg-type]
    assert stream._native.commit_batch([message], query="q", batch=1)[0] == 100


def test_limits_of_a_commit_are_named(tmp_path: Path) -> None:
    with laminar.open(tmp_path / "data", commit_parts_max=8, commit_bytes_max=100_000) as db:
        stream = db.create_stream("/numbers", partitions=4, schema=SCHEMA, key="n")
        three = [_task(stream, _batch(range(10)), block_bytes=1) for _ in range(3)]
        with pytest.raises(InvalidError, match=r"12 of 8 parts \(node.commit_parts_max\)"):
            stream._native.commit_batch(three)
        with pytest.raises(InvalidError, match=r"of 100000 bytes \(node.commit_bytes_max\)"):
            stream._native.commit_batch([_task(stream, _batch(range(50_000), os.urandom(50).hex()))])
        stream._native.commit_batch(three[:2])
        assert len(_numbers(stream)) == 20


def test_large_rows_are_staged_or_refused_with_the_limit(db: laminar.Cluster) -> None:
    row = pa.record_batch([pa.array([1], pa.int64()), pa.array([os.urandom(5 << 20).hex()])], schema=SCHEMA)
    large = db.create_stream("/large", partitions=2, schema=SCHEMA, key="n")
    large._native.commit_batch([_task(large, row, row)])
    assert large.read().read_all()["text"].to_pylist() == [row["text"][0].as_py()] * 2
    small = db.create_stream(
        "/small", partitions=2, schema=SCHEMA, key="n", limits=laminar.StreamLimits(row_bytes=1 << 20)
    )
    with pytest.raises(InvalidError, match="1048576"):
        _task(small, row)


def test_rows_that_do_not_fit_are_refused_and_others_still_go(stream: laminar.Stream) -> None:
    writer = stream._native.task_writer()
    writer.add(_batch(range(10)))
    with pytest.raises(InvalidError, match="missing"):
        writer.add(pa.table({"missing": [1]}))
    writer.add(pa.table({"n": [10], "text": ["x"]}))
    message = writer.finish()
    assert writer.finish() == message
    assert writer.rows == 11
    assert writer.bytes > 0
    with pytest.raises(InvalidError, match="finished"):
        writer.add(_batch(range(1)))
    stream._native.commit_batch([message])
    assert _numbers(stream) == list(range(11))


def _write_and_die(stream: laminar.Stream, out: Connection) -> None:
    writer = stream._native.task_writer(block_bytes=64 << 10)
    writer.add(_batch(range(100_000)))
    out.send_bytes(b"written")
    signal.pause()


def test_task_that_dies_leaves_nothing_visible(stream: laminar.Stream) -> None:
    receive, send = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_write_and_die, args=(stream, send))
    process.start()
    send.close()
    assert receive.recv_bytes() == b"written"
    process.kill()
    process.join()
    receive.close()
    process.close()
    assert stream.offsets() == dict.fromkeys(range(4), (0, 0))
    assert _numbers(stream) == []


def test_expired_block_is_refused_by_name_and_nothing_lands(tmp_path: Path) -> None:
    with laminar.open(tmp_path / "data", stage_interval=0.05, stage_age=0.0) as db:
        stream = db.create_stream("/numbers", partitions=4, schema=SCHEMA, key="n")
        message = _task(stream, _batch(range(100_000)), block_bytes=64 << 10)
        wait_until("old blocks are gone", lambda: _staged(tmp_path) == 0)
        with pytest.raises(InvalidError, match="block"):
            stream._native.commit_batch([message], query="q", batch=1)
        assert _numbers(stream) == []
        assert stream._native.commit_batch([_task(stream, _batch(range(10)))], query="q", batch=1)[3] is False


def test_large_batch_of_keys_is_staged_and_applied(tmp_path: Path) -> None:
    with laminar.open(tmp_path / "data") as db:
        stream = db.create_stream("/state", partitions=4, schema=SCHEMA, key="n", machine="kv")
        messages = [_task(stream, _batch(range(60_000), word)) for word in ("old", "new")]
        assert _staged(tmp_path) == 2
        stream._native.commit_batch(messages, query="q", batch=1)
        assert stream.get(59_999) == {"n": 59_999, "text": "new 59999"}
        # An append that is too large for an entry goes the same way.
        stream.append(pa.Table.from_batches([_batch(range(50_000, 110_000), "newest")]))
        assert stream.get(59_999) == {"n": 59_999, "text": "newest 59999"}
    # The machine is rebuilt from the records, which only point to the rows.
    with laminar.open(tmp_path / "data") as db:
        stream = db.stream("/state")
        assert stream.scan().num_rows == 110_000
        assert stream.get(3) == {"n": 3, "text": "new 3"}
        assert stream._native.commit_batch(messages, query="q", batch=1)[3] is True


def test_staged_keys_that_cannot_be_applied_are_refused(db: laminar.Cluster, tmp_path: Path) -> None:
    stream = db.create_stream("/state", partitions=4, schema=SCHEMA, key="n", machine="kv")
    message = _task(stream, _batch(range(60_000)), block_bytes=1 << 20)
    for block in (tmp_path / "data" / "objects" / "stage").iterdir():
        block.unlink()
    with pytest.raises(InvalidError, match="block stage/"):
        stream._native.commit_batch([message])
    stream.append([{"n": 1, "text": "still there"}])
    assert stream.get(1) == {"n": 1, "text": "still there"}
