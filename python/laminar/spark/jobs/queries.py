"""Streaming queries that run together: watched until they end, stopped together when one fails or somebody asks."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from laminar.spark.jobs.work import failure

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from laminar.stream import Stream

_POLL_SECONDS = 0.2


@dataclass
class Running:
    """A query, and what it has done so far."""

    name: str
    query: StreamingQuery
    #: Rows that it read, in batches that ended.
    rows: int = 0
    batches: int = 0
    _last: int = field(default=-1, repr=False)

    def refresh(self) -> None:
        """Count the batches that ended since the last call."""
        for progress in self.query.recentProgress:
            if progress["numInputRows"] and progress["batchId"] > self._last:
                self._last = progress["batchId"]
                self.rows += progress["numInputRows"]
                self.batches += 1


@contextmanager
def asked_to_stop() -> Iterator[threading.Event]:
    """Set by Ctrl-C and by SIGTERM, in place of what they do otherwise."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(_number: int, _frame: Any) -> None:
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def watch(running: Sequence[Running], asked: threading.Event, drawn: Callable[[], None] | None = None) -> None:
    """Wait until all have ended by themselves, or ``asked`` is set. All have ended when it returns or raises.

    The first that fails ends the others, and is raised with its name.
    """
    try:
        while not asked.is_set():
            active = [one for one in running if one.query.isActive]
            for one in running:
                one.refresh()
                if one not in active:
                    _check(one)
            if drawn is not None:
                drawn()
            if not active:
                return
            asked.wait(_POLL_SECONDS)
    finally:
        # One that failed stands in the check above; what stopping the others raises says less.
        stop(running)
        for one in running:
            one.refresh()


def stop(running: Sequence[Running]) -> None:
    """End all. A batch that was in the middle is done again by the next run, with the same rows."""
    for one in running:
        if one.query.isActive:
            one.query.stop()


def release(stream: Stream, query: StreamingQuery) -> None:
    """Give back what a run of a query holds that has ended as it should, so that others need not take it over."""
    stream._native.release_begun(UUID(str(query.runId)).hex)


def _check(one: Running) -> None:
    error = one.query.exception()
    if error is not None:
        told = failure(error)
        told.args = (f"{one.name}: {told}",)
        raise told


__all__ = ["Running", "asked_to_stop", "release", "stop", "watch"]
