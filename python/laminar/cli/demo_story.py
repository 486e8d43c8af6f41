"""How ``laminar demo`` tells a story: numbered steps with the time, and a node that is gone when the story is."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import laminar
from laminar.cli.demo_process import end_node
from laminar.errors import LaminarError

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console
    from typing_extensions import Self


class Story:
    """The steps, told with the time that has passed."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.begun = time.monotonic()
        self._number = 0

    def step(self, text: str) -> None:
        """Begin the next step."""
        self._number += 1
        passed = time.monotonic() - self.begun
        self.console.print(
            f"\n[bold cyan]{self._number}[/bold cyan] [bold]{text}[/bold] [dim]{passed:.1f} s[/dim]", soft_wrap=True
        )

    def say(self, text: str) -> None:
        """Say something about the step."""
        self.console.print(f"   {text}", soft_wrap=True)

    def result(self, text: str, wrong: int) -> None:
        """Say how much is wrong; nothing is to be."""
        mark = "[green]✓[/green]" if wrong == 0 else "[bold red]✗[/bold red]"
        self.say(f"{mark} {text} [bold]{wrong}[/bold]")


class StoryNode:
    """The detached node of a folder, which is gone when the story is."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder) / "data"

    @property
    def path(self) -> str:
        """The folder that it is the node of."""
        return str(self._folder)

    def __enter__(self) -> Self:
        try:
            self.db = laminar.open(self._folder, detached=True)
        except BaseException:
            # Also after a Ctrl-C: it may have been started by then.
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.db.close()
        except LaminarError:
            # What ends the story was said before; the node goes all the same.
            pass
        finally:
            self._end()

    def _end(self) -> None:
        pid = _node_pid(self._folder)
        if pid is not None:
            end_node(pid)


def _node_pid(folder: Path) -> int | None:
    try:
        pid: int = json.loads((folder / "node.json").read_text())["pid"]
    except (OSError, ValueError, KeyError):
        return None
    return pid


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """A SIGTERM ends the story as a Ctrl-C does: processes and folder go."""

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """A signal that comes meanwhile is heard at the end: a process that is being started is known by then."""
    heard: list[tuple[int, FrameType | None]] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *of: heard.append(of)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for heard_number, frame in heard[:1]:
        handler = before[signal.Signals(heard_number)]
        if callable(handler):
            handler(heard_number, frame)


__all__ = ["Story", "StoryNode", "ended_by_signals", "uninterrupted"]
