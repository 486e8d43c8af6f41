"""Who else used the cores while we measured: sampled from ``/proc``, so that busy figures are not believed."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

SAMPLE_SECONDS = 1.0
#: Above this many cores used by others, figures are called those of a busy machine.
BUSY_CORES = 0.2


class Watcher:
    """Sums up the processor time of processes without ``mark`` in their environment."""

    def __init__(self, mark: str) -> None:
        self._mark = mark.encode()
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._seen: dict[tuple[int, str], tuple[str | None, int]] = {}
        self._used: dict[str, float] = {}
        self._since = time.monotonic()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._sample(first=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def take(self) -> tuple[float, dict[str, float]]:
        """Cores that others used since the last call, in all and by program."""
        with self._lock:
            seconds = max(time.monotonic() - self._since, 1e-6)
            by_name = {name: used / seconds for name, used in self._used.items()}
            self._used, self._since = {}, time.monotonic()
        return sum(by_name.values()), by_name

    def _run(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self._sample()

    def _sample(self, *, first: bool = False) -> None:
        now: dict[tuple[int, str], tuple[str | None, int]] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                stat = (folder / "stat").read_text()
                name, rest = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :].split()
                key = (int(folder.name), rest[19])
                foreign = self._seen[key][0] if key in self._seen else self._foreign(folder, name)
            except (OSError, ValueError, IndexError):
                continue  # it ended while we looked
            spent = int(rest[11]) + int(rest[12])
            now[key] = (foreign, spent)
            if foreign is not None and not first:
                before = self._seen.get(key, (foreign, 0))[1]
                with self._lock:
                    self._used[foreign] = self._used.get(foreign, 0.0) + (spent - before) / self._ticks
        self._seen = now

    def _foreign(self, folder: Path, name: str) -> str | None:
        """The program's name if it is not ours; the kernel's threads work for everyone and are left out."""
        if not (folder / "cmdline").read_bytes() or int(folder.name) == os.getpid():
            return None
        try:
            return None if self._mark in (folder / "environ").read_bytes() else name
        except PermissionError:
            return name


def told(cores: float, by_name: dict[str, float]) -> str:
    """A sentence about it."""
    most = sorted(by_name.items(), key=lambda one: -one[1])[:4]
    names = ", ".join(f"{name} {used:.1f}" for name, used in most if used >= 0.05)
    return f"others used {cores:.1f} of {os.cpu_count()} cores" + (f" ({names})" if names else "")
