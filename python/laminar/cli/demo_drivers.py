"""The drivers of ``laminar demo``: each a session of its own, that can be stopped as a machine that hangs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from laminar.cli.demo_lines import JsonLines
from laminar.errors import UnavailableError

if TYPE_CHECKING:
    from typing_extensions import Self

#: How long anything in the story may take: Spark starts slowly on a busy machine.
DEADLINE_SECONDS = 120.0


class DriverProcess:
    """A Spark driver, with its executor and Python workers. What it says is kept."""

    def __init__(self, folder: str, endpoint: str, stream: str, name: str, hangs_in: int | None = None) -> None:
        self.name = name
        #: Queries that are inside the batch they hang in.
        self.held: set[str] = set()
        #: Queries that have ended, with the class and message of their error.
        self.ended: dict[str, dict[str, Any]] = {}
        #: Whether the batch that it hung in was written to Parquet.
        self.wrote = False
        self._errors = Path(folder) / f"{name}.err"
        command = [sys.executable, "-m", "laminar.spark.demo_driver", folder, endpoint, stream, name]
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                command + ([] if hangs_in is None else [str(hangs_in)]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self._lines = JsonLines(self._process.stdout, self._heard)

    @property
    def pid(self) -> int:
        """Its process id, and that of its session."""
        return self._process.pid

    def hear_until(self, condition: Callable[[], bool], what: str) -> None:
        """Take in what it says until the condition holds."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            if not self._lines.hear(0.1) and not condition():
                raise UnavailableError(f"the {self.name} driver ended before {what}: {self._last_words()}")
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"the {self.name} driver: {what} did not come within {DEADLINE_SECONDS:.0f} s: {self._last_words()}"
                )

    def hear_to_its_end(self) -> None:
        """Wait until it is gone."""
        while self._lines.hear(0.1):
            pass
        self._process.wait(DEADLINE_SECONDS)

    def _heard(self, said: dict[str, Any]) -> None:
        if "held" in said:
            self.held.add(said["held"])
        elif "wrote" in said:
            self.wrote = True
        elif "ended" in said:
            self.ended[said["ended"]] = said

    def _last_words(self) -> str:
        lines = self._errors.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def pause(self) -> None:
        """Stop all its processes in their tracks, as a machine that hangs does."""
        stopped: set[int] = set()
        while new := _of_session(self.pid) - stopped:
            _send(new, signal.SIGSTOP)
            stopped |= new

    def wake(self) -> None:
        """Let them go on where they stood."""
        _send(_of_session(self.pid), signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # All of them, also when the driver itself is gone: Java or a worker may have been left.
        _send(_of_session(self.pid), signal.SIGKILL)
        self._process.wait(DEADLINE_SECONDS)
        if self._process.stdout is not None:
            self._process.stdout.close()


def _of_session(session: int) -> set[int]:
    """The processes of a driver. Spark's Python workers make process groups of their own, and stay in its session."""
    if Path("/proc/self").exists():
        all_pids = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
    else:
        listed = subprocess.run(["ps", "-A", "-o", "pid="], capture_output=True, check=True)  # noqa: S607 - of the system
        all_pids = [int(pid) for pid in listed.stdout.split()]
    return {pid for pid in all_pids if _session_of(pid) == session}


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


__all__ = ["DriverProcess"]
