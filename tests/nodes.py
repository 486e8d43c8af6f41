"""Other processes for the tests of streams: each runs a script against a folder and is talked to by lines."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

PRELUDE = """
import os, sys, time
import pyarrow as pa
import laminar
folder = sys.argv[1]
def say(*words):
    print(*words, flush=True)
def wait():
    line = sys.stdin.readline()
    if not line:
        os._exit(3)
    return line.strip()
"""


class Process:
    """A Python process that runs a script; ``say`` and ``wait`` in it are lines to and from the test."""

    def __init__(self, script: str, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + script, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def hear(self, timeout: float = 30.0) -> str:
        """The next line that the process says."""
        out = self._process.stdout
        assert out is not None
        ready, _, _ = select.select([out], [], [], timeout)
        assert ready, f"process {self.pid} said nothing within {timeout} s"
        return out.readline().strip()

    def tell(self, line: str = "go") -> None:
        pipe = self._process.stdin
        assert pipe is not None
        pipe.write(line + "\n")
        pipe.flush()

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def ended(self, timeout: float = 30.0) -> int:
        return self._process.wait(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            # One that is stopped must go on to end.
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
        self._process.wait(30)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def wait_until(what: str, condition: Callable[[], Any], timeout: float = 20.0) -> Any:
    """Waits for a condition, and names it if it does not come."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(0.01)


class Count:
    """A machine that counts rows; in a module, so that another process can import it."""

    def __init__(self) -> None:
        self.rows = 0

    def apply(self, batch: Any) -> None:
        self.rows += batch.num_rows

    def snapshot(self) -> bytes:
        return str(self.rows).encode()

    def restore(self, state: bytes) -> None:
        self.rows = int(state)
