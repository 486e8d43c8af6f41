"""The worker processes of ``laminar bench``."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import subprocess
import sys
import threading

from laminar.cli.bench_load import Load, Tally
from laminar.errors import UnavailableError


class Workers:
    """Processes that do a load together; used as ``Clients`` is."""

    def __init__(self, load: Load, count: int) -> None:
        share = dataclasses.replace(load, rows=-(-load.rows // count) if load.rows else 0)
        text = json.dumps(dataclasses.asdict(share))
        self._lock = threading.Lock()
        self._tally = Tally()
        self._processes = [
            subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "laminar.cli.bench_load", text],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            for _ in range(count)
        ]
        self._listeners = [threading.Thread(target=self._listen, args=(one,)) for one in self._processes]

    def start(self) -> None:
        """Wait until all are connected, and let them begin together."""
        for process in self._processes:
            if process.stdout is None or not process.stdout.readline():
                raise UnavailableError(
                    f"worker process {process.pid} did not begin: {_last_words(process)}", pid=process.pid
                )
        for process, listener in zip(self._processes, self._listeners, strict=True):
            if process.stdin is not None:
                process.stdin.write(b"go\n")
                process.stdin.flush()
            listener.start()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        for line in process.stdout or ():
            told = Tally.from_json(line)
            with self._lock:
                self._tally.merge(told)
        if process.wait() not in (0, -signal.SIGTERM):
            said = f"worker process {process.pid}: {_last_words(process)}"
            with self._lock:
                self._tally.error = self._tally.error or said

    @property
    def running(self) -> bool:
        """Whether one of them is at it."""
        return any(listener.is_alive() for listener in self._listeners)

    def take(self) -> Tally:
        """What was done since the last time."""
        with self._lock:
            tally, self._tally = self._tally, Tally()
        return tally

    def stop(self) -> None:
        """End them."""
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        for process, listener in zip(self._processes, self._listeners, strict=True):
            process.wait()
            if listener.ident is not None:
                listener.join()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


def _last_words(process: subprocess.Popen[bytes]) -> str:
    said = process.stderr.read().decode(errors="replace").strip() if process.stderr else ""
    return said.splitlines()[-1] if said else f"it ended with {process.poll()} and said nothing"


__all__ = ["Workers"]
