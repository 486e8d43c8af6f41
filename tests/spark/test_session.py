"""A local session beside one that the user has."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError

import laminar.spark
from laminar.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ZONE, TASKS = "spark.sql.session.timeZone", "spark.sql.shuffle.partitions"


@pytest.fixture
def mine(spark: SparkSession) -> Iterator[SparkSession]:
    """A session whose settings the user chose."""
    before = {name: spark.conf.get(name) for name in (ZONE, TASKS)}
    spark.conf.set(ZONE, "Asia/Tokyo")
    spark.conf.set(TASKS, "17")
    yield spark
    for name, value in before.items():
        spark.conf.set(name, str(value))


def settings(session: SparkSession) -> tuple[str | None, str | None]:
    return session.conf.get(ZONE), session.conf.get(TASKS)


def test_session_of_the_user_is_taken_as_it_is(mine: SparkSession) -> None:
    found = local_session("a job")
    assert settings(found) == settings(mine) == ("Asia/Tokyo", "17")
    found.createDataFrame([(1,)], "id long").createOrReplaceTempView("seen_by_both")
    assert mine.table("seen_by_both").count() == 1


def test_settings_that_are_given_go_to_a_session_beside_it(mine: SparkSession) -> None:
    found = local_session("a job", **{TASKS: "3"})
    assert found.conf.get(TASKS) == "3"
    assert settings(mine) == ("Asia/Tokyo", "17")
    assert found.sparkContext is mine.sparkContext


def test_thread_of_the_user_writes_after_it_has_registered(spark: SparkSession, endpoint: str) -> None:
    with laminar.connect(endpoint) as db:
        db.create_stream("/a", schema=pa.schema({"id": pa.int64()}))
    frame = spark.range(3)
    said: list[str] = []

    def write() -> None:
        for register in (False, True):
            if register:
                laminar.spark.register(spark)
            try:
                frame.write.format("laminar").option("endpoint", endpoint).mode("append").save("/a")
                said.append("written")
            except Py4JError as error:
                said.append(str(error))

    thread = threading.Thread(target=write)
    thread.start()
    thread.join(60)
    # As docs/spark.md tells it: where Spark finds the format by itself one day, the page is to change.
    assert "Failed to find the data source: laminar" in said[0]
    assert said[1] == "written"


def test_thread_of_the_user_gets_the_session_of_the_process(mine: SparkSession) -> None:
    found: list[tuple[str | None, str | None]] = []
    thread = threading.Thread(target=lambda: found.append(settings(local_session("a job"))))
    thread.start()
    thread.join(60)
    assert found == [settings(mine)]
