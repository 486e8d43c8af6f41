"""Measures streams through the public Python API beside the disk, SQLite and Kafka, in one run and in turns.

``--markdown`` prints the table of ``docs/performance.md``. Exits 0 whatever the figures are: a noisy machine must not
fail a build. Trust ratios of one run, not seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from peers import disk, kafka, sqlite
from streams import processes, report
from streams.child import ARROW_ROWS, PARTITIONS
from streams.report import Budget, Line

SIZE = 256
#: With more load than this when the run begins, verdicts say that the machine was busy.
BUSY_LOAD = 0.5
HERE, OTHER = "laminar, in the node's process", "laminar, from another process"
ALL_HERE, ONE_OTHER = "laminar, 64 threads in the node's process", "laminar, 64 threads in another process"
EIGHT_OTHERS = "laminar, 8 processes x 8 threads"
FLOOR = "disk, fdatasync"
BESIDE_HERE, BESIDE_OTHER = "disk, in turns with the node's process", "disk, in turns with the other process"
KAFKA, KAFKA_UNSYNCED, SQLITE = "Kafka, fsync", "Kafka, no fsync", "SQLite"


def on_partitions(who: str, partitions: int) -> str:
    return f"{who}, {partitions} partition" + ("s" if partitions > 1 else "")


class Bench:
    """What the lines share: folders, sizes, Kafka if it is there."""

    def __init__(self, root: Path, *, quick: bool, peer: kafka.Broker | None) -> None:
        self.root = root
        self.quick = quick
        self.kafka = peer
        self.seed = 0
        self.topics: dict[str, str] = {}

    def scaled(self, count: int) -> int:
        return max(1, count // 10) if self.quick else count

    def folder(self) -> Path:
        """A new empty folder; the seed of payloads changes with it."""
        self.seed += 1
        return Path(tempfile.mkdtemp(prefix="bench-", dir=self.root))

    def topic(self, name: str, partitions: int, *, fsync: bool) -> str:
        """A topic that is made once."""
        if self.kafka is not None and name not in self.topics:
            self.topics[name] = self.kafka.create(partitions, fsync=fsync)
        return self.topics[name]


Round = Callable[[Bench, Line], None]


def latency(bench: Bench, line: Line) -> None:
    count = bench.scaled(2_000)
    for rows, suffix in (("bytes", ""), ("dict", ", a dict with a schema")):
        given = {"count": count, "size": SIZE, "rows": rows}
        folder = bench.folder()
        here = processes.run("latency", folder=str(folder), seed=bench.seed, **given)
        folder = bench.folder()
        with processes.node(folder):
            there = processes.run("latency", folder=str(folder), seed=bench.seed, **given)
        # On a busy machine the median is the scheduler's; the fastest tenth is least disturbed.
        for percentile, words in (("p50_us", ""), ("p10_us", ", p10")) if rows == "bytes" else (("p50_us", ""),):
            for got, who, beside in ((here, HERE, BESIDE_HERE), (there, OTHER, BESIDE_OTHER)):
                line.add(who + suffix + words, got[percentile])
                if rows == "bytes":
                    line.add(beside + words, got["floor"][percentile])
                    line.floor_waited(beside + words, got["floor"]["waited_share"])
        if rows == "bytes":
            for got, who in ((here, HERE), (there, OTHER)):
                line.add(who + ", the first after a pause", got["after_pause_us"])
    line.add(SQLITE, sqlite.latency(bench.folder(), count, SIZE, bench.seed)["p50_us"])
    if bench.kafka:
        topic = bench.topic("latency", 1, fsync=True)
        line.add(KAFKA, bench.kafka.ask("latency", topic=topic, count=count, bytes=SIZE)["p50_us"])


def clients(bench: Bench, line: Line) -> None:
    count = bench.scaled(100_000)
    folder = bench.folder()
    here = processes.clients(folder, 1, 64, count, SIZE, bench.seed)
    line.add(ALL_HERE, here["rows_per_second"])
    # Threads of one process share a connection, as those of Kafka's fastest layout do; those of eight have one each.
    for who, split in ((ONE_OTHER, 1), (EIGHT_OTHERS, 8)):
        folder = bench.folder()
        with processes.node(folder):
            there = processes.clients(folder, split, 64 // split, count, SIZE, bench.seed)
        line.add(who, there["rows_per_second"])
    line.add(SQLITE, sqlite.clients(bench.folder(), 64, bench.scaled(6_000), SIZE, bench.seed)["rows_per_second"])
    if not bench.kafka:
        return
    # Kafka is fastest on one partition, since it writes and syncs each by itself; ours is not.
    # Which layout of producers suits it depends on the machine: the better one of each round stands for it.
    for who, fsync, amount in ((KAFKA, True, bench.scaled(8_000)), (KAFKA_UNSYNCED, False, bench.scaled(100_000))):
        for partitions in (PARTITIONS, 1):
            topic = bench.topic(f"clients-{fsync}-{partitions}", partitions, fsync=fsync)
            rates = {}
            for producers in (1, 64):
                given = {"threads": 64, "producers": producers, "partitions": partitions, "count": amount}
                rate = bench.kafka.ask("clients", topic=topic, bytes=SIZE, **given)["rows_per_second"]
                rates[f"{producers} producers"] = rate
            name = on_partitions(who, partitions)
            line.add(name, max(rates.values()))
            line.notes[name] = "better of " + ", ".join(f"{key}: {report.number(rate)}" for key, rate in rates.items())


def arrow(bench: Bench, line: Line) -> None:
    batches = bench.scaled(150)
    total = batches * ARROW_ROWS * 100
    for sync_each, who in ((False, "disk, sequential write"), (True, "disk, fdatasync a megabyte")):
        got = disk.sequential(bench.folder(), total, ARROW_ROWS * 100, bench.seed, sync_each=sync_each)
        line.add(who, got["bytes_per_second"] / 100)
    for keyed, suffix in ((False, ""), (True, ", split by key")):
        given = {"batches": batches, "keyed": keyed, "read": False}
        folder = bench.folder()
        line.add(HERE + suffix, processes.run("arrow", folder=str(folder), seed=bench.seed, **given)["rows_per_second"])
        folder = bench.folder()
        with processes.node(folder):
            there = processes.run("arrow", folder=str(folder), seed=bench.seed, **given)
        line.add(OTHER + suffix, there["rows_per_second"])
    if bench.kafka:
        for fsync, who in ((True, KAFKA), (False, KAFKA_UNSYNCED)):
            topic = bench.topic(f"arrow-{fsync}", PARTITIONS, fsync=fsync)
            given = {"count": batches * ARROW_ROWS, "bytes": 100, "linger": 5, "batch": 1_000_000}
            line.add(who, bench.kafka.ask("pipelined", topic=topic, **given)["rows_per_second"])


def read(bench: Bench, line: Line) -> None:
    batches = bench.scaled(150)
    for keyed, suffix in ((False, ""), (True, ", split by key")):
        given = {"batches": batches, "keyed": keyed}
        folder = bench.folder()
        here = processes.run("arrow", folder=str(folder), seed=bench.seed, **given)
        line.add(HERE + suffix, here["read_rows_per_second"])
        folder = bench.folder()
        with processes.node(folder):
            there = processes.run("arrow", folder=str(folder), seed=bench.seed, **given)
        line.add(OTHER + suffix, there["read_rows_per_second"])
    if bench.kafka:
        new = "read" not in bench.topics
        topic = bench.topic("read", PARTITIONS, fsync=False)
        if new:
            count = batches * ARROW_ROWS
            bench.kafka.ask("pipelined", topic=topic, count=count, bytes=100, linger=5, batch=1_000_000)
        rates = [bench.kafka.ask("consume", topic=topic, partitions=PARTITIONS)["rows_per_second"] for _ in range(2)]
        line.add("Kafka's consumer", rates[1])


def claim(bench: Bench, line: Line) -> None:
    given = {"partitions": 1_000, "count": bench.scaled(10)}
    folder = bench.folder()
    here = processes.run("claim", folder=str(folder), **given)
    line.add(HERE, here["ms"])
    line.add(HERE + ", the first claim", here["first_ms"])
    folder = bench.folder()
    with processes.node(folder):
        there = processes.run("claim", folder=str(folder), **given)
    line.add(OTHER, there["ms"])


def takeover(bench: Bench, line: Line) -> None:
    folder = bench.folder()
    count = bench.scaled(200)
    from_call, from_claim = [], []
    with processes.node(folder):
        both = [processes.Child("takeover", folder=str(folder), name=f"run-{n}") for n in range(2)]
        try:
            for child in both:
                child.answer()
            both[0].tell("claim")
            both[0].answer()
            for number in range(count):
                old, new = both[number % 2], both[(number + 1) % 2]
                new.tell("claim")
                claimed, poisoned = new.answer(), old.answer()["poisoned"]
                from_call.append((poisoned - claimed["begin"]) * 1e3)
                from_claim.append((poisoned - claimed["end"]) * 1e3)
        finally:
            for child in both:
                child.kill()
    for took, who in ((from_call, "from the call of the claim"), (from_claim, "from the claim's return")):
        took.sort()
        line.add(f"{who}, p99", took[len(took) * 99 // 100])
        line.add(f"{who}, p50", took[len(took) // 2])


def metadata(bench: Bench, line: Line) -> None:
    count = bench.scaled(1_000)
    floor = disk.latency(bench.folder(), count, SIZE, bench.seed)
    line.add(FLOOR, floor["p50_us"])
    line.floor_waited(FLOOR, floor["waited_share"])
    got = processes.run("metadata", folder=str(bench.folder()), count=count)
    line.add("write (alter)", got["write"]["p50_us"])
    line.add("linearizable read (streams)", got["read"]["p50_us"])


def opening(bench: Bench, line: Line) -> None:
    line.add("empty folder", processes.run("opening", folder=str(bench.folder() / "new"))["ms"])
    filled = bench.root / "filled"
    total = (1 << 30) // (10 if bench.quick else 1)
    size = "0.1 GiB" if bench.quick else "1 GiB"
    if not filled.exists():
        line.notes[size] = f"{processes.run('fill', folder=str(filled), total=total, seed=7)['rows']} rows"
    rows = int(line.notes[size].split()[0])
    # Each opening is killed as well: every round recovers the same log after a crash.
    got = processes.run("opening", folder=str(filled), rows=rows)
    line.add(f"{size} of log after kill -9", got["ms"])


def memory(bench: Bench, line: Line) -> None:
    folder = bench.folder()
    line.add("1,000 partitions just made", processes.run("memory", folder=str(folder), partitions=1_000)["mb"])
    line.add("opened again", processes.run("memory", folder=str(folder), partitions=1_000)["mb"])


def _write_floor(figures: Any) -> float:
    """A million rows a second, or half of what the disk writes if that is less."""
    return min(1e6, 0.5 * float(figures["disk, sequential write"]))


LINES: list[tuple[str, str, str, list[Budget], Round]] = [
    (
        "latency",
        "one client, one 256 B row an append: p50",
        "us",
        [
            Budget(HERE, 1.5, BESIDE_HERE),
            Budget(OTHER, 2.5, BESIDE_OTHER),
            Budget(HERE + ", p10", 1.5, BESIDE_HERE + ", p10"),
            Budget(OTHER + ", p10", 2.5, BESIDE_OTHER + ", p10"),
            Budget(HERE, 0.6, KAFKA),
            Budget(OTHER, 0.6, KAFKA),
        ],
        latency,
    ),
    (
        "clients",
        "64 clients, 256 B rows",
        "rows",
        [
            Budget(ours, limit, other, at_least=True)
            for ours in (ALL_HERE, ONE_OTHER, EIGHT_OTHERS)
            for limit, other in (
                *((5, on_partitions(KAFKA, count)) for count in (PARTITIONS, 1)),
                *((1, on_partitions(KAFKA_UNSYNCED, count)) for count in (PARTITIONS, 1)),
                (10, SQLITE),
            )
        ],
        clients,
    ),
    (
        "arrow",
        "Arrow batches of 10,000 rows x 100 B, one client",
        "rows",
        [
            budget
            for ours in (HERE, OTHER)
            for budget in (
                Budget(ours, 1.5, KAFKA, at_least=True),
                Budget(ours, 1e6, at_least=True, limit_of=_write_floor),
            )
        ],
        arrow,
    ),
    (
        "read",
        "read back as Arrow, one reader",
        "rows",
        [Budget(ours, 1, "Kafka's consumer", at_least=True) for ours in (HERE, OTHER)],
        read,
    ),
    (
        "claim",
        "claim of 1,000 partitions, to the first append accepted",
        "ms",
        [Budget(HERE, 250), Budget(HERE + ", the first claim", 250), Budget(OTHER, 250)],
        claim,
    ),
    (
        "takeover",
        "a takeover to the old writer's guards poisoned",
        "ms",
        [Budget("from the call of the claim, p99", 50), Budget("from the claim's return, p99", 50)],
        takeover,
    ),
    (
        "metadata",
        "metadata, one client: p50",
        "us",
        [Budget("write (alter)", 1.5, FLOOR), Budget("linearizable read (streams)", 200)],
        metadata,
    ),
    (
        "open",
        "laminar.open",
        "ms",
        [Budget("empty folder", 300), Budget("1 GiB of log after kill -9", 2000)],
        opening,
    ),
    (
        "memory",
        "an idle node above the interpreter with pyarrow",
        "mb",
        [Budget("1,000 partitions just made", 60), Budget("opened again", 60)],
        memory,
    ),
]


def machine(peers: list[str]) -> str:
    """Where the figures come from."""
    load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    versions = [f"Python {platform.python_version()}", f"SQLite {sqlite3.sqlite_version}", *peers]
    return f"{os.cpu_count()} cores, Linux {platform.release()}, {', '.join(versions)}; load averages {load}"


def measure_all(given: argparse.Namespace, lines: list[Line], measures: list[Round]) -> list[str]:
    """Run the rounds, each line in turn. Returns the peers that were there beside the disk and SQLite."""
    root = Path(tempfile.mkdtemp(prefix="laminar-bench-", dir=given.folder))
    peers = []
    try:
        with ExitStack() as stack:
            peer = None
            if given.kafka:
                try:
                    peer = stack.enter_context(kafka.broker(root))
                    peers.append(f"Kafka {kafka.VERSION}")
                except kafka.KafkaMissingError as missing:
                    print(missing, file=sys.stderr)
            bench = Bench(root, quick=given.quick, peer=peer)
            for number in range(1, 2 if given.quick else given.rounds + 1):
                for line, measure in zip(lines, measures, strict=True):
                    one_round(bench, line, measure, number)
                    if given.json:
                        given.json.parent.mkdir(parents=True, exist_ok=True)
                        given.json.write_text(json.dumps([line.to_json() for line in lines], indent=1))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return peers


def one_round(bench: Bench, line: Line, measure: Round, number: int) -> None:
    """One line of one round. What fails is told in the table, and the rest goes on."""
    begin = time.monotonic()
    try:
        measure(bench, line)
    except (processes.ChildFailedError, kafka.KafkaMissingError) as failed:
        line.notes[f"round {number} failed"] = str(failed)
    print(f"round {number}, {line.name}: {time.monotonic() - begin:.1f} s", file=sys.stderr)
    for folder in bench.root.glob("bench-*"):
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [name for name, *_ in LINES]
    parser.add_argument("--only", action="append", choices=names, help="this line alone; may be given again")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, one round: does it run at all?")
    parser.add_argument("--kafka", action="store_true", help="beside Kafka too")
    parser.add_argument("--json", type=Path, help="write the figures of every round to this file")
    parser.add_argument("--show", type=Path, help="measure nothing: print what an earlier run wrote with --json")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="a folder on the disk")
    given = parser.parse_args()
    chosen = [entry for entry in LINES if given.only is None or entry[0] in given.only]
    # Before anything of ours runs: whatever the load is now, it is of others.
    busy = os.getloadavg()[0] > BUSY_LOAD
    lines = [Line(name, title, unit, budgets, busy=busy) for name, title, unit, budgets, _ in chosen]
    if given.show:
        told = {line["name"]: line for line in json.loads(given.show.read_text())}
        for line in lines:
            line.take(told.get(line.name, {"rounds": {}, "notes": {}}))
    else:
        print(machine(measure_all(given, lines, [measure for *_, measure in chosen])))
    print(report.markdown(lines) if given.markdown else report.text(lines))


if __name__ == "__main__":
    main()
