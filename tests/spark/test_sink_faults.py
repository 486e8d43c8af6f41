"""Faults under a streaming query, on real executors. After each the stream is compared with the input, row for row."""

from __future__ import annotations

import os
import shutil
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from nodes import wait_until

import laminar
from spark.driver import start
from spark.drivers import MASTER, Driver, parent, python_path, standalone
from spark.holding import Control
from spark.rows import STREAM, check, create, put_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

ROWS = 2_000

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "500ms",
    # A task that is held has read its rows already, and is not slow by how many it reads a second.
    "spark.speculation.efficiency.enabled": "false",
    "spark.executor.memory": "1g",
}


class Job:
    """The arguments of one query, for this process or another."""

    def __init__(self, endpoint: str, folder: Path, files: int) -> None:
        create(endpoint)
        self.folder = folder
        self.endpoint = endpoint
        self.ids = put_files(folder / "in", files, ROWS)
        self.checkpoint = folder / "checkpoint"
        self.control = Control(folder / "control")

    def arguments(self) -> dict[str, Any]:
        return {
            "source": str(self.folder / "in"),
            "endpoint": self.endpoint,
            "stream": STREAM,
            "checkpoint": str(self.checkpoint),
        }

    def driver(self, name: str, *holds: str) -> Driver:
        return Driver(self.folder, name, holds, **self.arguments())

    def start(self, spark: SparkSession, **options: Any) -> StreamingQuery:
        return start(spark, **{**self.arguments(), "control": str(self.control.folder), **options})

    def run(self, spark: SparkSession, **options: Any) -> None:
        query = self.start(spark, **options)
        assert query.awaitTermination(90), "the query does not end"

    def refused(self, spark: SparkSession, **options: Any) -> str:
        with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark has a class for each phase
            self.run(spark, **options)
        return str(raised.value)

    def check(self) -> None:
        check(self.endpoint, self.ids)


@pytest.fixture
def job(endpoint: str, tmp_path: Path) -> Job:
    return Job(endpoint, tmp_path, files=3)


@pytest.fixture(scope="module")
def executors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two executors of one core each, which repeats tasks that fail."""
    from laminar.spark.session import local_session  # noqa: PLC0415 - tests without Spark run without PySpark

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = python_path()
    with warnings.catch_warnings():
        # What PySpark and py4j leave open at the end is theirs.
        warnings.simplefilter("ignore")
        session = local_session(
            "faults",
            MASTER,
            **{
                "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
                "spark.executorEnv.PYTHONPATH": python_path(),
            },
        )
        yield session
        session.stop()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


def held_at(control: Control, place: str) -> list[int]:
    return wait_until(f"somebody comes to {place}", lambda: control.held(place), timeout=90.0)  # type: ignore[no-any-return]


def test_a_driver_killed_before_stage_after_stage_and_after_commit_loses_and_doubles_nothing(job: Job) -> None:
    for name, place, landed in (("first", "write-1", 1), ("second", "commit-1", 1), ("third", "committed-1", 2)):
        with job.driver(name, place) as driver:
            driver.started()
            held_at(driver.control, place)
            driver.kill()
        check(job.endpoint, job.ids[: landed * ROWS])
    with job.driver("fourth") as driver:
        driver.started().hear("done")
    job.check()


def test_a_driver_stopped_past_a_takeover_is_refused_when_it_goes_on(job: Job) -> None:
    with job.driver("first", "commit-1") as first, job.driver("second", "start") as second:
        first.started()
        held = held_at(first.control, "commit-1")
        first.signal(signal.SIGSTOP, *held)
        first.control.let_go("commit-1")
        second.control.let_go("start")
        second.started().hear("done")
        first.signal(signal.SIGCONT, *held)
        text = first.failed()
    assert "StaleEpochError" in text
    # The second went on to batch 2, and only the last batch of a query is remembered.
    for said in (STREAM, "partition ", "epoch ", "took over", "a later batch of its query was committed"):
        assert said in text, text
    job.check()


def test_two_drivers_at_once_on_one_checkpoint_lose_and_double_nothing(job: Job) -> None:
    with job.driver("first") as first, job.driver("second") as second:
        ends = [driver.started().ended() for driver in (first, second)]
    if all(ends):
        with job.driver("third") as third:
            third.started().hear("done")
    job.check()


def test_an_executor_killed_in_mid_batch_loses_and_doubles_nothing(executors: SparkSession, job: Job) -> None:
    job.control.hold("write-1")
    query = job.start(executors)
    worker = held_at(job.control, "write-1")[0]
    # A worker is forked by a daemon, which the executor started.
    os.kill(parent(parent(worker)), signal.SIGKILL)
    job.control.let_go("write-1")
    assert query.awaitTermination(90)
    job.check()


def test_tasks_that_fail_after_staging_are_repeated(executors: SparkSession, job: Job) -> None:
    job.control.break_at("staged-1")
    job.run(executors)
    job.check()


def test_a_slow_task_and_its_speculative_copy_land_once(job: Job) -> None:
    # Spark runs a copy on another host only, and local-cluster has one: these are two, as far as Spark can tell.
    with standalone(job.folder, ["127.0.0.1", "127.0.0.2"]) as master:
        driver = Driver(job.folder, "first", ["first-task-1"], **job.arguments(), master=master, conf=SPECULATION)
        with driver:
            driver.started().hear("done")
            assert driver.control.held("first-task-1")
            driver.control.let_go("first-task-1")
    job.check()


def test_a_stage_that_fails_for_ever_fails_the_query_and_writes_nothing(executors: SparkSession, job: Job) -> None:
    job.control.break_at("write-1")
    assert "told to fail at write-1" in job.refused(executors)
    check(job.endpoint, job.ids[:ROWS])
    job.control.let_go("fail-write-1")
    job.run(executors)
    job.check()


def test_a_batch_repeated_with_another_number_of_tasks_is_recognised(executors: SparkSession, job: Job) -> None:
    job.control.break_at("committed-1")
    assert "told to fail at committed-1" in job.refused(executors, tasks=2)
    check(job.endpoint, job.ids[: 2 * ROWS])
    job.control.let_go("fail-committed-1")
    job.run(executors, tasks=5)
    job.check()


def test_a_deleted_checkpoint_is_refused(executors: SparkSession, job: Job) -> None:
    job.run(executors)
    shutil.rmtree(job.checkpoint)
    assert "adoptQuery=true" in job.refused(executors)
    job.check()


@pytest.mark.parametrize("place", ["write-1", "commit-1"])
def test_a_node_killed_and_restarted_under_a_query_loses_and_doubles_nothing(
    executors: SparkSession, job: Job, place: str
) -> None:
    job.control.hold(place)
    query = job.start(executors)
    held_at(job.control, place)
    with laminar.connect(Path(job.endpoint)) as db:
        os.kill(db._native.hello()["pid"], signal.SIGKILL)
    job.control.let_go(place)
    laminar.open(job.endpoint, detached=True, client_timeout=60.0).close()
    assert query.awaitTermination(90)
    job.check()
