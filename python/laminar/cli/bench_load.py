"""The load of ``laminar bench``: clients that append or read, as threads here or in worker processes.

A worker process is started with its load as JSON, and says every fifth of a second what it did since.

    python -m laminar.cli.bench_load '{"kind": "append", "target": "./data/", …}'
"""

from __future__ import annotations

import json
import math
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import laminar
from laminar.errors import LaminarError

TELL_SECONDS = 0.2
_STEPS = 24


@dataclass
class Tally:
    """What was done: rows, calls, and how long each took, in steps of 3 %."""

    rows: int = 0
    calls: int = 0
    size: int = 0
    longest: float = 0.0
    #: When the last call ended, by the clock that all processes of a machine share.
    last: float = 0.0
    error: str = ""
    steps: Counter[int] = field(default_factory=Counter)

    def add(self, rows: int, size: int, seconds: float) -> None:
        """One call."""
        self.rows += rows
        self.calls += 1
        self.size += size
        self.longest = max(self.longest, seconds)
        self.last = time.monotonic()
        self.steps[math.floor(_STEPS * math.log2(max(seconds, 1e-9)))] += 1

    def merge(self, other: Tally) -> None:
        """What another counted."""
        self.rows += other.rows
        self.calls += other.calls
        self.size += other.size
        self.longest = max(self.longest, other.longest)
        self.last = max(self.last, other.last)
        self.error = self.error or other.error
        self.steps.update(other.steps)

    def quantile(self, part: float) -> float:
        """The seconds that this part of the calls took at most; 0 if there were none."""
        wanted = part * self.calls
        seen = 0
        for step in sorted(self.steps):
            seen += self.steps[step]
            if seen >= wanted:
                return min(self.longest, float(2 ** ((step + 0.5) / _STEPS)))
        return self.longest

    def to_json(self) -> str:
        """One line."""
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, line: str | bytes) -> Tally:
        """What ``to_json`` wrote."""
        told: dict[str, Any] = json.loads(line)
        steps = Counter({int(step): count for step, count in told.pop("steps").items()})
        return cls(steps=steps, **told)


@dataclass(frozen=True)
class Load:
    """What the clients of a process do."""

    kind: str
    stream: str
    clients: int
    batch_rows: int
    row_bytes: int
    #: It ends after so many seconds, or so many rows of this process, whichever comes first. 0 rows: seconds alone.
    seconds: float
    rows: int
    #: What a worker process connects to.
    target: str = ""
    secret: str | None = None


class Clients:
    """Threads that do a load; ``take`` tells what they did since it was last asked."""

    def __init__(self, stream: laminar.Stream, load: Load) -> None:
        self._stream = stream
        self._load = load
        self._lock = threading.Lock()
        self._tally = Tally()
        self._left = load.rows or sys.maxsize
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(load.clients)]
        self._until = 0.0
        # Made before the clock runs; all clients send the same rows.
        self._rows: Any = None if load.kind == "read" else rows_of(load.batch_rows, load.row_bytes, seed=0)

    def start(self) -> None:
        """Begin; the seconds count from here."""
        self._until = time.monotonic() + self._load.seconds
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End after the call that each is in."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    @property
    def running(self) -> bool:
        """Whether one of them is at it."""
        return any(thread.is_alive() for thread in self._threads)

    def take(self) -> Tally:
        """What was done since the last time."""
        with self._lock:
            tally, self._tally = self._tally, Tally()
        return tally

    def _goes_on(self) -> bool:
        return not self._stop.is_set() and time.monotonic() < self._until

    def _count(self, rows: int, size: int, seconds: float) -> None:
        with self._lock:
            self._tally.add(rows, size, seconds)

    def _run(self, number: int) -> None:
        try:
            if self._load.kind == "read":
                self._read(number)
            else:
                self._append()
        except LaminarError as error:
            with self._lock:
                self._tally.error = self._tally.error or str(error)
            self._stop.set()

    def _reserve(self) -> int:
        """How many rows to send next; 0 if all are given out."""
        with self._lock:
            rows = min(self._load.batch_rows, self._left)
            self._left -= rows
        return rows

    def _append(self) -> None:
        while self._goes_on() and (rows := self._reserve()):
            sent = self._rows.slice(0, rows)
            begun = time.perf_counter()
            self._stream.append(sent)
            self._count(rows, sent.nbytes, time.perf_counter() - begun)

    def _read(self, number: int) -> None:
        partitions = self._stream.partitions
        mine = [p for p in range(partitions) if p % self._load.clients == number % partitions]
        while self._goes_on():
            begun = time.perf_counter()
            for batch in self._batches(mine):
                now = time.perf_counter()
                self._count(batch.num_rows, batch.nbytes, now - begun)
                begun = now
                if not self._goes_on():
                    return
            if not self._load.rows:
                continue
            return

    def _batches(self, partitions: list[int]) -> Iterator[Any]:
        return iter(self._stream.read(partitions or None))


def rows_of(count: int, row_bytes: int, seed: int) -> Any:
    """A batch of rows with an id and text, about so many bytes each. The text does not compress away."""
    import pyarrow as pa  # noqa: PLC0415 - pyarrow is imported when rows are there

    chance = random.Random(seed)  # noqa: S311 - the same rows each time, not secrets
    width = max(0, row_bytes - 8)
    ids = [chance.getrandbits(62) for _ in range(count)]
    text = [chance.randbytes(width) for _ in range(count)]
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "payload": pa.array(text, pa.binary())})


def main() -> int:
    """Be a worker process: do the load, and say what was done."""
    load = Load(**json.loads(sys.argv[1]))
    with laminar.connect(load.target, secret=load.secret) as db:
        clients = Clients(db.stream(load.stream), load)
        _say(Tally())  # it is connected
        sys.stdin.readline()  # all begin together
        clients.start()
        while clients.running:
            time.sleep(TELL_SECONDS)
            _say(clients.take())
        clients.stop()
        _say(clients.take())
    return 0


def _say(tally: Tally) -> None:
    sys.stdout.write(tally.to_json() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
