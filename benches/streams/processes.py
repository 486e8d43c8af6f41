"""Starts ``child.py`` and talks to it."""

# ruff: noqa: S603 - the command is this interpreter with a file of this folder

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHILD = Path(__file__).with_name("child.py")
CALL_TIMEOUT_SECONDS = 600.0


class ChildFailedError(Exception):
    """A process of the benches ended without its answer; the message has the end of what it printed."""


class Child:
    """A running process that answers with lines of JSON."""

    def __init__(self, verb: str, **given: Any) -> None:
        self._verb = verb
        self._process = subprocess.Popen(
            [sys.executable, str(CHILD), verb, json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        # A process that hangs must not hang the benches.
        self._alarm = threading.Timer(CALL_TIMEOUT_SECONDS, self._process.kill)
        self._alarm.daemon = True
        self._alarm.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def answer(self) -> dict[str, Any]:
        """The next answer."""
        if self._process.stdout is None or self._process.stderr is None:
            raise ChildFailedError(f"{self._verb}: no pipes")
        line = self._process.stdout.readline()
        if not line:
            raise ChildFailedError(f"{self._verb}: {self._process.stderr.read().strip()[-1000:]}")
        said: dict[str, Any] = json.loads(line)
        return said

    def tell(self, line: str) -> None:
        """Send a line."""
        if self._process.stdin is None:
            raise ChildFailedError(f"{self._verb}: no pipes")
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """End it at once, also in the middle of something."""
        self._alarm.cancel()
        self._process.kill()
        self._process.communicate()

    def end(self) -> None:
        """End its input, and wait until it is gone."""
        self._alarm.cancel()
        try:
            self._process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def run(verb: str, **given: Any) -> dict[str, Any]:
    """Run a process of the benches to its one answer."""
    child = Child(verb, **given)
    try:
        return child.answer()
    finally:
        child.end()


@contextmanager
def node(folder: Path) -> Iterator[Child]:
    """A node in a process of its own, for measuring calls of others."""
    child = Child("node", folder=str(folder))
    try:
        child.answer()
        yield child
    finally:
        child.end()


def clients(  # noqa: PLR0913, PLR0917 - each is a number of the measurement
    folder: Path, processes: int, threads: int, count: int, size: int, seed: int
) -> dict[str, float]:
    """Clients in some processes, started together: rows a second of all."""
    children = [
        Child(
            "clients",
            folder=str(folder),
            threads=threads,
            count=count // processes,
            size=size,
            seed=seed,
            first=n * 100,
        )
        for n in range(processes)
    ]
    try:
        for child in children:
            child.answer()
        for child in children:
            child.tell("go")
        answers = [child.answer() for child in children]
    finally:
        for child in children:
            child.end()
    seconds = max(answer["end"] for answer in answers) - min(answer["begin"] for answer in answers)
    return {"rows_per_second": sum(answer["rows"] for answer in answers) / seconds, "seconds": seconds}
