"""Shapes of data that break sinks: many partitions, large rows, one key, keys that count, types of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import laminar
from spark.rows import STREAM, check, create
from spark.test_sink_batch import frame_of, refused, save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIB = 1 << 20


def test_a_thousand_partitions_take_one_commit(spark: SparkSession, endpoint: str) -> None:
    create(endpoint, partitions=1_000)
    save(frame_of(spark, range(5_000)), endpoint)
    found = check(endpoint, range(5_000))
    assert len(set(found["_timestamp"].to_pylist())) == 1
    read = spark.read.format("laminar").option("endpoint", endpoint).option("includeMetadata", "true").load(STREAM)
    # One split for each that has rows.
    assert read.rdd.getNumPartitions() == len(set(found["_partition"].to_pylist())) > 900


def test_rows_of_ten_megabytes_are_staged_and_come_back(spark: SparkSession, endpoint: str) -> None:
    create(endpoint)
    large = spark.range(3).selectExpr("id", f"repeat(chr(97 + cast(id as int)), {10 * MIB}) as text")
    save(large, endpoint)
    read = spark.read.format("laminar").option("endpoint", endpoint).load(STREAM)
    assert sorted(tuple(row) for row in read.selectExpr("id", "length(text)", "left(text, 1)").collect()) == [
        (0, 10 * MIB, "a"),
        (1, 10 * MIB, "b"),
        (2, 10 * MIB, "c"),
    ]


def test_rows_above_the_limit_of_the_stream_are_refused_with_it(spark: SparkSession, endpoint: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    with laminar.connect(Path(endpoint)) as db:
        db.create_stream(STREAM, schema=schema, limits=laminar.StreamLimits(row_bytes=MIB))
    large = spark.range(1).selectExpr("id", f"repeat('x', {2 * MIB}) as text")
    text = refused(lambda: save(large, endpoint))
    assert "InvalidError" in text
    assert str(MIB) in text
    check(endpoint, [])


def test_one_key_goes_to_one_partition_and_leaves_the_others_empty(spark: SparkSession, endpoint: str) -> None:
    schema = pa.schema([("shop", pa.string()), ("id", pa.int64())])
    with laminar.connect(Path(endpoint)) as db:
        db.create_stream(STREAM, partitions=4, schema=schema, key="shop")
    save(spark.range(0, 20_000, 1, 4).selectExpr("'one' as shop", "id"), endpoint)
    with laminar.connect(Path(endpoint)) as db:
        ends = sorted(end for _, end in db.stream(STREAM).offsets().values())
    assert ends == [0, 0, 0, 20_000]
    read = spark.read.format("laminar").option("endpoint", endpoint).load(STREAM)
    assert (read.count(), read.select("id").distinct().count()) == (20_000, 20_000)


def test_keys_of_a_kv_stream_keep_their_newest_row(spark: SparkSession, endpoint: str) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])
    with laminar.connect(Path(endpoint)) as db:
        db.create_stream(STREAM, partitions=3, schema=schema, key="id", machine="kv")
    # Above a megabyte: staged, and applied from the blocks.
    save(spark.range(20_000).selectExpr("id", "repeat(sha2(cast(id as string), 256), 4) as text"), endpoint)
    save(frame_of(spark, range(100)), endpoint)
    with laminar.connect(Path(endpoint)) as db:
        stream = db.stream(STREAM)
        assert stream.get(7) == {"id": 7, "text": "row 7"}
        assert len(stream.get(19_999)["text"]) == 256
        assert stream.scan().num_rows == 20_000
