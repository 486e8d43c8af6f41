"""The process of a detached node: ``python -m laminar.node PATH``. ``laminar.open(path, detached=True)`` starts it."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from laminar import _native
from laminar.errors import InvalidError, LaminarError


class _Process:
    """Knows whether it is to end, and keeps the log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._logs = False
        self._ended_by: str | None = None

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._ended_by = signal.Signals(number).name

    def stop(self) -> bool:
        """Asked again and again from when the node answers."""
        if not self._logs:
            self.open_log()
            self.log(f"process {os.getpid()} is the node")
        if self._ended_by is not None:
            self.log(f"ends, because of {self._ended_by}")
        return self._ended_by is not None

    def open_log(self) -> None:
        """Send everything that is printed to ``node.log``."""
        # The folder is the node's by now: a log must not be the first thing in it.
        self._logs = True
        try:
            log = os.open(self._path / "node.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            self.log(f"node.log cannot be opened: {error}")
            return
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)

    def fail(self, what: str, code: int) -> int:
        """Say why it ends: to whoever started it, and in the log if the folder is laminar's."""
        if not self._logs:
            self._say(what.rstrip())
            if (self._path / "folder.json").exists():
                self.open_log()
        if self._logs:
            self.log(f"failed: {what.rstrip()}")
        return code

    def log(self, line: str) -> None:
        self._say(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {line}")

    @staticmethod
    def _say(line: str) -> None:
        # Whoever started it may be gone.
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Be the node of a folder until nobody needs it, or a signal comes."""
    parser = argparse.ArgumentParser(prog="python -m laminar.node", description=main.__doc__)
    parser.add_argument("path", type=Path, help="the folder")
    parser.add_argument("--linger", type=float, help="seconds that it stays after the last client is gone")
    parser.add_argument("--machine", action="append", default=[], metavar="NAME=MODULE:CLASS")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="settings")
    given = parser.parse_args(arguments)
    process = _Process(given.path)
    # A terminal that is closed, and the end of whoever started a node that is stopped just then, are not for it.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, process.on_signal)
    try:
        machines = dict(_machine(text) for text in given.machine)
        settings = dict(_setting(text) for text in given.settings)
    except Exception as error:  # noqa: BLE001 - whatever a module does when it is imported
        return process.fail(_told(error), _native.EXIT_INVALID)
    try:
        was_the_node = _native.run_node(
            given.path, machines=machines, settings=settings, linger=given.linger, stop=process.stop
        )
    except Exception as error:  # noqa: BLE001 - whatever ends the process is to stand in its log
        is_final = isinstance(error, InvalidError)
        return process.fail(_told(error), _native.EXIT_INVALID if is_final else 1)
    if not was_the_node:
        return _native.EXIT_NOT_THE_NODE
    process.log("is no longer the node")
    return 0


def _told(error: Exception) -> str:
    """An error as its last line tells it; one that is not laminar's with the way to it."""
    return str(error) if isinstance(error, LaminarError) else "".join(traceback.format_exception(error))


def _machine(text: str) -> tuple[str, Any]:
    name, _, place = text.partition("=")
    module, _, names = place.partition(":")
    if not (name and module and names):
        raise InvalidError(f"--machine is {text!r}; it must be NAME=MODULE:CLASS")
    found: Any = importlib.import_module(module)
    for part in names.split("."):
        found = getattr(found, part)
    return name, found


def _setting(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    for read in (int, float):
        try:
            return name, read(value)
        except ValueError:  # noqa: PERF203 - two rounds
            continue
    return name, value


if __name__ == "__main__":
    sys.exit(main())
