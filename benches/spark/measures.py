"""The measurements: everybody in turns on one driver each, and a takeover between two drivers."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from peers import delta, kafka

from spark.drivers import Driver, DriverFailedError

if TYPE_CHECKING:
    from streams.report import Line

    from spark.participants import Laminar, Participant, Place

MICRO_BATCH_ROWS = 100
#: Micro-batches of a query that are not counted: its code is new to the JVM, and its workers start.
WARM_TRIGGERS = 8
#: A query of slow micro-batches has fewer of them, so that a run is bounded.
TRIGGERS_SECONDS = 14.0
#: What fails for one participant is told in the table, and the rest goes on.
FAILURES = (DriverFailedError, kafka.KafkaMissingError, ValueError, OSError)
#: From the second driver's start: Spark plans, starts workers and claims.
TAKEOVER_TIMEOUT_SECONDS = 60.0
REFUSED_AFTER_CLAIM = "the first driver refused, from the second's claim"
REFUSED_AFTER_START = "the first driver refused, from the second's start"


@dataclass
class Settings:
    """What all measurements share."""

    root: Path
    input: Path
    rows: int
    rounds: int
    triggers: int
    deadline: float
    connector: list[Path] = field(default_factory=list)
    delta: delta.Delta | None = None

    @property
    def warm_rows(self) -> int:
        return min(self.rows, 200_000)

    def left(self) -> bool:
        """Whether there is time for another round."""
        return time.monotonic() < self.deadline


class Drivers(AbstractContextManager["Drivers"]):
    """The drivers of one master: ours, and Delta's on its own PySpark."""

    def __init__(self, settings: Settings, master: str, *, cached: bool = True) -> None:
        self._settings, self.master, self._cached = settings, master, cached
        self._running: dict[str, Driver] = {}
        self._count = 0

    def get(self, name: str) -> Driver:
        """The driver of that name; started, with its input in memory, if it is not there or died."""
        driver = self._running.get(name)
        if driver is None or not driver.alive:
            self._count += 1
            label = f"{name}-{self.master.split('[')[0]}-{self._count}"
            folder = self._settings.root / "drivers" / label
            if name == "delta" and self._settings.delta is not None:
                peer = self._settings.delta
                driver = Driver(label, folder, self.master, python=peer.python, jars=peer.jars, conf=delta.CONF)
            else:
                driver = Driver(label, folder, self.master, jars=self._settings.connector)
            self._running[name] = driver
            if self._cached:
                driver.ask("cache", path=str(self._settings.input))
        return driver

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for driver in self._running.values():
            driver.end()


def in_turns(line: Line, number: int, people: list[Participant], measure: Callable[[Participant], None]) -> None:
    """Measure each; another one goes first in every round."""
    begin = time.monotonic()
    first = (number - 1) % len(people) if people else 0
    for one in [*people[first:], *people[:first]]:
        # Files of the one before that are not yet on the disk would be written at the next one's cost.
        os.sync()
        try:
            measure(one)
        except FAILURES as failed:
            line.notes[f"{one.name}, round {number}, failed"] = str(failed).replace("\n", " ")[:600]
    print(f"{line.name}, round {number}: {time.monotonic() - begin:.1f} s", file=sys.stderr)


class Bulk:
    """Writes of the whole input, and reads of what they wrote."""

    def __init__(self, settings: Settings, drivers: Drivers) -> None:
        self._settings, self._drivers = settings, drivers
        self._places: dict[str, Place] = {}

    def warm(self, line: Line, people: list[Participant]) -> list[Participant]:
        """Write and read a little with each, and look at what comes back. Those that fail are left out."""
        well = []
        for one in people:
            rows = self._settings.warm_rows
            try:
                driver = self._drivers.get(one.driver)
                place = one.place(rows)
                driver.ask("write", **place.writing(), below=rows)
                if one.reads:
                    got = driver.ask("read", **place.reading(), check=place.check)
                    if got["rows"] != rows:
                        raise ValueError(f"read back {got['rows']} of {rows} rows")
                    driver.ask("read", **place.reading(), check=None)
                one.drop(place)
            except FAILURES as failed:
                line.notes[f"{one.name} is left out"] = str(failed).replace("\n", " ")[:600]
            else:
                well.append(one)
        return well

    def write(self, line: Line, one: Participant) -> None:
        driver = self._drivers.get(one.driver)
        place = one.place(self._settings.rows)
        took = driver.ask("write", **place.writing(), below=None)["seconds"]
        one.written(place, self._settings.rows)
        line.add(one.name, self._settings.rows / took)
        self._places[one.name] = place

    def read(self, line: Line, one: Participant) -> None:
        place = self._places.get(one.name)
        if place is not None:
            took = self._drivers.get(one.driver).ask("read", **place.reading(), check=None)["seconds"]
            line.add(one.read_name, self._settings.rows / took)

    def drop(self, people: list[Participant]) -> None:
        for one in people:
            place = self._places.pop(one.name, None)
            if place is not None:
                one.drop(place)


class Streaming:
    """Queries of small micro-batches."""

    def __init__(self, settings: Settings, drivers: Drivers) -> None:
        self._settings, self._drivers = settings, drivers
        #: Milliseconds of every measured trigger, by participant.
        self.samples: dict[str, list[float]] = {}

    def run(self, line: Line, number: int, one: Participant) -> None:
        driver = self._drivers.get(one.driver)
        checkpoint = self._settings.root / "checkpoints" / f"{number}-{len(one.name)}-{time.monotonic_ns()}"
        place = one.streaming(checkpoint)
        driver.ask("begin", **place.writing(), rows=MICRO_BATCH_ROWS, held=None)
        got = driver.ask("triggers", warm=WARM_TRIGGERS, count=self._settings.triggers, seconds=TRIGGERS_SECONDS)
        if set(got["rows"]) != {MICRO_BATCH_ROWS}:
            raise ValueError(f"micro-batches had {sorted(set(got['rows']))} rows, not {MICRO_BATCH_ROWS}")
        line.add(one.name, statistics.median(got["ms"]))
        self.samples.setdefault(one.name, []).extend(got["ms"])
        steps = ", ".join(f"{step} {took:.0f}" for step, took in got["steps"].items() if took >= 1)
        line.notes[one.name] = f"of a trigger's milliseconds (medians of the last round): {steps}"
        one.drop(place)
        shutil.rmtree(checkpoint, ignore_errors=True)


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TAKEOVER_TIMEOUT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise ValueError(f"{what} did not come within {TAKEOVER_TIMEOUT_SECONDS:.0f} s")
        time.sleep(0.01)


def takeover(settings: Settings, line: Line, drivers: Drivers, ours: Laminar, number: int) -> None:
    """A driver in the middle of a task is superseded by a second one on the same checkpoint.

    The task is held before the sink until the second has claimed, and then goes on: Spark does not take note of a task
    that has failed while it waits for that task's input, so this is the time that is laminar's.
    """
    names = ("first", "second") if number % 2 else ("second", "first")
    first, second = (drivers.get(name) for name in names)
    mark = settings.root / f"held-{number}"
    place = ours.streaming(settings.root / "checkpoints" / f"takeover-{number}")
    given: dict[str, Any] = {**place.writing(), "rows": MICRO_BATCH_ROWS}
    first.ask("begin", **given, held={"value": 3 * MICRO_BATCH_ROWS, "mark": str(mark)})
    _wait(mark.exists, "a task that is held")
    first.tell("refused", seconds=TAKEOVER_TIMEOUT_SECONDS)
    before = ours.claimed(place)
    started = second.ask("begin", **given, held=None)["begin"]
    _wait(lambda: ours.claimed(place) > before, "the second's claim")
    mark.unlink()
    refused = first.answer("refused")
    second.ask("triggers", warm=0, count=5, seconds=TRIGGERS_SECONDS)
    if "StaleEpochError" not in refused["why"]:
        raise ValueError(f"the first driver was not fenced, but failed with {refused['why'][:500]}")
    line.add(REFUSED_AFTER_CLAIM, (refused["time"] - ours.claimed(place)) * 1e3)
    line.add(REFUSED_AFTER_START, (refused["time"] - started) * 1e3)
    ours.drop(place)
