"""``fenced``: sinks without an owner of their own, written to by ``foreachBatch``."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import laminar
from laminar.errors import InvalidError
from laminar.spark import fenced
from spark.rows import put_file, put_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from laminar.spark.fence import Fenced, Transaction

FENCE = "/fences/orders"
ROWS = 50


class Target:
    """Somewhere that keeps what it is given, and does not know by whom."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.transactions: list[Transaction] = []
        self.in_between: Any = None

    def write(self, frame: DataFrame, batch: int, transaction: Transaction) -> None:
        assert batch == transaction.version
        self.transactions.append(transaction)
        self.ids += sorted(row.id for row in frame.collect())
        if self.in_between is not None:
            self.in_between()


class Pipeline:
    def __init__(self, spark: SparkSession, endpoint: str, folder: Path) -> None:
        self.spark = spark
        self.endpoint = endpoint
        self.source = folder / "in"
        self.checkpoint = folder / "checkpoint"
        self.target = Target()

    def fenced(self, **options: Any) -> Fenced:
        return fenced(FENCE, "orders", self.target.write, endpoint=self.endpoint, **options)

    def run(self, function: Any) -> str:
        frame = self.spark.readStream.schema("id long, text string").option("maxFilesPerTrigger", 1)
        query = (
            frame.parquet(str(self.source))
            .writeStream.foreachBatch(function)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return str(query.id)

    def forget(self, batch: int) -> None:
        """As after a crash before Spark's note that the batch is done."""
        for name in (f"{batch}", f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)


@pytest.fixture
def pipeline(spark: SparkSession, endpoint: str, tmp_path: Path) -> Pipeline:
    with laminar.connect(Path(endpoint)) as db:
        db.create_stream(FENCE)
    return Pipeline(spark, endpoint, tmp_path)


def test_every_batch_is_written_once_under_one_epoch(pipeline: Pipeline) -> None:
    ids = put_files(pipeline.source, 3, ROWS)
    query = pipeline.run(pipeline.fenced())
    assert pipeline.target.ids == ids
    found = pipeline.target.transactions
    assert [transaction.version for transaction in found] == [0, 1, 2]
    assert {transaction.app_id for transaction in found} == {f"{FENCE}/orders/{query}"}
    assert len({transaction.epoch for transaction in found}) == 1
    assert [transaction.id for transaction in found] == sorted(transaction.id for transaction in found)


def test_a_batch_that_is_recorded_is_skipped(pipeline: Pipeline) -> None:
    ids = put_files(pipeline.source, 2, ROWS)
    pipeline.run(pipeline.fenced())
    pipeline.forget(1)
    put_file(pipeline.source, 2, range(2 * ROWS, 3 * ROWS))
    pipeline.run(pipeline.fenced())
    assert pipeline.target.ids == [*ids, *range(2 * ROWS, 3 * ROWS)]
    epochs = [transaction.epoch for transaction in pipeline.target.transactions]
    assert epochs[0] == epochs[1] < epochs[2]


def test_a_batch_whose_function_failed_is_repeated_under_the_same_version(pipeline: Pipeline) -> None:
    ids = put_files(pipeline.source, 1, ROWS)

    def fail() -> None:
        raise RuntimeError("the target is away")

    pipeline.target.in_between = fail
    with pytest.raises(Exception, match="the target is away"):
        pipeline.run(pipeline.fenced())
    pipeline.target.in_between = None
    pipeline.run(pipeline.fenced())
    assert pipeline.target.ids == [*ids, *ids]
    first, second = pipeline.target.transactions
    assert (first.app_id, first.version) == (second.app_id, second.version)
    assert first.epoch < second.epoch


def test_a_takeover_inside_the_function_fails_the_query_and_records_nothing(pipeline: Pipeline) -> None:
    put_files(pipeline.source, 1, ROWS)
    taken: list[dict[str, Any]] = []

    def take_over() -> None:
        query = pipeline.target.transactions[-1].app_id.rsplit("/", 1)[1]
        with laminar.connect(Path(pipeline.endpoint)) as db:
            taken.append(db.stream(FENCE)._native.begin_batch("orders", uuid.uuid4().hex, query, 0))

    pipeline.target.in_between = take_over
    with pytest.raises(Exception, match="StaleEpochError"):
        pipeline.run(pipeline.fenced())
    query = pipeline.target.transactions[-1].app_id.rsplit("/", 1)[1]
    with laminar.connect(Path(pipeline.endpoint)) as db:
        assert db.stream(FENCE)._native.last_batch(query) is None
    assert taken[0]["epochs"][0][2] > pipeline.target.transactions[-1].epoch


def test_a_name_of_another_query_is_refused_unless_it_is_adopted(pipeline: Pipeline) -> None:
    put_files(pipeline.source, 1, ROWS)
    pipeline.run(pipeline.fenced())
    pipeline.checkpoint = pipeline.checkpoint.with_name("another")
    with pytest.raises(Exception, match="adoptQuery=true"):
        pipeline.run(pipeline.fenced())
    pipeline.run(pipeline.fenced(adopt_query=True))
    assert len(pipeline.target.transactions) == 2


def test_what_was_held_can_be_given_back(pipeline: Pipeline) -> None:
    put_files(pipeline.source, 1, ROWS)
    function = pipeline.fenced()
    pipeline.run(function)
    with laminar.connect(Path(pipeline.endpoint)) as db:
        with pytest.raises(laminar.NotOwnedError):
            db.stream(FENCE).append_bytes(0, [b"managed"])
        function.release()
        db.stream(FENCE).append_bytes(0, [b"managed"])
    function.release()


def test_a_stream_that_is_not_there_is_refused_with_the_nearest_name(pipeline: Pipeline) -> None:
    with pytest.raises(InvalidError, match=f"did you mean {FENCE}"):
        fenced("/fence/order", "orders", pipeline.target.write, endpoint=pipeline.endpoint)
    with pytest.raises(InvalidError, match="the writer has no name"):
        fenced(FENCE, "", pipeline.target.write, endpoint=pipeline.endpoint)


def test_outside_of_a_query_it_says_what_is_missing(spark: SparkSession, pipeline: Pipeline) -> None:
    with pytest.raises(InvalidError, match="does not run inside a micro-batch"):
        pipeline.fenced()(spark.range(1), 0)
