"""Streaming reads: whole commits, each once, through restarts, limits, new partitions and removed rows."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from nodes import wait_until
from pyspark.errors import PySparkException, StreamingQueryException

import laminar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

SCHEMA = pa.schema({"id": pa.int64(), "commit": pa.int32()})
COMMIT_ROWS = 10


class Shop:
    """A stream that gets commits of ten rows, each spread over its partitions."""

    def __init__(self, endpoint: str, partitions: int = 4) -> None:
        self.endpoint = endpoint
        self.stream = laminar.connect(endpoint).create_stream(
            "/shop/orders", partitions=partitions, schema=SCHEMA, key="id"
        )
        self.commits = 0

    def commit(self, count: int = 1) -> None:
        for commit in range(self.commits, self.commits + count):
            first = commit * COMMIT_ROWS
            self.stream.append([{"id": first + row, "commit": commit} for row in range(COMMIT_ROWS)])
        self.commits += count

    def ids(self, first: int = 0) -> list[int]:
        return list(range(first * COMMIT_ROWS, self.commits * COMMIT_ROWS))


class Seen:
    """What a query's batches had: a ``foreachBatch`` function that remembers."""

    def __init__(self, also: Callable[[int], None] | None = None) -> None:
        self.batches: list[list[Any]] = []
        self._also = also

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self.batches.append(frame.collect())
        if self._also is not None:
            self._also(batch)

    def ids(self) -> list[int]:
        return sorted(row["id"] for batch in self.batches for row in batch)

    def commits(self) -> list[list[int]]:
        """The commits of each batch, each of which must be there whole."""
        found = []
        for batch in self.batches:
            numbers = sorted(row["commit"] for row in batch)
            found.append(sorted(set(numbers)))
            assert numbers == sorted(found[-1] * COMMIT_ROWS), "a batch has part of a commit"
        return found


def reading(spark: SparkSession, endpoint: str, **options: Any) -> DataStreamReader:
    chosen = {"startingOffsets": "earliest", **options}
    given = {name: value for name, value in chosen.items() if value is not None}
    return spark.readStream.format("laminar").option("endpoint", endpoint).options(**given)


def query(reader: DataStreamReader, seen: Seen, checkpoint: Path) -> DataStreamWriter:
    frame = reader.load("/shop/orders")
    return frame.writeStream.foreachBatch(seen).option("checkpointLocation", str(checkpoint))


def run(reader: DataStreamReader, seen: Seen, checkpoint: Path) -> StreamingQuery:
    """Reads what is there, and ends."""
    running = query(reader, seen, checkpoint).trigger(availableNow=True).start()
    assert running.awaitTermination(60), "the query did not end"
    return running


def node_pid(endpoint: str) -> int:
    with laminar.connect(endpoint) as db:
        return int(db._native.hello()["pid"])


def test_a_limit_of_rows_gives_whole_commits_each_once(spark: SparkSession, endpoint: str, tmp_path: Path) -> None:
    shop = Shop(endpoint)
    shop.commit(7)
    seen = Seen()
    ended = run(reading(spark, endpoint, maxRowsPerTrigger=25), seen, tmp_path / "checkpoint")
    assert seen.commits() == [[0, 1], [2, 3], [4, 5], [6]]
    assert seen.ids() == shop.ids()
    ends = {str(partition): end for partition, (_, end) in shop.stream.offsets().items()}
    progress = ended.lastProgress
    assert progress is not None
    for name in ("endOffset", "latestOffset"):
        assert json.loads(progress["sources"][0][name]) == {**ends, "streamId": shop.stream.stream_id}


def test_limits_below_one_commit_give_one_commit(spark: SparkSession, endpoint: str, tmp_path: Path) -> None:
    shop = Shop(endpoint)
    shop.commit(3)
    for name in ("maxRowsPerTrigger", "maxBytesPerTrigger"):
        seen = Seen()
        run(reading(spark, endpoint, **{name: 1}), seen, tmp_path / name)
        assert seen.commits() == [[0], [1], [2]], name
    both = Seen()
    run(reading(spark, endpoint, maxRowsPerTrigger=1000, maxBytesPerTrigger=1), both, tmp_path / "both")
    assert both.commits() == [[0], [1], [2]]


def test_available_now_leaves_what_came_later_to_the_next_run(
    spark: SparkSession, endpoint: str, tmp_path: Path
) -> None:
    shop = Shop(endpoint)
    shop.commit(4)
    first = Seen(lambda _batch: shop.commit())
    run(reading(spark, endpoint, maxRowsPerTrigger=10), first, tmp_path / "checkpoint")
    assert first.commits() == [[0], [1], [2], [3]]
    second = Seen()
    run(reading(spark, endpoint), second, tmp_path / "checkpoint")
    assert second.commits() == [[4, 5, 6, 7]]


def test_a_batch_that_failed_comes_again_the_same(spark: SparkSession, endpoint: str, tmp_path: Path) -> None:
    shop = Shop(endpoint)
    shop.commit(4)

    def fail(batch: int) -> None:
        if batch == 1:
            raise RuntimeError("as asked")

    first, second = Seen(fail), Seen()
    with pytest.raises(StreamingQueryException, match="as asked"):
        run(reading(spark, endpoint, maxRowsPerTrigger=20), first, tmp_path / "checkpoint")
    shop.commit()
    # Limits of the second run do not change the batch that Spark had begun.
    run(reading(spark, endpoint, maxRowsPerTrigger=10), second, tmp_path / "checkpoint")
    assert first.commits() == [[0, 1], [2, 3]]
    assert second.commits() == [[2, 3], [4]]


def test_commits_that_come_while_a_query_runs_are_seen_whole(
    spark: SparkSession, endpoint: str, tmp_path: Path
) -> None:
    shop = Shop(endpoint)
    seen = Seen()
    running = query(reading(spark, endpoint), seen, tmp_path / "checkpoint").start()
    enough = threading.Event()

    def write() -> None:
        # Not as fast as it can: the batches are to have more than one commit, and not thousands.
        while not enough.wait(0.005):
            shop.commit()

    writing = threading.Thread(target=write)
    try:
        writing.start()
        wait_until("the query has seen some of it", lambda: len(seen.batches) >= 4, timeout=60)
        enough.set()
        writing.join(60)
        running.processAllAvailable()
    finally:
        enough.set()
        writing.join(60)
        running.stop()
    assert sorted(number for batch in seen.commits() for number in batch) == list(range(shop.commits))
    assert seen.ids() == shop.ids()


def test_partitions_that_are_added_are_read_from_their_first_row(
    spark: SparkSession, endpoint: str, tmp_path: Path
) -> None:
    shop = Shop(endpoint, partitions=1)
    shop.commit()
    seen = Seen()
    running = query(reading(spark, endpoint), seen, tmp_path / "checkpoint").start()
    try:
        running.processAllAvailable()
        with pytest.warns(UserWarning, match="keys go to other partitions"):
            shop.stream.alter(partitions=3)
        shop.commit(2)
        running.processAllAvailable()
    finally:
        running.stop()
    assert seen.ids() == shop.ids()
    assert all(end > start for start, end in shop.stream.offsets().values()), "a partition has no rows"
    seen.commits()


def test_a_query_begins_where_it_is_told(spark: SparkSession, endpoint: str, tmp_path: Path) -> None:
    shop = Shop(endpoint, partitions=1)
    shop.commit()
    wait_until("a commit is of a later millisecond than the first", lambda: times(shop)[-1] > times(shop)[0])
    stamps = times(shop)
    later = next(time for time in stamps if time > stamps[0])
    after = [number for number, time in zip(shop.ids(), stamps, strict=True) if time >= later]
    for name, options, expected in (
        ("offsets", {"startingOffsets": '{"0": 15}'}, shop.ids()[15:]),
        ("earliest", {"startingOffsets": '{"0": -2}'}, shop.ids()),
        ("time", {"startingOffsets": None, "startingTimestamp": str(later)}, after),
    ):
        seen = Seen()
        run(reading(spark, endpoint, **options), seen, tmp_path / name)
        assert seen.ids() == expected, name


def test_a_query_begins_with_what_comes_if_nothing_is_said(spark: SparkSession, endpoint: str, tmp_path: Path) -> None:
    shop = Shop(endpoint)
    shop.commit(2)
    seen = Seen()
    running = query(reading(spark, endpoint, startingOffsets=None), seen, tmp_path / "checkpoint").start()
    try:
        running.processAllAvailable()
        shop.commit()
        running.processAllAvailable()
    finally:
        running.stop()
    assert seen.ids() == shop.ids(first=2)


def test_removed_rows_fail_a_query_unless_it_may_do_without(spark: SparkSession, endpoint: str, tmp_path: Path) -> None:
    shop = Shop(endpoint, partitions=1)
    shop.commit()
    run(reading(spark, endpoint), Seen(), tmp_path / "checkpoint")
    shop.commit(2)
    shop.stream.trim(0, 20)
    with pytest.raises(StreamingQueryException, match="rows from offset 10 to 19 were removed"):
        run(reading(spark, endpoint), Seen(), tmp_path / "checkpoint")
    seen = Seen()
    run(reading(spark, endpoint, failOnDataLoss="false"), seen, tmp_path / "checkpoint")
    assert seen.ids() == list(range(20, 30))


def test_a_stream_that_was_made_again_is_not_taken_for_the_old(
    spark: SparkSession, endpoint: str, tmp_path: Path
) -> None:
    shop = Shop(endpoint, partitions=1)
    shop.commit(2)
    run(reading(spark, endpoint), Seen(), tmp_path / "checkpoint")
    shop.stream.cluster.drop_stream("/shop/orders")
    again = Shop(endpoint, partitions=1)
    for _ in range(2):
        # Shorter than the old one, then longer.
        again.commit(2)
        with pytest.raises(StreamingQueryException, match="dropped and made again"):
            run(reading(spark, endpoint), Seen(), tmp_path / "checkpoint")


def test_a_query_goes_on_after_its_node_was_killed(spark: SparkSession, endpoint: str, tmp_path: Path) -> None:
    shop = Shop(endpoint)
    shop.commit()
    seen = Seen()
    running = query(reading(spark, endpoint), seen, tmp_path / "checkpoint").start()
    try:
        running.processAllAvailable()
        before = node_pid(endpoint)
        os.kill(before, signal.SIGKILL)
        # The query starts the node again; the test is only a client.
        wait_until("another process is the node", lambda: node_pid(endpoint) != before, timeout=60)
        shop.commit(2)
        running.processAllAvailable()
    finally:
        running.stop()
    assert seen.ids() == shop.ids()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"at": 5}, "at is for batch reads; a streaming query ends by Trigger.AvailableNow"),
        ({"endingOffsets": "latest"}, "endingOffsets is for batch reads"),
        ({"startingOffsets": '{"0": 99}'}, "startingOffsets is 99, and the partition ends at 0"),
        ({"startingOffsets": '{"7": 0}'}, "startingOffsets has partition 7, and there are 4"),
        ({"maxRowsPerTriger": 5}, "did you mean maxRowsPerTrigger?"),
    ],
)
def test_mistakes_are_told_before_anything_is_read(
    spark: SparkSession, endpoint: str, tmp_path: Path, options: dict[str, Any], what: str
) -> None:
    Shop(endpoint)
    with pytest.raises(PySparkException) as caught:
        run(reading(spark, endpoint, **options), Seen(), tmp_path / "checkpoint")
    assert what in str(caught.value)


def times(shop: Shop) -> list[int]:
    """Commits once more, and tells when each row of the only partition came, in milliseconds."""
    shop.commit()
    return [time.value for time in shop.stream.read(include_metadata=True).read_all().column("_timestamp")]
