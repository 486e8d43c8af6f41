"""Batch reads: which rows come, in how many splits, and what is said when they cannot."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import laminar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string()})


def orders(endpoint: str, partitions: int = 2, rows: int = 0) -> laminar.Stream:
    """A stream whose rows go round the partitions, ten at a time."""
    stream = laminar.connect(endpoint).create_stream("/shop/orders", partitions=partitions, schema=SCHEMA)
    for first in range(0, rows, 10):
        stream.append([{"id": number, "name": f"n{number}"} for number in range(first, min(first + 10, rows))])
    return stream


def read(spark: SparkSession, endpoint: str, path: str = "/shop/orders", **options: Any) -> DataFrame:
    return spark.read.format("laminar").option("endpoint", endpoint).options(**options).load(path)


def ids(frame: DataFrame) -> list[int]:
    return sorted(row["id"] for row in frame.select("id").collect())


def refused(spark: SparkSession, endpoint: str, path: str = "/shop/orders", **options: Any) -> str:
    """What is said before anything is read, in less than five seconds."""
    began = time.monotonic()
    with pytest.raises(PySparkException) as caught:
        read(spark, endpoint, path, **options).count()
    assert time.monotonic() - began < 5.0
    return str(caught.value)


def test_all_rows_come_once_with_where_they_stand(spark: SparkSession, endpoint: str) -> None:
    stream = orders(endpoint, rows=100)
    frame = read(spark, endpoint, includeMetadata="true")
    assert frame.columns == ["id", "name", "_partition", "_offset", "_timestamp", "_epoch"]
    found = {(row["_partition"], row["_offset"]): (row["id"], row["name"], row["_epoch"]) for row in frame.collect()}
    expected = stream.read(include_metadata=True).read_all().to_pylist()
    assert found == {(row["_partition"], row["_offset"]): (row["id"], row["name"], row["_epoch"]) for row in expected}
    assert frame.rdd.getNumPartitions() == 2


def test_a_stream_without_rows_is_an_empty_frame(spark: SparkSession, endpoint: str) -> None:
    orders(endpoint)
    assert read(spark, endpoint).collect() == []


def test_columns_and_a_schema_choose_columns_in_their_order(spark: SparkSession, endpoint: str) -> None:
    orders(endpoint, rows=3)
    assert read(spark, endpoint, columns="name,id").columns == ["name", "id"]
    assert [tuple(row) for row in read(spark, endpoint, columns="name").orderBy("name").collect()] == [
        ("n0",),
        ("n1",),
        ("n2",),
    ]
    given = spark.read.format("laminar").option("endpoint", endpoint).schema("name string").load("/shop/orders")
    assert given.count() == 3
    # Nothing but metadata.
    only = spark.read.format("laminar").options(endpoint=endpoint, includeMetadata="true").schema("_offset long")
    assert sorted(row["_offset"] for row in only.load("/shop/orders").collect()) == [0, 1, 2]


def test_offsets_bound_a_read(spark: SparkSession, endpoint: str) -> None:
    orders(endpoint, rows=40)
    bounded = read(
        spark, endpoint, includeMetadata="true", startingOffsets='{"0": 5, "1": -2}', endingOffsets='{"0": 15, "1": -1}'
    )
    places = sorted((row["_partition"], row["_offset"]) for row in bounded.collect())
    assert places == [(0, offset) for offset in range(5, 15)] + [(1, offset) for offset in range(20)]
    # Partitions that are not named are read whole.
    assert read(spark, endpoint, startingOffsets='{"0": 20}').count() == 20
    assert read(spark, endpoint, endingOffsets='{"0": 0}').count() == 20


def test_at_reads_one_cut_however_much_came_later(spark: SparkSession, endpoint: str) -> None:
    stream = orders(endpoint, rows=20)
    at = stream.barrier().global_index
    stream.append([{"id": 100, "name": "later"}])
    assert ids(read(spark, endpoint, at=at)) == list(range(20))
    assert len(ids(read(spark, endpoint))) == 21


def test_times_bound_a_read_as_an_option_and_as_a_filter(spark: SparkSession, endpoint: str) -> None:
    stream = orders(endpoint, partitions=1)
    stamps: list[dt.datetime] = []
    while len(set(stamps)) < 3:
        stream.append([{"id": len(stamps), "name": "one"}])
        stamps = [time.as_py() for time in stream.read(include_metadata=True).read_all().column("_timestamp")]
    first, second, last = sorted(set(stamps))
    between = [number for number, stamp in enumerate(stamps) if stamp == second]
    bounded = read(spark, endpoint, startingTimestamp=second.isoformat(), endingTimestamp=last.isoformat())
    assert ids(bounded) == between
    assert read(spark, endpoint, startingTimestamp=(last + dt.timedelta(hours=1)).isoformat()).count() == 0
    spark.conf.set(PUSHDOWN, "true")
    try:
        condition = f"_timestamp > timestamp '{first.isoformat()}' and _timestamp < timestamp '{last.isoformat()}'"
        frame = read(spark, endpoint, includeMetadata="true", maxRowsPerSplit=1).where(condition)
        assert ids(frame) == between
        assert frame.rdd.getNumPartitions() == len(between)
    finally:
        spark.conf.unset(PUSHDOWN)


def test_an_address_with_its_secret_works_as_the_folder_does(spark: SparkSession, endpoint: str) -> None:
    orders(endpoint, rows=20)
    node = json.loads(Path(endpoint, "node.json").read_text())
    assert ids(read(spark, node["address"], secret=node["secret"])) == list(range(20))
    assert "secret" in refused(spark, node["address"])


def test_sql_reads_through_a_view_and_a_table_is_refused(spark: SparkSession, endpoint: str) -> None:
    orders(endpoint, rows=20)
    given = f"USING laminar OPTIONS (endpoint '{endpoint}', stream '/shop/orders')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders {given}")
    assert ids(spark.sql("SELECT id FROM orders WHERE id >= 15")) == [15, 16, 17, 18, 19]
    with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW name USING laminar"):
        spark.sql(f"CREATE TABLE orders_table {given}")


def test_a_thousand_partitions_are_read(spark: SparkSession, endpoint: str) -> None:
    stream = laminar.connect(endpoint).create_stream("/shop/orders", partitions=1000, schema=SCHEMA, key="id")
    stream.append([{"id": number, "name": "one"} for number in range(60)])
    # Partitions without rows have no task.
    frame = read(spark, endpoint)
    assert frame.rdd.getNumPartitions() == sum(end > start for start, end in stream.offsets().values())
    assert ids(frame) == list(range(60))


def test_ranges_are_split_further(spark: SparkSession, endpoint: str) -> None:
    orders(endpoint, rows=40)
    by_rows = read(spark, endpoint, maxRowsPerSplit=7)
    assert by_rows.rdd.getNumPartitions() == 6
    assert ids(by_rows) == list(range(40))
    by_count = read(spark, endpoint, minPartitions=8)
    assert by_count.rdd.getNumPartitions() == 8
    assert ids(by_count) == list(range(40))


def test_staged_blocks_are_read_by_the_executors(spark: SparkSession, endpoint: str) -> None:
    stream = laminar.connect(endpoint).create_stream("/big", schema=pa.schema({"id": pa.int64(), "text": pa.string()}))
    rows = 30_000
    text = pa.array([os.urandom(50).hex() for _ in range(rows)])
    stream.append(pa.table([pa.array(range(rows)), text], schema=stream.schema))
    assert any(Path(endpoint, "objects").rglob("*")), "nothing was staged"
    frame = read(spark, endpoint, "/big", maxRowsPerSplit=8_000)
    assert ids(frame) == list(range(rows))


def test_filters_narrow_what_is_read_only_where_spark_pushes_them(spark: SparkSession, endpoint: str) -> None:
    orders(endpoint, rows=60)
    condition = "_partition = 1 and _offset >= 5 and _offset < 9 and id >= 0"
    tasks = {}
    for enabled in ("false", "true"):
        spark.conf.set(PUSHDOWN, enabled)
        try:
            frame = read(spark, endpoint, includeMetadata="true", maxRowsPerSplit=2).where(condition)
            assert sorted((row["_partition"], row["_offset"]) for row in frame.collect()) == [
                (1, offset) for offset in range(5, 9)
            ]
            tasks[enabled] = frame.rdd.getNumPartitions()
        finally:
            spark.conf.unset(PUSHDOWN)
    assert tasks == {"false": 30, "true": 2}


def test_removed_rows_fail_a_read_unless_it_may_do_without(spark: SparkSession, endpoint: str) -> None:
    stream = orders(endpoint, partitions=1, rows=40)
    assert stream.trim(0, 20) == 20
    # Earliest is the first row there is.
    assert ids(read(spark, endpoint)) == list(range(20, 40))
    message = refused(spark, endpoint, startingOffsets='{"0": 5}')
    assert "partition 0: rows from offset 5 to 19 were removed" in message
    assert "begin at 20, or set failOnDataLoss=false" in message
    assert ids(read(spark, endpoint, startingOffsets='{"0": 5}', failOnDataLoss="false")) == list(range(20, 40))


def test_cut_whose_rows_were_removed_since_fails_unless_it_may_do_without(spark: SparkSession, endpoint: str) -> None:
    stream = orders(endpoint, partitions=2, rows=40)
    at = stream.barrier().global_index
    assert read(spark, endpoint, at=at).count() == 40
    # Which partition is the first in turn is left to chance.
    kept = sorted(stream.read(partitions=[0]).read_all()["id"].to_pylist())
    assert len(kept) == 20
    stream.append([{"id": 100, "name": "later"}] * 20)
    stream.trim(1, 20)
    message = refused(spark, endpoint, at=at)
    assert "partition 1: rows before offset 20 were removed" in message
    assert f"none up to index {at} is left" in message
    assert ids(read(spark, endpoint, at=at, failOnDataLoss="false")) == kept
    # Removed before the cut: nothing of it is missing.
    assert read(spark, endpoint, at=stream.barrier().global_index).count() == 40


def test_rows_that_go_between_planning_and_reading_are_noticed(spark: SparkSession, endpoint: str) -> None:
    stream = orders(endpoint, partitions=1, rows=40)
    planned = {fail: read(spark, endpoint, failOnDataLoss=fail) for fail in ("true", "false")}
    for frame in planned.values():
        # Planned once: what this frame reads does not change any more.
        assert frame.rdd.getNumPartitions() == 1
    stream.trim(0, 20)
    with pytest.raises(PySparkException, match="rows from offset 0 to 19 were removed by retention"):
        planned["true"].rdd.count()
    assert planned["false"].rdd.count() == 20


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"startingOffset": "earliest"}, "the source has no option startingoffset; did you mean startingOffsets?"),
        ({"startingOffsets": '{"0": 1'}, "which is not JSON"),
        ({"startingOffsets": '{"0": 21}'}, "partition 0: startingOffsets is 21, and the partition ends at 20"),
        ({"endingOffsets": '{"1": 99}'}, "partition 1: endingOffsets is 99, and the partition ends at 20"),
        (
            {"startingOffsets": '{"2": 0}'},
            "startingOffsets has partition 2, and there are 2; name partitions from 0 to 1",
        ),
        ({"startingOffsets": '{"0": 9}', "endingOffsets": '{"0": 5}'}, "would end at offset 5, before it begins at 9"),
        ({"startingOffsets": "latest"}, "a batch read would be empty"),
        ({"at": "1000000"}, "at is 1000000, and the log ends at index"),
        ({"columns": "id,nane"}, "there is no column 'nane'; did you mean 'name'?"),
        ({"columns": "_offset"}, "there is no column '_offset'; set includeMetadata=true"),
        ({"maxRowsPerTrigger": "5"}, "maxRowsPerTrigger is for streaming queries"),
        ({"path": "/shop/order"}, "there is no stream /shop/order at"),
        ({"path": "/shop/order"}, "did you mean /shop/orders?"),
    ],
)
def test_mistakes_are_told_before_anything_is_read(
    spark: SparkSession, shop: str, options: dict[str, str], what: str
) -> None:
    path = options.get("path", "/shop/orders")
    given = {name: value for name, value in options.items() if name != "path"}
    assert what in refused(spark, shop, path, **given)


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ("id int", "column 'id': the schema given says int, and it is bigint; leave the schema out, or give bigint"),
        ("idd long", "there is no column 'idd'; did you mean 'id'?"),
        ("id long, _offset long", "there is no column '_offset'; set includeMetadata=true"),
        ("id long not null", "column 'id': the schema given says that it is never null, and it may be"),
    ],
)
def test_a_schema_that_is_not_the_streams_is_refused(spark: SparkSession, shop: str, schema: str, what: str) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.read.format("laminar").option("endpoint", shop).schema(schema).load("/shop/orders").count()
    assert what in str(caught.value)


def test_an_endpoint_that_does_not_answer_is_told_in_time(spark: SparkSession, endpoint: str, tmp_path: Path) -> None:
    orders(endpoint)
    assert "endpoint is missing" in refused(spark, "")
    assert f"did you mean {tmp_path}/data?" in refused(spark, f"{tmp_path}/dta")
    assert "no node of 127.0.0.1:9 answered within 3.0 s" in refused(spark, "127.0.0.1:9")
    with laminar.connect(endpoint) as db:
        pid = db._native.hello()["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        link = tmp_path / "link"
        link.symlink_to(endpoint)
        # By another name, which no process has a connection for.
        assert f"node process {pid} holds" in refused(spark, str(link))
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_node_that_was_killed_is_started_again(spark: SparkSession, endpoint: str) -> None:
    orders(endpoint, rows=20)
    with laminar.connect(endpoint) as db:
        pid = db._native.hello()["pid"]
    os.kill(pid, signal.SIGKILL)
    assert ids(read(spark, endpoint)) == list(range(20))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with a stream of two partitions of twenty rows, for all that only reads."""
    from spark.conftest import end_node  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("shop") / "data"
    laminar.open(folder, detached=True, client_timeout=60.0).close()
    orders(str(folder), rows=40)
    yield str(folder)
    end_node(folder)
