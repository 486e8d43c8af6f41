"""A bar for what takes a while, on a terminal only."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskProgressColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_QUIET_SECONDS = 0.5


@contextmanager
def reading_bar(text: str, console: Console | None = None) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr, drawn by calls with bytes done and bytes in all: not before half a second, and gone at the end.

    Where stderr is no terminal nothing is drawn.
    """
    console = console or Console(stderr=True)
    bar = Progress(
        "{task.description}",
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    task = bar.add_task(text, total=None)
    quiet_until = time.monotonic() + _QUIET_SECONDS

    def draw(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)
        if console.is_terminal and time.monotonic() >= quiet_until:
            bar.start()  # which does nothing the second time

    try:
        yield draw
    finally:
        if bar.live.is_started:
            bar.stop()


@contextmanager
def rows_bar(text: str, console: Console | None = None) -> Iterator[Callable[[int, float | None], None]]:
    """A bar on stderr, drawn by calls with rows done and the part of the whole, from 0 to 1, if that is known."""
    console = console or Console(stderr=True)
    bar = Progress(
        "{task.description}",
        BarColumn(),
        TaskProgressColumn(),
        "{task.fields[rows]:,} rows",
        "{task.fields[rate]:,.0f} rows/s",
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    task = bar.add_task(text, total=None, rows=0, rate=0.0)
    begun = time.monotonic()

    def draw(rows: int, done: float | None) -> None:
        passed = time.monotonic() - begun
        total = None if done is None else 1.0
        bar.update(task, completed=done or 0.0, total=total, rows=rows, rate=rows / max(passed, 1e-3))
        if console.is_terminal and passed >= _QUIET_SECONDS:
            bar.start()  # which does nothing the second time

    try:
        yield draw
    finally:
        if bar.live.is_started:
            bar.stop()
