"""A chaos run: client processes on one folder, faults against them and the node, and the rules at the end.

A run has two halves. Faults on: no rule may break. Faults off: the folder must heal, and a new writer gets its turn.
"""

from __future__ import annotations

import contextlib
import heapq
import random
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import laminar
from laminar.chaos import faults
from laminar.chaos.checks import Violation, check
from laminar.chaos.client import STOP_FILE, STREAM, ClientConfig, schema
from laminar.chaos.history import History, HistoryWriter, Outcome, Tally
from laminar.chaos.log import Log
from laminar.chaos.report import Report
from laminar.errors import LaminarError

#: Short, so that pauses of seconds are beyond all of them.
SETTINGS: dict[str, Any] = {
    "heartbeat_interval": 0.2,
    "worker_timeout": 1.0,
    "guard_refresh": 0.5,
    "client_timeout": 2.0,
    "snapshot_entries": 500,
    # Large appends go by staged blocks.
    "inline_bytes_max": 16384,
}
CALL_TIMEOUT = 2.0
#: Beyond every timeout above.
PAUSE_SECONDS = (2.5, 4.5)
FULL_SECONDS = (0.3, 1.5)
#: Between faults.
CALM_SECONDS = (0.2, 1.5)
#: How long a process has been the node before it is hurt: else none would come to serve.
NODE_CALM_SECONDS = 0.7
#: How long the first clients may take to start.
START_SECONDS = 60.0
#: Between two looks of a display.
SHOW_SECONDS = 0.2
#: How long clients may take to end, and the folder to heal, once nothing is hurt any more.
HEAL_SECONDS = 40.0


@dataclass(frozen=True, kw_only=True)
class ChaosConfig:
    """How a run is made. The seed decides the faults and the kinds of calls, not how they interleave."""

    seconds: float = 30.0
    clients: int = 4
    partitions: int = 4
    seed: int = field(default_factory=lambda: random.SystemRandom().randrange(1 << 32))
    #: The node is a process of its own; else it is in one of the clients.
    detached: bool = True
    #: Where the folder and the histories stay; else they are removed, unless a rule broke.
    keep: Path | None = None

    def command(self) -> str:
        """The command that repeats the run."""
        words = ["laminar", "chaos", "--seconds", f"{self.seconds:g}", "--clients", str(self.clients)]
        words += ["--partitions", str(self.partitions), "--seed", str(self.seed)]
        if not self.detached:
            words.append("--embedded")
        return shlex.join(words)


@dataclass(frozen=True)
class Progress:
    """What a display shows while the run goes on."""

    seconds: float
    clients: int
    node: int | None
    faults: Counter[str]
    latest: str
    #: Of operations so far.
    outcomes: Counter[Outcome]


class Chaos:
    """One run."""

    def __init__(self, config: ChaosConfig) -> None:
        self.config = config
        self._root = Path(tempfile.mkdtemp(prefix="laminar-chaos-")) if config.keep is None else config.keep.absolute()
        self._folder = self._root / "data"
        self._histories = self._root / "histories"
        #: Says which faults the node's disk has.
        self._control = self._root / "disk-faults"
        self._settings = {**SETTINGS, "disk_faults": str(self._control)}
        self._limits_files = faults.can_limit_files(detached=config.detached)
        self._chance = random.Random(config.seed)  # noqa: S311 - repeatable
        self._clients: dict[int, subprocess.Popen[bytes]] = {}
        self._started = 0
        self._until = 0.0
        self._node: int | None = None
        self._node_since = 0.0
        self._faults: Counter[str] = Counter()
        self._latest = ""
        #: What ends later: (when, number, what ends it).
        self._endings: list[tuple[float, int, Callable[[], object]]] = []
        self._violations: list[Violation] = []

    def run(self, show: Callable[[Progress], None] = lambda _: None) -> Report:
        """Run to the end, and check. ``show`` is called some times a second."""
        self._histories.mkdir(parents=True)
        began = time.monotonic()
        report = Report(seed=self.config.seed, command=self.config.command(), seconds=0.0)
        try:
            with self._open() as db:
                db.create_stream(STREAM, partitions=self.config.partitions, schema=schema(), key="id")
            self._start()
            self._hurt(show)
            self._heal()
            log = self._read_back(report)
        except BaseException:
            # Nothing was found out, so there is nothing to keep.
            self._end_all()
            if self.config.keep is None:
                shutil.rmtree(self._root, ignore_errors=True)
            raise
        self._end_all()
        report.seconds = time.monotonic() - began
        report.faults = self._faults
        history = History(self._histories)
        report.count(history, log)
        report.violations = [*self._violations, *([] if log is None else check(history, log))]
        if self.config.keep is not None or not report.is_good:
            report.kept = str(self._root)
        else:
            shutil.rmtree(self._root)
        return report

    def _open(self) -> contextlib.AbstractContextManager[laminar.Cluster]:
        return laminar.open(self._folder, detached=self.config.detached, timeout=HEAL_SECONDS, **self._settings)

    def _start(self) -> None:
        """Start the clients, and wait until they are at work: faults against processes that still start show little."""
        self._until = time.monotonic() + START_SECONDS + self.config.seconds
        for _ in range(self.config.clients):
            self._start_client()
        deadline = time.monotonic() + START_SECONDS
        while not all(path.stat().st_size for path in self._client_files()):
            self._replace_the_dead()
            if time.monotonic() > deadline:
                self._violate("clients_start", f"a client had not begun after {START_SECONDS:g} s")
                return
            time.sleep(0.05)

    def _client_files(self) -> list[Path]:
        paths = [self._histories / f"{number:05}.jsonl" for number in self._clients]
        for path in paths:
            path.touch()
        return paths

    # Faults on.

    def _watch_node(self, now: float) -> None:
        pid = faults.node_pid(self._folder)
        if pid != self._node:
            self._node, self._node_since = pid, now

    def _hurt(self, show: Callable[[Progress], None]) -> None:
        weights = faults.possible(detached=self.config.detached)
        began = time.monotonic()
        next_fault = began
        next_show = began
        tally = Tally(self._histories)
        while (now := time.monotonic()) < began + self.config.seconds:
            self._end_what_is_due(now)
            self._watch_node(now)
            self._replace_the_dead()
            if now >= next_fault:
                self._inflict(self._chance.choices(list(weights), list(weights.values()))[0])
                next_fault = now + self._chance.uniform(*CALM_SECONDS)
            if now >= next_show:
                next_show = now + SHOW_SECONDS
                tally.update()
                show(Progress(now - began, len(self._clients), self._node, self._faults, self._latest, tally.outcomes))
            time.sleep(0.05)

    def _start_client(self) -> None:
        self._started += 1
        number = self._started
        role = "detached" if self.config.detached else "embedded"
        if number % 4 == 0:
            role = "client"
        config = ClientConfig(
            folder=str(self._folder),
            histories=str(self._histories),
            client=number,
            seed=f"{self.config.seed}/{number}",
            role=role,
            until=self._until,
            call_timeout=CALL_TIMEOUT,
            queries=3,
            settings=self._settings,
        )
        with (self._histories / f"{number:05}.stderr").open("wb") as errors:
            # In a session of its own: the kernel hangs up on a group in which a process is stopped, if its shell ends.
            self._clients[number] = subprocess.Popen(  # noqa: S603 - our own module
                config.command(), stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True
            )

    def _replace_the_dead(self) -> None:
        for number, process in list(self._clients.items()):
            code = process.poll()
            if code is not None:
                del self._clients[number]
                self._judge_exit(number, code)
                self._start_client()

    def _judge_exit(self, number: int, code: int) -> None:
        if code not in (0, -signal.SIGKILL):
            said = (self._histories / f"{number:05}.stderr").read_text(errors="replace").strip()
            self._violate("clients_end_cleanly", f"client {number} ended with {code}: {said[-500:]}")

    def _violate(self, rule: str, what: str) -> None:
        self._violations.append(Violation(rule, what))

    def _inflict(self, fault: faults.Fault) -> None:
        pid = self._victim(fault)
        if pid is None:
            return
        if fault.startswith("kill"):
            done = faults.send(pid, signal.SIGKILL)
        elif fault.startswith("pause"):
            done = faults.send(pid, signal.SIGSTOP)
            self._later(PAUSE_SECONDS, lambda: faults.send(pid, signal.SIGCONT))
        elif fault == "end node":
            done = faults.send(pid, signal.SIGTERM)
        else:
            hurt = contextlib.ExitStack()
            # A full disk is had in two ways in turns: the system refuses, or the node's own layer does.
            if fault == "fill disk" and self._limits_files and self._faults[fault] % 2 == 0:
                hurt.enter_context(faults.disk_full(pid))
            else:
                hurt.enter_context(faults.disk_fault(self._control, fault))
            self._later(FULL_SECONDS, hurt.close)
            done = True
        if done:
            self._faults[fault] += 1
            self._latest = f"{fault} ({pid})"

    def _victim(self, fault: faults.Fault) -> int | None:
        if fault.endswith("client"):
            return self._clients[self._chance.choice(sorted(self._clients))].pid if self._clients else None
        if time.monotonic() < self._node_since + NODE_CALM_SECONDS:
            return None
        pid = self._node
        return pid if self.config.detached or pid in {process.pid for process in self._clients.values()} else None

    def _later(self, seconds: tuple[float, float], end: Callable[[], object]) -> None:
        heapq.heappush(self._endings, (time.monotonic() + self._chance.uniform(*seconds), len(self._endings), end))

    def _end_what_is_due(self, now: float) -> None:
        while self._endings and self._endings[0][0] <= now:
            heapq.heappop(self._endings)[2]()

    # Faults off.

    def _heal(self) -> None:
        self._end_what_is_due(float("inf"))
        (self._histories / STOP_FILE).touch()
        deadline = time.monotonic() + HEAL_SECONDS
        for number, process in self._clients.items():
            try:
                code = process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:  # noqa: PERF203 - a few clients
                self._violate("clients_end", f"client {number} had not ended {HEAL_SECONDS:g} s after the last fault")
                process.kill()
                process.wait()
            else:
                self._judge_exit(number, code)
        self._clients.clear()

    def _read_back(self, report: Report) -> Log | None:
        """A new writer gets its turn, and then everything is read."""
        try:
            return self._write_and_read(report)
        except LaminarError as error:
            self._violate("the_folder_heals", f"{type(error).__name__}: {error}")
            return None

    def _write_and_read(self, report: Report) -> Log:
        history = HistoryWriter(self._histories / "00000.jsonl", 0)
        with self._open() as db:
            stream = db.stream(STREAM)
            number = history.begin("claim")
            with stream.writer("last", timeout=HEAL_SECONDS) as writer:
                history.end(number, "done", epochs=writer.epochs)
                number = history.begin("append", first_row=0, rows=20, epochs=writer.epochs)
                appended = writer.append([{"id": row, "load": b""} for row in range(20)])
                history.end(number, "done", offsets=appended.offsets, global_index=appended.global_index)
            report.folder_epoch = db.status(partitions=False).node.folder_epoch
            for paused in db.status().paused:
                self._violate("partitions_heal", f"partition {paused.partition} is paused: {paused.paused}")
            history.close()
            return Log.read(stream.read(include_metadata=True, timeout=HEAL_SECONDS))

    def _end_all(self) -> None:
        """Whatever happened, no process of the run is left."""
        self._end_what_is_due(float("inf"))
        for process in self._clients.values():
            process.kill()
            process.wait()
        if not self.config.detached:
            return
        deadline = time.monotonic() + HEAL_SECONDS
        while (pid := faults.node_pid(self._folder)) is not None:
            late = time.monotonic() > deadline
            faults.send(pid, signal.SIGKILL if late else signal.SIGTERM)
            if late:
                self._violate("the_node_ends", f"the node, process {pid}, had not ended after {HEAL_SECONDS:g} s")
                return
            time.sleep(0.05)
