"""A query under random faults: one of each kind here, and many in ``make soak`` (LAMINAR_SPARK_SOAK_ROUNDS).

Files keep coming while drivers are killed, stopped and replaced, and the node is killed. After every round the stream
is a beginning of the input, and at the end it is the input, row for row.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from nodes import wait_until

import laminar
from spark.drivers import Driver
from spark.rows import STREAM, check, create, put_file

ROUNDS = int(os.environ.get("LAMINAR_SPARK_SOAK_ROUNDS", "4"))
SEED = int(os.environ.get("LAMINAR_SPARK_SOAK_SEED", str(random.randrange(1 << 32))))  # noqa: S311 - told if it fails
FILES_A_ROUND = 6
FILE_ROWS = 300

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200 + 100 * ROUNDS)]


class Soak:
    """The query, its input, and what can happen to it."""

    def __init__(self, endpoint: str, folder: Path) -> None:
        create(endpoint)
        self._endpoint = endpoint
        self._folder = folder
        self._files = 0
        self._names = (f"driver-{number}" for number in itertools.count())
        self._chance = random.Random(SEED)  # noqa: S311 - the same again with the same seed

    def more_files(self) -> None:
        for _ in range(FILES_A_ROUND):
            put_file(self._folder / "in", self._files, self._ids(self._files, self._files + 1))
            self._files += 1

    def _ids(self, first: int, end: int) -> range:
        return range(first * FILE_ROWS, end * FILE_ROWS)

    def driver(self) -> Driver:
        return Driver(
            self._folder,
            next(self._names),
            [],
            master="local[2]",
            source=str(self._folder / "in"),
            endpoint=self._endpoint,
            stream=STREAM,
            checkpoint=str(self._folder / "checkpoint"),
        )

    def cluster(self) -> laminar.Cluster:
        """A client that starts the node again if it was killed. The node stays until rows are compared."""
        return laminar.open(Path(self._endpoint), detached=True, client_timeout=60.0)

    def rows(self) -> int:
        with self.cluster() as db:
            return sum(end for _, end in db.stream(STREAM).offsets().values())

    def wait_for_some_rows(self, batches: int) -> None:
        """Until so many more batches have landed, or all there are."""
        wanted = min(self.rows() + batches * FILE_ROWS, self._files * FILE_ROWS)
        wait_until("batches land", lambda: self.rows() >= wanted, timeout=90.0)

    def kill_the_driver(self) -> None:
        with self.driver() as driver:
            driver.started()
            self.wait_for_some_rows(self._chance.randrange(FILES_A_ROUND))
            driver.kill()

    def stop_the_driver_past_a_takeover(self) -> None:
        with self.driver() as first:
            first.started()
            self.wait_for_some_rows(self._chance.randrange(3))
            first.signal(signal.SIGSTOP)
            with self.driver() as second:
                text = second.started().ended()
            assert text is None, text
            first.signal(signal.SIGCONT)
            # It had finished, or it is refused; it never goes on.
            first.ended()

    def kill_the_node(self) -> None:
        with self.driver() as driver:
            driver.started()
            self.wait_for_some_rows(self._chance.randrange(3))
            with self.cluster() as db:
                pid = db.status(partitions=False).node.pid
            os.kill(pid, signal.SIGKILL)
            self.rows()  # opens the folder again
            # A micro-batch that met the gap may have failed its query; nothing of it is half there.
            driver.ended()

    def start_two_at_once(self) -> None:
        with ExitStack() as stack:
            for driver in [stack.enter_context(self.driver()) for _ in range(2)]:
                driver.started().ended()

    def finish(self) -> None:
        with self.driver() as driver:
            text = driver.started().ended()
        assert text is None, text

    def check_beginning(self) -> None:
        """What is there are the first files, whole: micro-batches land in order and once."""
        there = self.rows()
        assert there % FILE_ROWS == 0
        check(self._endpoint, self._ids(0, there // FILE_ROWS))

    def check_all(self) -> None:
        check(self._endpoint, self._ids(0, self._files))

    def faults(self) -> list[Callable[[], None]]:
        kinds = [
            self.kill_the_driver,
            self.stop_the_driver_past_a_takeover,
            self.kill_the_node,
            self.start_two_at_once,
        ]
        rounds = [kinds[number % len(kinds)] for number in range(ROUNDS)]
        self._chance.shuffle(rounds)
        return rounds


def test_a_query_under_random_faults_loses_and_doubles_nothing(endpoint: str, tmp_path: Path) -> None:
    sys.stderr.write(f"seed {SEED}\n")
    soak = Soak(endpoint, tmp_path)
    for fault in soak.faults():
        soak.more_files()
        fault()
        soak.check_beginning()
    soak.finish()
    soak.check_all()
