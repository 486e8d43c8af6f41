"""SQLite in WAL mode with ``synchronous=FULL``: what a Python user would reach for."""

# ruff: noqa: S311 - payloads must be the same in every run, not secret

from __future__ import annotations

import random
import sqlite3
import statistics
import threading
import time
from pathlib import Path

BUSY_SECONDS = 120.0


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma synchronous=full")
    return connection


def _create(folder: Path) -> Path:
    path = folder / "bench.sqlite"
    connection = _connect(path)
    connection.execute("create table rows (id integer primary key, payload blob)")
    connection.close()
    return path


def latency(folder: Path, count: int, size: int, seed: int) -> dict[str, float]:
    """One insert a transaction, one after the other: microseconds."""
    random_bytes = random.Random(seed)
    payloads = [random_bytes.randbytes(size) for _ in range(count)]
    connection = _connect(_create(folder))
    took = []
    for payload in payloads:
        begin = time.perf_counter_ns()
        connection.execute("insert into rows (payload) values (?)", (payload,))
        took.append((time.perf_counter_ns() - begin) / 1e3)
    connection.close()
    took.sort()
    return {"p50_us": statistics.median(took), "p99_us": took[len(took) * 99 // 100]}


def clients(folder: Path, threads: int, count: int, size: int, seed: int) -> dict[str, float]:
    """Threads with a connection each, one insert a transaction: rows a second."""
    path = _create(folder)
    each = max(1, count // threads)
    start = threading.Barrier(threads + 1)

    def insert(client: int) -> None:
        random_bytes = random.Random(seed * 1_000 + client)
        payloads = [random_bytes.randbytes(size) for _ in range(each)]
        connection = _connect(path)
        start.wait()
        for payload in payloads:
            connection.execute("insert into rows (payload) values (?)", (payload,))
        connection.close()

    running = [threading.Thread(target=insert, args=(client,)) for client in range(threads)]
    for thread in running:
        thread.start()
    start.wait()
    begin = time.perf_counter()
    for thread in running:
        thread.join()
    seconds = time.perf_counter() - begin
    return {"rows_per_second": each * threads / seconds, "seconds": seconds}
