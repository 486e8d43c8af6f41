"""Starts ``driver.py`` and talks to it."""

# ruff: noqa: S603 - the command is an interpreter of ours with a file of this folder

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DRIVER = HERE / "driver.py"
ANSWER_TIMEOUT_SECONDS = 120.0
END_TIMEOUT_SECONDS = 30.0
#: All processes of a run have it in their environment, also those that live on by themselves.
MARK = "LAMINAR_BENCH_RUN"

#: The same for everyone: nothing to look at, loopback, as many shuffle tasks as cores.
CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "3g",
    "spark.executor.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}


class DriverFailedError(Exception):
    """A driver did not do what it was asked; the message says why."""


class Driver:
    """A running Spark driver that answers with lines of JSON."""

    def __init__(  # noqa: PLR0913 - each is a property of the session
        self,
        name: str,
        folder: Path,
        master: str,
        *,
        python: Path | None = None,
        jars: Sequence[Path] = (),
        conf: dict[str, str] | None = None,
    ) -> None:
        self.name = name
        folder.mkdir(parents=True)
        self._log = folder / "driver.log"
        interpreter = str(python or sys.executable)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [interpreter, str(DRIVER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                env=_environment(folder, interpreter, ours=python is None),
                # Its JVM and Python workers end with it, also if it has to be killed.
                start_new_session=True,
            )
        all_conf = {
            **CONF,
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            **({"spark.jars": ",".join(str(jar) for jar in jars)} if jars else {}),
            **(conf or {}),
        }
        self.pyspark: str = self.ask("start", master=master, conf=all_conf, ceiling=python is None)["pyspark"]

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, verb: str, *, timeout: float = ANSWER_TIMEOUT_SECONDS, **given: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self.tell(verb, **given)
        return self.answer(verb, timeout=timeout)

    def tell(self, verb: str, **given: Any) -> None:
        """Send a command; ``answer`` takes the answer."""
        if self._process.stdin is None or not self.alive:
            raise DriverFailedError(f"{self.name}: {verb}: the driver is gone; {self._last_words()}")
        self._process.stdin.write(json.dumps({"verb": verb, **given}) + "\n")
        self._process.stdin.flush()

    def answer(self, verb: str, *, timeout: float = ANSWER_TIMEOUT_SECONDS) -> dict[str, Any]:
        """Wait for the answer to the last command."""
        if self._process.stdout is None:
            raise DriverFailedError(f"{self.name}: no pipes")
        # A query that hangs must not hang the benches.
        alarm = threading.Timer(timeout, self.kill)
        alarm.daemon = True
        alarm.start()
        try:
            line = self._process.stdout.readline()
        finally:
            alarm.cancel()
        if not line:
            raise DriverFailedError(f"{self.name}: {verb}: ended, or took over {timeout:.0f} s; {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise DriverFailedError(f"{self.name}: {verb}: {answer['error']}")
        return answer

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace").strip()[-1000:]

    def kill(self) -> None:
        """End it and all it started, at once."""
        # The group is there as long as one of its processes is; without any it is gone as wished.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """End its input, and wait until it is gone."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=END_TIMEOUT_SECONDS)
        # A JVM that is slow to end would take from the cores of the next measurement.
        self.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _environment(folder: Path, interpreter: str, *, ours: bool) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    # Workers find the ceilings' module by this path; a foreign environment must not see our packages.
    paths = [str(HERE.parent), *([os.environ["PYTHONPATH"]] if ours and "PYTHONPATH" in os.environ else [])]
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_PYTHON": interpreter,
        "PYSPARK_DRIVER_PYTHON": interpreter,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
    }
