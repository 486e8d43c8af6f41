"""Streaming writes: ``df.writeStream.format("laminar")``."""

from __future__ import annotations

import shutil
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from nodes import wait_until

import laminar
from laminar.errors import InternalError, InvalidError
from laminar.spark.options import SinkOptions
from laminar.spark.stream_sink import StreamWriter
from laminar.spark.task import MicroBatch, Run, TaskMessage, checkpoint_query, micro_batch_of
from spark.driver import start
from spark.holding import Control
from spark.rows import STREAM, check, create, put_file, put_files, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROWS = 200


class Ingest:
    """A query that writes each file of a folder as a batch."""

    def __init__(self, spark: SparkSession, endpoint: str, folder: Path) -> None:
        self.spark = spark
        self.endpoint = endpoint
        self.source = folder / "in"
        self.checkpoint = folder / "checkpoint"

    def frame(self) -> DataFrame:
        schema = "id long, text string"
        return self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(self.source))

    def start(self, frame: DataFrame | None = None, **options: str) -> StreamingQuery:
        given = {"writer": "ingest", "endpoint": self.endpoint, "checkpointLocation": str(self.checkpoint), **options}
        writer = (frame or self.frame()).writeStream.format("laminar")
        for name, value in given.items():
            writer = writer.option(name, value) if value else writer
        return writer.trigger(availableNow=True).start(STREAM)

    def run(self, frame: DataFrame | None = None, **options: str) -> StreamingQuery:
        query = self.start(frame, **options)
        query.awaitTermination()
        return query

    def refused(self, frame: DataFrame | None = None, **options: str) -> str:
        with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark has a class for each phase
            self.run(frame, **options)
        return str(raised.value)


@pytest.fixture
def ingest(spark: SparkSession, endpoint: str, tmp_path: Path) -> Ingest:
    create(endpoint)
    (tmp_path / "in").mkdir()
    return Ingest(spark, endpoint, tmp_path)


def take_over(endpoint: str, query: str, batch: int) -> dict[str, Any]:
    """Another run of the query claims the stream, as the tasks of a second driver do."""
    with laminar.connect(Path(endpoint)) as db:
        native = db.stream(STREAM)._native
        taken: dict[str, Any] = native.begin_batch("ingest", uuid.uuid4().hex, query, batch, host="elsewhere", pid=42)
        return taken


def test_every_file_lands_once_as_one_entry_each(ingest: Ingest) -> None:
    ids = put_files(ingest.source, 3, ROWS)
    ingest.run()
    found = check(ingest.endpoint, ids)
    batches = found.group_by("_timestamp").aggregate([("id", "min"), ("id", "count")])
    assert sorted(batches["id_min"].to_pylist()) == [0, ROWS, 2 * ROWS]
    assert set(batches["id_count"].to_pylist()) == {ROWS}


def test_a_restarted_query_goes_on_with_the_next_batch(ingest: Ingest) -> None:
    ids = put_files(ingest.source, 2, ROWS)
    ingest.run()
    ingest.run()
    put_file(ingest.source, 2, range(2 * ROWS, 3 * ROWS))
    ingest.run()
    check(ingest.endpoint, [*ids, *range(2 * ROWS, 3 * ROWS)])


def test_a_batch_that_spark_does_not_know_as_done_is_recognised_however_it_is_split(ingest: Ingest) -> None:
    ids = put_files(ingest.source, 2, ROWS)
    ingest.run(ingest.frame().repartition(2))
    # As after a crash between the commit and Spark's note of it.
    for name in ("1", ".1.crc"):
        (ingest.checkpoint / "commits" / name).unlink(missing_ok=True)
    put_file(ingest.source, 2, range(2 * ROWS, 3 * ROWS))
    ingest.run(ingest.frame().repartition(5))
    check(ingest.endpoint, [*ids, *range(2 * ROWS, 3 * ROWS)])


def test_the_name_of_the_query_is_the_writer_if_none_is_given(ingest: Ingest) -> None:
    ids = put_files(ingest.source, 1, ROWS)
    query = (
        ingest.frame()
        .writeStream.format("laminar")
        .option("endpoint", ingest.endpoint)
        .option("checkpointLocation", str(ingest.checkpoint))
        .queryName("orders_ingest")
        .trigger(availableNow=True)
        .start(STREAM)
    )
    query.awaitTermination()
    check(ingest.endpoint, ids)
    with laminar.connect(Path(ingest.endpoint)) as db, pytest.raises(laminar.NotOwnedError, match="orders_ingest"):
        db.stream(STREAM).append(table([1]))


def test_a_query_without_any_name_is_refused_at_its_start(ingest: Ingest) -> None:
    put_files(ingest.source, 1, ROWS)
    assert 'set option("writer", …) or queryName(…)' in ingest.refused(writer="")
    check(ingest.endpoint, [])


def test_a_deleted_checkpoint_is_refused_with_both_ids_and_adopted_if_told_so(ingest: Ingest) -> None:
    ids = put_files(ingest.source, 1, ROWS)
    before = str(ingest.run().id)
    shutil.rmtree(ingest.checkpoint)
    text = ingest.refused()
    after = checkpoint_query(str(ingest.checkpoint))
    assert after is not None
    assert "InvalidError" in text
    for said in (before, after, "adoptQuery=true"):
        assert said in text
    check(ingest.endpoint, ids)
    ingest.run(adoptQuery="true")
    # The new query reads everything again, as it was told.
    check(ingest.endpoint, [*ids, *ids])


def test_batches_that_go_back_are_refused(ingest: Ingest) -> None:
    ids = put_files(ingest.source, 3, ROWS)
    ingest.run()
    for log in ("commits", "offsets"):
        for name in ("1", ".1.crc", "2", ".2.crc"):
            (ingest.checkpoint / log / name).unlink(missing_ok=True)
    text = ingest.refused()
    assert "StaleEpochError" in text or "InvalidError" in text
    check(ingest.endpoint, ids)


def test_a_superseded_query_stops_in_its_tasks_and_says_who_took_over(ingest: Ingest) -> None:
    ids = put_files(ingest.source, 1, ROWS)
    query = str(ingest.run().id)
    put_file(ingest.source, 1, range(ROWS, 2 * ROWS))
    control = Control(ingest.source.parent / "control")
    control.hold("write-1")
    started = start(
        ingest.spark,
        source=str(ingest.source),
        endpoint=ingest.endpoint,
        stream=STREAM,
        checkpoint=str(ingest.checkpoint),
        control=str(control.folder),
    )
    wait_until("a task of the second run is there", lambda: control.held("write-1"), timeout=60.0)
    taken = take_over(ingest.endpoint, query, 1)
    begun = time.monotonic()
    wait_until("the query fails", lambda: not started.isActive, timeout=60.0)
    seconds = time.monotonic() - begun
    control.let_go("write-1")
    text, epoch = str(started.exception()), taken["epochs"][0][2]
    for said in (
        "StaleEpochError",
        STREAM,
        "partition 0",
        f"epoch {epoch - 1}",
        f"epoch {epoch}",
        "ingest",
        "took over",
        time.strftime("%Y-%m-%dT", time.gmtime()),
        "has not landed",
    ):
        assert said in text, said
    # Within a second on a machine that does nothing else. A task that is not stopped is held for much longer.
    assert seconds < 10, f"it took {seconds:.1f} s to stop"
    check(ingest.endpoint, ids)


def test_a_batch_whose_tasks_have_no_rows_records_nothing(ingest: Ingest) -> None:
    put_files(ingest.source, 2, ROWS)
    query = ingest.run(ingest.frame().where("id < 0"))
    check(ingest.endpoint, [])
    with laminar.connect(Path(ingest.endpoint)) as db:
        assert db.stream(STREAM)._native.last_batch(str(query.id)) is None


def test_complete_mode_is_refused_with_what_to_do(ingest: Ingest) -> None:
    put_files(ingest.source, 1, ROWS)
    counts = ingest.frame().groupBy("id").count().selectExpr("id", "cast(count as string) as text")
    with pytest.raises(Exception, match="use outputMode append"):
        (
            counts.writeStream.format("laminar")
            .option("endpoint", ingest.endpoint)
            .option("checkpointLocation", str(ingest.checkpoint))
            .option("writer", "ingest")
            .outputMode("complete")
            .trigger(availableNow=True)
            .start(STREAM)
            .awaitTermination()
        )


def test_asynchronous_progress_is_refused(ingest: Ingest) -> None:
    put_files(ingest.source, 1, ROWS)
    assert "async" in ingest.refused(asyncProgressTrackingEnabled="true")
    with pytest.raises(InvalidError, match="asyncProgressTrackingEnabled is true"):
        SinkOptions.of(
            {"endpoint": ingest.endpoint, "path": STREAM, "writer": "w", "asyncProgressTrackingEnabled": "true"}
        ).check_streaming()


def test_columns_that_do_not_fit_are_refused_before_any_task(ingest: Ingest) -> None:
    put_files(ingest.source, 1, ROWS)
    text = ingest.refused(ingest.frame().withColumnRenamed("text", "tekst"))
    assert "there is no column tekst in the stream; did you mean text?" in text


class TestCommit:
    """What the driver's side does with messages, without Spark in between."""

    @pytest.fixture
    def writer(self, endpoint: str, tmp_path: Path) -> StreamWriter:
        from pyspark.sql.types import LongType, StructType  # noqa: PLC0415 - tests without Spark run without PySpark

        create(endpoint)
        given = {
            "endpoint": endpoint,
            "path": STREAM,
            "writer": "w",
            "checkpointLocation": str(tmp_path / "checkpoint"),
        }
        return StreamWriter(SinkOptions.of(given), StructType().add("id", LongType()), overwrite=False)

    def test_tasks_of_other_batches_are_a_bug(self, writer: StreamWriter) -> None:
        run = Run(1, ((0, 1, 2),), committed=False)
        one, other = (TaskMessage(MicroBatch("q", batch, "a" * 32), run, b"", 0) for batch in (3, 4))
        with pytest.raises(InternalError, match="its tasks worked for"):
            writer.commit([one, other], 3)
        with pytest.raises(InternalError, match="its tasks worked for"):
            writer.commit([one], 4)

    def test_tasks_with_other_epochs_are_refused(self, writer: StreamWriter) -> None:
        of = MicroBatch("q", 3, "a" * 32)
        messages = [TaskMessage(of, Run(1, ((0, 1, epoch),), committed=False), b"", 0) for epoch in (2, 3)]
        with pytest.raises(InvalidError, match="start the query again"):
            writer.commit([*messages], 3)

    def test_a_batch_without_tasks_records_nothing(self, writer: StreamWriter, endpoint: str, tmp_path: Path) -> None:
        query = str(uuid.uuid4())
        (tmp_path / "checkpoint").mkdir()
        (tmp_path / "checkpoint" / "metadata").write_text(f'{{"id":"{query}"}}')
        writer.commit([], 5)
        writer.commit([None], 6)
        with laminar.connect(Path(endpoint)) as db:
            native = db.stream(STREAM)._native
            assert native.last_batch(query) is None
            begun = native.begin_batch("w", uuid.uuid4().hex, query, 7)
            task = native.task_writer()
            task.add(table([1]).to_batches()[0])
            native.commit_batch([task.finish()], query=query, batch=7, node_id=begun["node_id"], epochs=begun["epochs"])
        writer.commit([], 7)
        with pytest.raises(InvalidError, match="batch 6 and batch 7 was committed"):
            writer.commit([], 6)

    def test_abort_deletes_nothing(self, writer: StreamWriter) -> None:
        writer.abort([None], 0)


def test_what_spark_does_not_tell_is_named() -> None:
    with pytest.raises(InvalidError, match=r"Spark did not set sql\.streaming\.queryId, spark\.jobGroup\.id"):
        micro_batch_of({"streaming.sql.batchId": "3"})
    with pytest.raises(InvalidError, match="do not change the job group"):
        micro_batch_of({"sql.streaming.queryId": "q", "streaming.sql.batchId": "3", "spark.jobGroup.id": "mine"})


def test_a_checkpoint_that_cannot_be_read_names_no_query(tmp_path: Path) -> None:
    assert checkpoint_query(None) is None
    assert checkpoint_query("s3a://bucket/checkpoint") is None
    assert checkpoint_query(str(tmp_path)) is None
    (tmp_path / "metadata").write_text('{"id":"7c1b"}')
    assert checkpoint_query(str(tmp_path)) == checkpoint_query(f"file://{tmp_path}") == "7c1b"
    (tmp_path / "metadata").write_text("[]")
    assert checkpoint_query(str(tmp_path)) is None


def test_large_batches_are_staged_and_read_back(ingest: Ingest) -> None:
    # More than an entry of the log carries, so that blocks are staged.
    ids = put_files(ingest.source, 1, 200_000)
    ingest.run()
    check(ingest.endpoint, ids)
    assert any((Path(ingest.endpoint) / "objects").rglob("*"))
