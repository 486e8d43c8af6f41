"""The processes of ``laminar demo``: writers that are talked to by lines, and the node, which ends with the story."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from laminar.cli.demo_lines import JsonLines
from laminar.errors import UnavailableError

if TYPE_CHECKING:
    from typing_extensions import Self

#: How long anything in the story may take.
DEADLINE_SECONDS = 30.0
_POLL_SECONDS = 0.01


class WriterProcess:
    """A writer in a process of its own. What it says is kept: ``acked`` and ``in_doubt`` are ids of rows."""

    def __init__(self, folder: str, stream: str, name: str, first: int) -> None:
        self.name = name
        self.acked: list[int] = []
        self.in_doubt: list[int] = []
        self.refused: dict[str, Any] | None = None
        self.node: int | None = None
        self.stopped = False
        # A group of its own: a Ctrl-C is for the one that tells the story, and it ends them all.
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "laminar.cli.demo_writer", folder, stream, name, str(first)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._lines = JsonLines(self._process.stdout, self._heard)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def hear(self, seconds: float) -> bool:
        """Take in what it says within this time; false if its output has ended."""
        return self._lines.hear(seconds)

    def _heard(self, said: dict[str, Any]) -> None:
        if "claimed" in said:
            self.node = said["node"]
        elif "acked" in said:
            self.acked += said["acked"]
        elif "refused" in said:
            self.refused = said
            self.in_doubt += said["ids"] if said["unknown"] else []
        elif "stopped" in said:
            self.stopped = True

    def hear_until_acked(self, count: int) -> None:
        """Wait until so many rows are acknowledged, or it is refused."""
        self._until(lambda: len(self.acked) >= count or self.refused is not None, f"{count} rows acknowledged")

    def hear_until_refused(self) -> None:
        """Wait until it is refused."""
        self._until(lambda: self.refused is not None, "its refusal")

    def stop(self) -> None:
        """Tell it to stop, and wait until it has."""
        pipe = self._process.stdin
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.write(b"stop\n")
                pipe.flush()
        self._until(lambda: self.stopped or self.refused is not None, "its end")

    def _until(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            if not self.hear(0.05) and not condition():
                raise UnavailableError(f"writer {self.name} ended before {what}: {self._last_words()}", pid=self.pid)
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"writer {self.name}: {what} did not come within {DEADLINE_SECONDS:.0f} s", pid=self.pid
                )

    def _last_words(self) -> str:
        said = self._process.stderr.read() if self._process.stderr else b""
        lines = said.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def pause(self) -> None:
        """Stop it in its tracks, as a machine that hangs does."""
        os.kill(self.pid, signal.SIGSTOP)

    def wake(self) -> None:
        """Let it go on where it stood."""
        os.kill(self.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(DEADLINE_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def end_node(pid: int) -> None:
    """End the node's process, which would linger for a next client, and wait until it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while _is_alive(pid):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                return
            time.sleep(_POLL_SECONDS)


def _is_alive(pid: int) -> bool:
    # It may be our child: then it stays in the list of processes until we have asked for its end.
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    os.kill(pid, 0)
    return True


__all__ = ["DEADLINE_SECONDS", "WriterProcess", "end_node"]
