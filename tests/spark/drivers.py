"""Drivers in processes of their own, to be killed, stopped and let go on; and the processes that Spark starts."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark

import laminar
from spark.holding import Control

if TYPE_CHECKING:
    from typing_extensions import Self

TESTS = Path(__file__).parent.parent
PACKAGES = Path(laminar.__file__).parent.parent
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
MASTER = "local-cluster[2,1,1024]"
#: Of a driver that is killed or stopped: one executor will do, and a JVM less starts sooner.
OWN_MASTER = "local-cluster[1,2,1024]"


def python_path() -> str:
    """What Spark's workers need to import: laminar, and the tests."""
    return os.pathsep.join([str(PACKAGES), str(TESTS)])


def parent(pid: int) -> int:
    """The process that started another."""
    found = re.search(r"^PPid:\s*(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found.group(1))


@contextmanager
def standalone(folder: Path, hosts: Sequence[str]) -> Iterator[str]:
    """Spark's own cluster manager, with a worker of one core on each host; gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    commands = [["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
    for host in hosts:
        work = str(folder / f"work-{host}")
        own = ["--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", work]
        commands.append(["worker.Worker", *own, master])
    environment = {**os.environ, "PYTHONPATH": python_path(), "SPARK_NO_DAEMONIZE": "1"}
    with ExitStack() as stack:
        log = stack.enter_context((folder / "standalone.log").open("w"))
        for name, *arguments in commands:
            process = subprocess.Popen(
                [SPARK_CLASS, f"org.apache.spark.deploy.{name}", *arguments],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
            stack.callback(_end, process)
        yield master


def _end(process: subprocess.Popen[Any]) -> None:
    """Ends a process and all of its session, also what stands still."""
    for number in (signal.SIGCONT, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
    process.wait(30)


class Driver:
    """One driver, with a query on a cluster of its own on this machine."""

    def __init__(self, folder: Path, name: str, holds: Iterable[str], **arguments: Any) -> None:
        self.control = Control(folder / f"control-{name}")
        for place in holds:
            self.control.hold(place)
        self._log = (folder / f"{name}.log").open("w")
        given = {"master": OWN_MASTER, "control": str(self.control.folder), **arguments}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "spark.driver", json.dumps(given)],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "PYTHONPATH": python_path()},
            start_new_session=True,
        )
        self.jvm: int | None = None

    def hear(self, word: str, timeout: float = 90.0) -> str:
        """The rest of the next line, which must begin with the word."""
        out = self._process.stdout
        assert out is not None
        ready, _, _ = select.select([out], [], [], timeout)
        assert ready, f"nothing heard of {word!r} within {timeout} s; see {self._log.name}"
        line = out.readline().strip()
        assert line.split(" ")[0] == word, f"{word!r} expected and {line!r} heard; see {self._log.name}"
        return line[len(word) :].strip()

    def started(self) -> Self:
        """Waits until the query has begun."""
        self.jvm = int(self.hear("jvm"))
        self.hear("run")
        return self

    def failed(self) -> str:
        """Waits until the query has failed, and returns the text of its exception."""
        return str(json.loads(self.hear("failed")))

    def ended(self) -> str | None:
        """Waits until the query has ended: the text of its exception, or nothing."""
        out = self._process.stdout
        assert out is not None
        line = out.readline().strip()
        word, _, rest = line.partition(" ")
        assert word in ("done", "failed"), f"{line!r} heard; see {self._log.name}"
        return None if word == "done" else str(json.loads(rest))

    def signal(self, number: int, *others: int) -> None:
        """Sends a signal to both processes that make up the driver, and to others."""
        assert self.jvm is not None
        for pid in (self.jvm, self._process.pid, *others):
            os.kill(pid, number)

    def kill(self) -> None:
        """Ends the driver as a crash of its machine does. Its executors find out by themselves."""
        self.signal(signal.SIGKILL)
        self._process.wait(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Its session: the driver, its JVM and those of its executors. Python workers end with these.
        _end(self._process)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()
