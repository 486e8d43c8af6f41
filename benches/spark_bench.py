"""Measures Spark with laminar beside Parquet, Delta, Kafka and the ceilings of PySpark's API, all in one run.

Prints ratios beside their budgets and draws a picture. What cannot be had here (no network, no Java) is left out with
one line. Exits 0 whatever the figures are: a noisy machine must not fail a build. Trust ratios of one run, not seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from peers import connector, delta, kafka, maven
from spark import cores, measures, participants, plots
from spark.drivers import MARK
from spark.measures import Bulk, Drivers, Settings, Streaming
from spark.participants import (
    DELTA,
    DISCARD,
    KAFKA,
    LAMINAR,
    LAMINAR_UNKEYED,
    MADE,
    PARQUET,
    PARTS,
    SCHEMA,
    Participant,
)
from streams import report
from streams.report import Budget, Line

MASTERS = ("local[2]", "local-cluster[2,1,1024]")
ROWS, QUICK_ROWS = 5_000_000, 1_000_000
TRIGGERS, QUICK_TRIGGERS = 40, 16
SEED = 6


def write_line(name: str, master: str, rows: int) -> Line:
    budgets = [
        Budget(ours, limit, other, at_least=True)
        for ours in (LAMINAR, LAMINAR_UNKEYED)
        for limit, other in ((1.0, PARQUET), (0.9, DELTA), (2.0, KAFKA), (0.6, DISCARD))
    ]
    return Line(name, f"batch write, {report.number(rows)} rows of (long, 100 B), {master}", "rows", budgets)


def read_line(name: str, master: str) -> Line:
    budgets = [
        Budget(ours, limit, other, at_least=True)
        for ours in (LAMINAR, LAMINAR_UNKEYED)
        for limit, other in ((0.8, MADE), (4.0, KAFKA))
    ]
    return Line(name, f"batch read of the same, {master}", "rows", budgets)


def stream_line() -> Line:
    budgets = [Budget(LAMINAR, 30, DISCARD, above=True), Budget(LAMINAR, 0.4, DELTA)]
    return Line("stream", f"micro-batches of 100 rows, whole trigger, p50, {MASTERS[0]}", "ms", budgets)


def takeover_line() -> Line:
    budgets = [Budget(measures.REFUSED_AFTER_CLAIM, 1000)]
    return Line("takeover", "a second driver takes over from one in the middle of a task", "ms", budgets)


@dataclass
class Run:
    """What was found out, and what is written to the file."""

    lines: list[Line]
    about: list[str]
    samples: dict[str, list[float]]
    json: Path | None

    def save(self) -> None:
        if self.json:
            told = {"about": self.about, "lines": [line.to_json() for line in self.lines], "triggers_ms": self.samples}
            self.json.parent.mkdir(parents=True, exist_ok=True)
            self.json.write_text(json.dumps(told, indent=1))


def make_input(folder: Path, rows: int) -> None:
    """Random payloads as Parquet files, one for each task of a write."""
    folder.mkdir()
    made = random.Random(SEED)  # noqa: S311 - the same in every run, not secret
    for part in range(PARTS):
        ids = range(part, rows, PARTS)
        offsets = pa.array(range(0, 100 * len(ids) + 1, 100), pa.int32())
        payload = pa.py_buffer(made.randbytes(100 * len(ids)))
        payloads = pa.Array.from_buffers(pa.binary(), len(ids), [None, offsets.buffers()[1], payload])
        table = pa.table([pa.array(ids, pa.int64()), payloads], schema=SCHEMA)
        pq.write_table(table, folder / f"{part}.parquet", compression="none", use_dictionary=False)


def peers(given: argparse.Namespace, stack: ExitStack, settings: Settings, about: list[str]) -> list[Participant]:
    """Everyone who can be had here; the others are left out with a line each."""
    people: list[Participant] = laminar_streams(stack, settings.root, about)
    people += [participants.Files(PARQUET, "parquet", settings.root), participants.Ceiling()]
    if not given.no_delta:
        try:
            settings.delta = delta.get()
            people.append(participants.Files(DELTA, "delta", settings.root, driver="delta"))
            about.append(f"Delta {delta.VERSION} on PySpark {delta.PYSPARK}")
        except maven.PeerMissingError as missing:
            about.append(str(missing))
    if not given.no_kafka:
        try:
            settings.connector = connector.jars()
            people.append(participants.Kafka(stack.enter_context(kafka.broker(settings.root))))
            about.append(f"Kafka {kafka.VERSION} with connector {', '.join(connector.COORDINATES)}")
        except (maven.PeerMissingError, kafka.KafkaMissingError) as missing:
            about.append(str(missing))
    return people


def laminar_streams(stack: ExitStack, root: Path, about: list[str]) -> list[Participant]:
    try:
        import laminar  # noqa: PLC0415 - the peers can be measured without it
        import laminar.spark  # noqa: PLC0415
    except ImportError as missing:
        about.append(f"laminar is left out: {missing}")
        return []
    folder = root / "laminar"
    cluster = stack.enter_context(laminar.open(folder, detached=True))
    about.append(f"laminar {laminar.__version__}, {PARTS} partitions, a node of its own process, fsync on")
    return [participants.Laminar(cluster, folder, keyed=keyed) for keyed in (True, False)]


def one_master(run: Run, settings: Settings, master: str, people: list[Participant], watcher: cores.Watcher) -> None:
    """Rounds of writes and reads, and of streams for the first master."""
    short = master.split("[", maxsplit=1)[0]
    lines = {line.name: line for line in run.lines}
    write, read = lines.get(f"write {short}"), lines.get(f"read {short}")
    stream = lines.get("stream") if master == MASTERS[0] else None
    if not settings.left():
        return
    with Drivers(settings, master, cached=write is not None) as drivers:
        if write is not None and read is not None:
            bulk = Bulk(settings, drivers)
            well = bulk.warm(write, people)
            for number in rounds(settings, write):
                measured(write, watcher, number, well, lambda one: bulk.write(write, one))
                measured(read, watcher, number, well, lambda one: bulk.read(read, one))
                bulk.drop(well)
                run.save()
        if stream is not None:
            streaming = Streaming(settings, drivers)
            streaming.samples = run.samples
            for number in rounds(settings, stream):
                everyone = [*(one for one in people if one.streams), participants.Noop()]
                measured(stream, watcher, number, everyone, lambda one, turn=number: streaming.run(stream, turn, one))
                run.save()


def measured(
    line: Line, watcher: cores.Watcher, number: int, people: list[Participant], measure: Callable[[Participant], None]
) -> None:
    """One round of a line, and what others did meanwhile."""
    watcher.take()
    measures.in_turns(line, number, people, measure)
    others(line, watcher, number)


def others(line: Line, watcher: cores.Watcher, number: int) -> None:
    used, by_name = watcher.take()
    if used > cores.BUSY_CORES:
        line.busy = True
        line.notes[f"round {number}"] = cores.told(used, by_name)


def rounds(settings: Settings, line: Line) -> Iterator[int]:
    """Numbers of the rounds, as long as there is time."""
    number = 0
    while number < settings.rounds:
        number += 1
        if not settings.left():
            line.notes["time"] = f"stopped before round {number} of {settings.rounds}: --minutes is over"
            return
        yield number


def takeovers(run: Run, settings: Settings, people: list[Participant], watcher: cores.Watcher) -> None:
    line = next((line for line in run.lines if line.name == "takeover"), None)
    ours = next((one for one in people if one.name == LAMINAR), None)
    if line is None or not isinstance(ours, participants.Laminar):
        return
    with Drivers(settings, MASTERS[0], cached=False) as drivers:
        for number in rounds(settings, line):
            watcher.take()
            try:
                measures.takeover(settings, line, drivers, ours, number)
            except measures.FAILURES as failed:
                line.notes[f"round {number}, failed"] = str(failed).replace("\n", " ")[:600]
            others(line, watcher, number)
            run.save()


def versions() -> str:
    """Where the figures come from."""
    import pyspark  # noqa: PLC0415 - asked for here alone

    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)  # noqa: S607
    words = [f"Python {platform.python_version()}", f"PySpark {pyspark.__version__}", f"pyarrow {pa.__version__}"]
    words.append((java.stderr.splitlines() or ["no Java"])[0])
    load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    return f"{os.cpu_count()} cores, Linux {platform.release()}, {', '.join(words)}; load averages at the start {load}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a fifth of the rows, one round: does it run at all?")
    parser.add_argument("--rows", type=int, help=f"rows of a batch write (default {ROWS}, quick {QUICK_ROWS})")
    parser.add_argument("--rounds", type=int, help="rounds in turns (default 3, quick 1)")
    parser.add_argument("--minutes", type=float, help="no new round begins after this time (default 13, quick 3)")
    parser.add_argument("--only", action="append", choices=["bulk", "local", "local-cluster", "stream", "takeover"])
    parser.add_argument("--no-delta", action="store_true", help="without Delta")
    parser.add_argument("--no-kafka", action="store_true", help="without Kafka")
    parser.add_argument("--json", type=Path, help="write the figures of every round to this file")
    parser.add_argument("--plot", type=Path, default=Path("target/spark_bench.png"), help="where the picture goes")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="a folder on the disk")
    return parser.parse_args()


def chosen_lines(given: argparse.Namespace, rows: int) -> list[Line]:
    def chosen(*names: str) -> bool:
        return given.only is None or any(name in given.only for name in names)

    lines = []
    for master in MASTERS:
        short = master.split("[", maxsplit=1)[0]
        if chosen("bulk", short):
            lines += [write_line(f"write {short}", master, rows), read_line(f"read {short}", master)]
    lines += [stream_line()] if chosen("stream") else []
    return lines + ([takeover_line()] if chosen("takeover") else [])


def main() -> None:
    """Measure, print, draw."""
    given = arguments()
    # Ended from outside, it still ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if shutil.which("java") is None:
        print("nothing can be measured: Spark needs Java, and there is no java")
        return
    os.environ[MARK] = uuid.uuid4().hex
    rows = given.rows or (QUICK_ROWS if given.quick else ROWS)
    root = Path(tempfile.mkdtemp(prefix="laminar-spark-bench-", dir=given.folder))
    run = Run(chosen_lines(given, rows), [versions()], {}, given.json)
    settings = Settings(
        root,
        root / "input",
        rows,
        given.rounds or (1 if given.quick else 3),
        QUICK_TRIGGERS if given.quick else TRIGGERS,
        time.monotonic() + (given.minutes or (3.0 if given.quick else 13.0)) * 60,
    )
    try:
        with ExitStack() as stack:
            watcher = stack.enter_context(cores.Watcher(os.environ[MARK]))
            if any(line.unit == "rows" for line in run.lines):
                make_input(settings.input, rows)
            people = peers(given, stack, settings, run.about)
            for line in run.about:
                print(line, file=sys.stderr)
            one_master(run, settings, MASTERS[0], people, watcher)
            takeovers(run, settings, people, watcher)
            one_master(run, settings, MASTERS[1], people, watcher)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    run.save()
    print("\n".join(run.about))
    print(report.markdown(run.lines) if given.markdown else report.text(run.lines))
    print(plots.draw(run.lines, run.samples, given.plot, run.about[0]))


if __name__ == "__main__":
    main()
