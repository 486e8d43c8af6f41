"""Faults that a run inflicts on its own processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

Fault = Literal[
    "kill client",
    "pause client",
    "kill node",
    "pause node",
    "end node",
    "fill disk",
    "fail writes",
    "tear writes",
    "fail syncs",
]

#: What the node's control file says for a fault of its disk.
DISK_FAULTS: dict[Fault, str] = {
    "fill disk": "full",
    "fail writes": "writes",
    "tear writes": "torn",
    "fail syncs": "syncs",
}

#: How often each is chosen, against the others.
WEIGHTS: dict[Fault, int] = {
    "kill client": 4,
    "pause client": 3,
    "kill node": 3,
    "pause node": 2,
    "end node": 1,
    "fill disk": 2,
    "fail writes": 1,
    "tear writes": 1,
    "fail syncs": 1,
}

#: While the disk is "full", no file of the node may grow beyond this.
FILE_BYTES_WHEN_FULL = 4096


def possible(*, detached: bool) -> dict[Fault, int]:
    """The faults that can be had here, with their weights."""
    weights = dict(WEIGHTS)
    if not detached:
        # The node is one of the clients: killing clients and the node is the same, and SIGTERM ends a client unclean.
        del weights["end node"]
    return weights


def can_limit_files(*, detached: bool) -> bool:
    """Whether a disk can be filled by the system: the limit is of all files of a process, so the node must be alone."""
    return detached and sys.platform == "linux"


@contextlib.contextmanager
def disk_fault(control: Path, fault: Fault) -> Iterator[None]:
    """Let the node's disk have a fault, and then no more. The node reads the control file again and again."""
    control.write_text(DISK_FAULTS[fault])
    try:
        yield
    finally:
        control.unlink(missing_ok=True)


def node_pid(folder: Path) -> int | None:
    """The process that is the node of a folder, if it is one that this run may hurt: its command names the folder."""
    try:
        pid: int = json.loads((folder / "node.json").read_text())["pid"]
    except (OSError, ValueError, KeyError):
        return None
    return pid if str(folder) in _command(pid) else None


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    listed = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S603, S607 - a number
    return listed.stdout


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; false if the process is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


@contextlib.contextmanager
def disk_full(pid: int) -> Iterator[None]:
    """Let every write of a process beyond some bytes of a file fail, as on a disk that is full, and then no more."""
    import resource  # noqa: PLC0415 - there is none on every platform

    try:
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (FILE_BYTES_WHEN_FULL, hard))
    except ProcessLookupError:
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
