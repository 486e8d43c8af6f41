"""Batch writes: ``df.write.format("laminar")``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import laminar
from spark.rows import SCHEMA, STREAM, check, create, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame_of(spark: SparkSession, ids: range, tasks: int = 3) -> DataFrame:
    return spark.range(ids.start, ids.stop, 1, tasks).selectExpr("id", "concat('row ', id) as text")


def save(frame: DataFrame, endpoint: str, mode: str = "append", path: str = STREAM, **options: str) -> None:
    frame.write.format("laminar").option("endpoint", endpoint).options(**options).mode(mode).save(path)


def refused(spark_call: Any) -> str:
    """The text of the error that a call into Spark raises."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark has a class for each phase
        spark_call()
    return str(raised.value)


def test_rows_of_all_tasks_land_in_one_entry(spark: SparkSession, endpoint: str) -> None:
    create(endpoint)
    save(frame_of(spark, range(10_000), tasks=4), endpoint)
    found = check(endpoint, range(10_000))
    assert len(set(found["_timestamp"].to_pylist())) == 1


def test_rows_go_where_an_append_puts_them(spark: SparkSession, endpoint: str) -> None:
    create(endpoint)
    create(endpoint, "/appended")
    save(frame_of(spark, range(300)), endpoint)
    with laminar.connect(Path(endpoint)) as db:
        db.stream("/appended").append(table(range(300)))
    places = [
        {(row["id"], row["_partition"]) for row in check(endpoint, range(300), path).to_pylist()}
        for path in (STREAM, "/appended")
    ]
    assert places[0] == places[1]


def test_a_frame_without_rows_writes_nothing(spark: SparkSession, endpoint: str) -> None:
    create(endpoint)
    save(frame_of(spark, range(10)).where("id < 0"), endpoint)
    save(spark.createDataFrame([], "id long, text string"), endpoint)
    check(endpoint, [])


def test_overwrite_replaces_rows_and_offsets_go_on(spark: SparkSession, endpoint: str) -> None:
    create(endpoint)
    save(frame_of(spark, range(100)), endpoint)
    save(frame_of(spark, range(200, 250)), endpoint, mode="overwrite")
    check(endpoint, range(200, 250))
    with laminar.connect(Path(endpoint)) as db:
        offsets = db.stream(STREAM).offsets()
    assert sum(first for first, _ in offsets.values()) == 100
    assert sum(end for _, end in offsets.values()) == 150


def test_overwrite_with_no_rows_empties_the_stream(spark: SparkSession, endpoint: str) -> None:
    create(endpoint)
    save(frame_of(spark, range(100)), endpoint)
    save(frame_of(spark, range(1)).where("id < 0"), endpoint, mode="overwrite")
    check(endpoint, [])


def test_overwrite_of_a_kv_stream_is_refused_before_any_task(spark: SparkSession, endpoint: str) -> None:
    with laminar.connect(Path(endpoint)) as db:
        db.create_stream("/kv", schema=SCHEMA, key="id", machine="kv")
    text = refused(lambda: save(frame_of(spark, range(3)), endpoint, mode="overwrite", path="/kv"))
    assert "InvalidError" in text
    assert "this one is kv" in text


def test_a_version_lands_once_and_never_goes_back(spark: SparkSession, endpoint: str) -> None:
    create(endpoint)
    for _ in range(2):
        save(frame_of(spark, range(50)), endpoint, txnAppId="nightly", txnVersion="7")
    check(endpoint, range(50))
    text = refused(lambda: save(frame_of(spark, range(50, 60)), endpoint, txnAppId="nightly", txnVersion="6"))
    assert "txnVersion 6 of txnAppId 'nightly' is below 7" in text
    save(frame_of(spark, range(50, 60)), endpoint, txnAppId="nightly", txnVersion="8")
    check(endpoint, range(60))


def test_a_version_without_rows_is_done_too(spark: SparkSession, endpoint: str) -> None:
    create(endpoint)
    save(frame_of(spark, range(10)).where("id < 0"), endpoint, txnAppId="nightly", txnVersion="3")
    save(frame_of(spark, range(10)), endpoint, txnAppId="nightly", txnVersion="3")
    check(endpoint, [])
    assert "is below 3" in refused(
        lambda: save(frame_of(spark, range(10)), endpoint, txnAppId="nightly", txnVersion="2")
    )


def test_jobs_of_one_writer_have_transactions_of_their_own(spark: SparkSession, endpoint: str) -> None:
    create(endpoint)
    for begin, app in ((0, "batch"), (10, "load-01-31"), (20, "load-02-01")):
        for _ in range(2):
            save(frame_of(spark, range(begin, begin + 10)), endpoint, writer="nightly", txnAppId=app, txnVersion="0")
    for begin in (30, 40):
        save(frame_of(spark, range(begin, begin + 10)), endpoint, writer="nightly")
    with laminar.connect(Path(endpoint)) as db:
        db.stream(STREAM).append(table([50]))
    check(endpoint, range(51))


def test_a_version_needs_both_options(spark: SparkSession, endpoint: str) -> None:
    create(endpoint)
    text = refused(lambda: save(frame_of(spark, range(1)), endpoint, txnAppId="nightly"))
    assert "txnAppId is given without txnVersion" in text


def test_a_managed_write_to_a_claimed_stream_names_the_holder(spark: SparkSession, endpoint: str) -> None:
    create(endpoint)
    with laminar.connect(Path(endpoint)) as db, db.stream(STREAM).writer("orders-ingest"):
        text = refused(lambda: save(frame_of(spark, range(10)), endpoint))
    assert "NotOwnedError" in text
    assert "orders-ingest" in text
    check(endpoint, [])


def test_a_job_with_a_writer_fences_the_holder_and_gives_the_stream_back(spark: SparkSession, endpoint: str) -> None:
    create(endpoint)
    with laminar.connect(Path(endpoint)) as db:
        old = db.stream(STREAM).writer("old")
        save(frame_of(spark, range(10)), endpoint, writer="nightly")
        with pytest.raises(laminar.StaleEpochError):
            old.append(table([99]))
        db.stream(STREAM).append(table([10]))
    save(frame_of(spark, range(11, 20)), endpoint, writer="nightly")
    save(frame_of(spark, range(20, 30)), endpoint, writer="nightly", txnAppId="nightly", txnVersion="0")
    save(frame_of(spark, range(20, 30)), endpoint, writer="nightly", txnAppId="nightly", txnVersion="0")
    check(endpoint, range(30))


def test_a_job_that_fails_leaves_no_rows_and_no_claim(spark: SparkSession, endpoint: str) -> None:
    create(endpoint)
    broken = frame_of(spark, range(100)).selectExpr("id", "if(id = 99, raise_error('broken row'), text) as text")
    assert "broken row" in refused(lambda: save(broken, endpoint, writer="nightly"))
    with laminar.connect(Path(endpoint)) as db:
        db.stream(STREAM).append(table([1]))
    check(endpoint, [1])


def test_columns_go_by_name_and_missing_ones_become_null(spark: SparkSession, endpoint: str) -> None:
    with laminar.connect(Path(endpoint)) as db:
        db.create_stream(
            "/wide",
            key="id",
            schema=pa.schema(
                [
                    pa.field("id", pa.uint32(), nullable=False),
                    ("note", pa.large_string()),
                    ("at", pa.timestamp("ms", "UTC")),
                ]
            ),
        )
    frame = spark.sql("select timestamp'2026-01-02 03:04:05.678' as at, 7L as id")
    save(frame, endpoint, path="/wide")
    with laminar.connect(Path(endpoint)) as db:
        row = db.stream("/wide").read().read_all().to_pylist()[0]
    assert (row["id"], row["note"], row["at"].isoformat()) == (7, None, "2026-01-02T03:04:05.678000+00:00")


@pytest.mark.parametrize(
    ("select", "said"),
    [
        ("select 1L as id, 'a' as txt", "there is no column txt in the stream; did you mean text?"),
        ("select 'a' as text", "column id may not be null and the DataFrame does not have it"),
        ("select '1' as id, 'a' as text", "column id is string in the DataFrame and int64 in the stream; cast it"),
        ("select 1.5D as id", "column id is double in the DataFrame and int64 in the stream; cast it"),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_any_task(
    spark: SparkSession, endpoint: str, select: str, said: str
) -> None:
    create(endpoint)
    begun = time.monotonic()
    text = refused(lambda: save(spark.sql(select), endpoint))
    assert said in text
    assert time.monotonic() - begun < 5


def test_a_value_that_does_not_fit_fails_the_job_and_writes_nothing(spark: SparkSession, endpoint: str) -> None:
    with laminar.connect(Path(endpoint)) as db:
        db.create_stream("/small", schema=pa.schema({"id": pa.int8()}))
    text = refused(lambda: save(spark.range(120, 130), endpoint, path="/small"))
    assert "column id: a value of type int64 does not fit int8" in text
    check_empty(endpoint, "/small")


def test_a_null_in_a_column_without_nulls_fails_the_job(spark: SparkSession, endpoint: str) -> None:
    create(endpoint)
    text = refused(lambda: save(spark.sql("select cast(null as bigint) as id, 'a' as text"), endpoint))
    assert "InvalidError" in text
    check_empty(endpoint, STREAM)


def check_empty(endpoint: str, path: str) -> None:
    with laminar.connect(Path(endpoint)) as db:
        assert db.stream(path).read().read_all().num_rows == 0
