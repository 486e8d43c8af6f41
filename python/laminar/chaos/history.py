"""What clients asked for and what came of it: JSON lines on disk, read one operation at a time.

A client writes a line before it asks and another when it has the answer. One that is killed in between leaves the first
line alone: its outcome is unknown. Times are of the monotonic clock, which the processes of a machine share.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

Kind = Literal["append", "claim", "batch", "read", "barrier", "release"]
Outcome = Literal["done", "refused", "unknown"]
OUTCOMES: tuple[Outcome, ...] = ("done", "refused", "unknown")

#: The ids of rows are client * ROWS_OF_CLIENT + number, so that each tells who wrote it.
ROWS_OF_CLIENT = 1 << 32


@dataclass(kw_only=True)
class Operation:
    """One call of a client."""

    #: The process: a client that is started again has another number.
    client: int
    #: Counts the operations of the client.
    number: int
    kind: Kind
    called: float
    ended: float | None = None
    outcome: Outcome = "unknown"
    #: The error's class and message, if there was one.
    error: str = ""
    #: Rows of an append or batch have the ids from ``first_row``, one after the other.
    first_row: int = 0
    rows: int = 0
    #: Of a writer: the epoch of each partition that it held when it asked. Empty for managed appends.
    epochs: Mapping[int, int] = field(default_factory=dict)
    #: And when it was answered: a run that missed its heartbeats claims again by itself, and its epochs grow.
    epochs_after: Mapping[int, int] = field(default_factory=dict)
    #: Where rows landed: first offset and the one after the last, by partition.
    offsets: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    #: The place of the entry in the log; of a barrier, the cut.
    global_index: int = 0
    query: str = ""
    batch: int = 0
    #: The answer was that it had landed before.
    duplicate: bool = False
    #: What a read or a read at a barrier saw, by partition: from where, to before where, and the digest of those rows.
    seen: Mapping[int, tuple[int, int, str]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """How reports call it."""
        return f"{self.kind} {self.number} of client {self.client}"

    @property
    def row_ids(self) -> range:
        """The ids of its rows."""
        return range(self.first_row, self.first_row + self.rows)

    @property
    def writes(self) -> bool:
        """Whether it brings rows."""
        return self.kind in ("append", "batch")


_BY_PARTITION = ("epochs", "epochs_after", "offsets", "seen")
_NAMES = tuple(f.name for f in fields(Operation))


def _plain(values: Mapping[str, Any]) -> str:
    return json.dumps({name: value for name, value in values.items() if value not in ({}, "", None)})


def _operation(values: dict[str, Any]) -> Operation:
    for name in _BY_PARTITION:
        if name in values:
            values[name] = {
                int(partition): tuple(value) if isinstance(value, list) else value
                for partition, value in values[name].items()
            }
    return Operation(**{name: values[name] for name in _NAMES if name in values})


class HistoryWriter:
    """Writes the history of one client. Lines are whole and in the file before a call begins, so SIGKILL loses none."""

    def __init__(self, path: Path, client: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._client = client
        self._count = 0
        self._lock = threading.Lock()

    def begin(self, kind: Kind, **values: Any) -> int:
        """Note that a call begins now; returns its number."""
        with self._lock:
            number = self._count
            self._count += 1
        values |= {"client": self._client, "number": number, "kind": kind, "called": time.monotonic()}
        self._write(values)
        return number

    def end(self, number: int, outcome: Outcome, **values: Any) -> None:
        """Note that the call has ended just now."""
        values |= {"number": number, "ended": time.monotonic(), "outcome": outcome}
        self._write(values)

    def _write(self, values: Mapping[str, Any]) -> None:
        line = (_plain(values) + "\n").encode()
        if os.write(self._file, line) != len(line):
            raise OSError("the history could not be written whole; there may be no space left")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class History:
    """The operations of all clients, from their files or from memory. It may be gone through any number of times.

    Only one client's calls under way are in memory at a time.
    """

    def __init__(self, source: Iterable[Operation] | Path) -> None:
        self._folder = source if isinstance(source, Path) else None
        self._operations = [] if isinstance(source, Path) else list(source)

    def __iter__(self) -> Iterator[Operation]:
        if self._folder is None:
            yield from self._operations
            return
        for path in sorted(self._folder.glob("*.jsonl")):
            yield from read_file(path)


class Tally:
    """Counts outcomes while histories are still being written, reading each line once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self.outcomes: Counter[Outcome] = Counter()

    def update(self) -> None:
        """Count what was written since."""
        for path in self._folder.glob("*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                lines, end, _torn = file.read().rpartition(b"\n")
            self._read[path] = self._read.get(path, 0) + len(lines) + len(end)
            for outcome in OUTCOMES:
                self.outcomes[outcome] += lines.count(f'"outcome": "{outcome}"'.encode())


def read_file(path: Path) -> Iterator[Operation]:
    """The operations of a client's file, those without an answer last."""
    under_way: dict[int, dict[str, Any]] = {}
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                # Killed while it wrote this line. The call had not begun, or has no known outcome.
                break
            values = json.loads(line)
            number = values["number"]
            if "called" in values:
                under_way[number] = values
            else:
                yield _operation(under_way.pop(number) | values)
    for values in under_way.values():
        yield _operation(values)
