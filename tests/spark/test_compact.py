"""Compaction of kv streams, on a local Spark: values stay, rows become few, whoever reads and writes meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from nodes import wait_until

import laminar
from laminar.errors import InvalidError, NotOwnedError, StaleEpochError
from laminar.spark.jobs import Compacted, compact, verify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string()})
Values = dict[int, str | None]


@pytest.fixture
def stream(db: laminar.Cluster) -> laminar.Stream:
    return db.create_stream("/kv", 2, SCHEMA, key="id", machine="kv")


def put(stream: laminar.Stream | laminar.Writer, values: Values) -> None:
    stream.append([{"id": key, "name": name} for key, name in values.items()])


def overwritten(stream: laminar.Stream, *, keys: int = 50, rounds: int = 4) -> Values:
    """Every key written several times; the last values."""
    values: Values = {}
    for number in range(rounds):
        values = {key: f"{key} of round {number}" for key in range(keys)}
        put(stream, values)
    return values


def rows(stream: laminar.Stream, **options: Any) -> list[tuple[int, str | None]]:
    table = stream.read(**options).read_all()
    return list(zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True))


def folded(stream: laminar.Stream) -> Values:
    """What the rows come to for whoever reads them from the first."""
    return {key: name for key, name in dict(rows(stream)).items() if name is not None}


def scanned(stream: laminar.Stream) -> Values:
    table = stream.scan()
    return dict(zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True))


def spans(stream: laminar.Stream) -> list[tuple[int, int]]:
    return [span for _, span in sorted(stream.offsets().items())]


def grown(stream: laminar.Stream, before: list[tuple[int, int]]) -> bool:
    """Whether every partition has rows behind those that were there."""
    return all(end > then for (_, end), (_, then) in zip(spans(stream), before, strict=True))


def outcomes(done: Compacted) -> set[str]:
    return {one.outcome for one in done.partitions}


def test_every_key_is_there_once_and_values_are_as_before(
    spark: SparkSession, endpoint: str, stream: laminar.Stream
) -> None:
    values = overwritten(stream)
    before = spans(stream)
    done = compact("/kv", endpoint=endpoint, grace=0, spark=spark)
    assert outcomes(done) == {"compacted"}
    assert (done.rows_before, done.rows_after, done.removed_dropped, done.busy) == (200, 50, 0, [])
    assert 0 < done.bytes_after < done.bytes_before
    assert sorted(rows(stream)) == sorted(values.items())
    assert scanned(stream) == values
    assert stream.get(7) == {"id": 7, "name": values[7]}
    # Offsets go on without a gap, and the first is where the partitions ended.
    assert [start for start, _ in spans(stream)] == [end for _, end in before]
    assert sum(end - start for start, end in spans(stream)) == 50
    found = stream.read(include_metadata=True).read_all()
    for partition, (start, end) in enumerate(spans(stream)):
        offsets = [row["_offset"] for row in found.to_pylist() if row["_partition"] == partition]
        assert offsets == list(range(start, end))
    assert verify("/kv", endpoint=endpoint, spark=spark).fault is None

    again = compact("/kv", endpoint=endpoint, grace=0, spark=spark)
    assert outcomes(again) == {"already compact"}
    assert (again.rows_before, again.rows_after) == (50, 50)
    put(stream, {7: "newest"})
    third = compact("/kv", endpoint=endpoint, grace=0, spark=spark)
    assert outcomes(third) == {"compacted", "already compact"}
    assert sorted(rows(stream)) == sorted({**values, 7: "newest"}.items())


def test_removed_keys_stay_for_a_while_and_then_leave_no_row(
    spark: SparkSession, endpoint: str, stream: laminar.Stream
) -> None:
    values = overwritten(stream, keys=10)
    put(stream, dict.fromkeys(range(4), None))
    left = {key: name for key, name in values.items() if key >= 4}
    kept = compact("/kv", endpoint=endpoint, grace=0, spark=spark)
    assert (kept.rows_after, kept.removed_dropped) == (10, 0)
    assert sorted(key for key, name in rows(stream) if name is None) == [0, 1, 2, 3]
    assert folded(stream) == scanned(stream) == left
    dropped = compact("/kv", endpoint=endpoint, grace=0, keep_removed=0, spark=spark)
    assert (dropped.rows_after, dropped.removed_dropped) == (6, 4)
    assert sorted(rows(stream)) == sorted(left.items())
    assert scanned(stream) == left


def test_writer_that_overwrites_all_the_time_loses_no_value(
    spark: SparkSession, endpoint: str, stream: laminar.Stream
) -> None:
    keys = 100
    latest: Values = overwritten(stream, keys=keys)
    ended = threading.Event()
    seen: list[str] = []

    def write() -> None:
        with laminar.connect(Path(endpoint)) as db:
            mine = db.stream("/kv")
            number = 0
            # Some rows at once, then a pause in which a commit finds room.
            while not ended.wait(0.02):
                for _ in range(5):
                    number += 1
                    key = number % keys
                    put(mine, {key: f"{key} number {number}"})
                    latest[key] = f"{key} number {number}"
                # Nobody else writes this key, so nothing but the last value may ever be seen.
                found = mine.get(key)
                if found is None or found["name"] != latest[key]:
                    seen.append(f"{found} and not {latest[key]}")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        done = [compact("/kv", endpoint=endpoint, grace=0, keep_removed=0, spark=spark) for _ in range(4)]
    finally:
        ended.set()
        writer.join()
    assert any("compacted" in outcomes(one) for one in done)
    assert seen == []
    assert scanned(stream) == folded(stream) == latest


def test_reader_that_began_before_reads_on_during_the_grace(
    spark: SparkSession, endpoint: str, stream: laminar.Stream
) -> None:
    values = overwritten(stream, keys=200, rounds=5)
    before = spans(stream)
    planned: dict[str, Any] = {
        "start": {partition: start for partition, (start, _) in enumerate(before)},
        "end": {partition: end for partition, (_, end) in enumerate(before)},
    }
    reader = iter(stream.read(**planned, batch_rows=10))
    read = next(reader).num_rows
    job = threading.Thread(target=lambda: compact("/kv", endpoint=endpoint, grace=4.0, spark=spark), name="compaction")
    job.start()
    wait_until("the newest rows are appended", lambda: grown(stream, before), timeout=60)
    read += sum(batch.num_rows for batch in reader)
    assert read == 1000
    assert len(rows(stream, **planned)) == 1000
    assert spans(stream)[0][0] == 0, "nothing is trimmed before the grace is over"
    assert folded(stream) == scanned(stream) == values
    job.join()
    assert [start for start, _ in spans(stream)] == [end for _, end in before]
    with pytest.raises(InvalidError, match="trimmed"):
        rows(stream, **planned)
    assert folded(stream) == values


def test_streaming_query_goes_on_behind_a_compaction(
    spark: SparkSession, endpoint: str, stream: laminar.Stream, tmp_path: Path
) -> None:
    fold: Values = {}

    def take(frame: DataFrame, _batch: int) -> None:
        for row in frame.orderBy("_partition", "_offset").collect():
            fold[row["id"]] = row["name"]

    def catch_up() -> None:
        frame = spark.readStream.format("laminar").options(endpoint=endpoint, includeMetadata="true").load("/kv")
        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    overwritten(stream)
    catch_up()
    put(stream, {3: "later"})
    catch_up()
    compact("/kv", endpoint=endpoint, grace=0, spark=spark)
    put(stream, {4: "last"})
    catch_up()
    assert fold == scanned(stream)


COMMAND = [sys.executable, "-m", "laminar", "compact", "/kv", "--master", "local[2]"]


def test_command_killed_between_commit_and_trim_is_finished_by_the_next(endpoint: str, stream: laminar.Stream) -> None:
    values = overwritten(stream)
    before = spans(stream)
    command = [*COMMAND, "--at", endpoint]
    with subprocess.Popen([*command, "--grace", "10m"], stdout=subprocess.DEVNULL) as killed:
        wait_until("the newest rows are appended", lambda: grown(stream, before), timeout=90)
        killed.kill()
    assert [start for start, _ in spans(stream)] == [start for start, _ in before], "the rows are there twice"
    assert folded(stream) == scanned(stream) == values
    done = subprocess.run([*command, "--grace", "0s", "--json"], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    assert (told["rows_before"], told["rows_after"], len(told["partitions"])) == (250, 50, 2)
    assert {one["outcome"] for one in told["partitions"]} == {"compacted"}
    assert sorted(rows(stream)) == sorted(values.items())
    assert scanned(stream) == values


def test_claimed_stream_is_refused_unless_a_writer_is_named(
    spark: SparkSession, endpoint: str, stream: laminar.Stream
) -> None:
    values = overwritten(stream)
    with stream.writer("ingest") as holder:
        with pytest.raises(NotOwnedError, match="writer 'ingest' holds partition 0") as refused:
            compact("/kv", endpoint=endpoint, grace=0, spark=spark)
        assert (refused.value.stream, refused.value.writer) == ("/kv", "ingest")
        done = compact("/kv", endpoint=endpoint, writer="compactor", grace=0, spark=spark)
        assert outcomes(done) == {"compacted"}
        with pytest.raises(StaleEpochError):
            put(holder, {1: "late"})
    assert sorted(rows(stream)) == sorted(values.items())
    # It was released: whoever comes next writes as ever.
    put(stream, {1: "next"})
    assert stream.get(1) == {"id": 1, "name": "next"}


def test_stream_of_bytes_and_one_without_rows(spark: SparkSession, endpoint: str, db: laminar.Cluster) -> None:
    stream = db.create_stream("/bytes", 1, machine="kv")
    stream.append_bytes(None, [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None), (b"c", b"")])
    empty = compact("/bytes", endpoint=endpoint, grace=0, keep_removed=0, spark=spark)
    assert (empty.rows_before, empty.rows_after, empty.removed_dropped) == (5, 2, 1)
    assert stream.read().read_all().to_pylist() == [{"key": b"a", "value": b"3"}, {"key": b"c", "value": b""}]
    assert (stream.get(b"a"), stream.get(b"b"), stream.get(b"c")) == (b"3", None, b"")

    db.create_stream("/empty", 3, SCHEMA, key="id", machine="kv")
    none = compact("/empty", endpoint=endpoint, grace=0, spark=spark)
    assert (outcomes(none), none.rows_before, len(none.partitions)) == ({"already compact"}, 0, 3)


def test_all_keys_removed_leaves_no_row(spark: SparkSession, endpoint: str, stream: laminar.Stream) -> None:
    overwritten(stream, keys=5)
    put(stream, dict.fromkeys(range(5), None))
    done = compact("/kv", endpoint=endpoint, grace=0, keep_removed=0, spark=spark)
    assert (done.rows_after, done.removed_dropped) == (0, 5)
    assert rows(stream) == []
    assert scanned(stream) == {}


def test_stream_that_keeps_no_keys_and_times_that_cannot_be_are_refused(endpoint: str, db: laminar.Cluster) -> None:
    db.create_stream("/log", 1, SCHEMA)
    with pytest.raises(InvalidError, match="this stream has machine 'log'; only streams with machine 'kv'"):
        compact("/log", endpoint=endpoint)
    with pytest.raises(InvalidError, match=r"grace is -1\.0; it must be a number of seconds from 0"):
        compact("/log", endpoint=endpoint, grace=-1.0)
    with pytest.raises(InvalidError, match="keep_removed is nan; it must be a number of seconds from 0"):
        compact("/log", endpoint=endpoint, keep_removed=float("nan"))
