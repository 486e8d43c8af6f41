"""The bare disk: what no log on it can beat at the same durability."""

# ruff: noqa: S311 - payloads must be the same in every run, not secret

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_file(path: Path, size: int) -> Iterator[int]:
    """A file whose blocks are all there and written: a sync of it has no metadata to write."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        block = os.urandom(1 << 20)
        for at in range(0, size, len(block)):
            os.pwrite(descriptor, block, at)
        os.fsync(descriptor)
        yield descriptor
    finally:
        os.close(descriptor)
        path.unlink()


def waited_us() -> float:
    """How long this thread has waited for a core since it began, in microseconds. 0 where the kernel does not tell."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e3
    except (OSError, IndexError, ValueError):
        return 0.0


def synced_write(descriptor: int, payload: bytes, at: int) -> float:
    """``pwrite`` of one record and ``fdatasync``: microseconds."""
    begin = time.perf_counter_ns()
    os.pwrite(descriptor, payload, at)
    os.fdatasync(descriptor)
    return (time.perf_counter_ns() - begin) / 1e3


def latency(folder: Path, count: int, size: int, seed: int) -> dict[str, float]:
    """Records written and synced one after the other."""
    random_bytes = random.Random(seed)
    payloads = [random_bytes.randbytes(size) for _ in range(count)]
    with written_file(folder / "floor", (count * size + (1 << 20)) >> 20 << 20) as descriptor:
        before = waited_us()
        took = sorted(synced_write(descriptor, payload, index * size) for index, payload in enumerate(payloads))
        waited = waited_us() - before
    return {
        "waited_share": waited / sum(took),
        "p10_us": took[len(took) // 10],
        "p50_us": statistics.median(took),
        "p99_us": took[len(took) * 99 // 100],
    }


def sequential(folder: Path, total: int, chunk: int, seed: int, *, sync_each: bool) -> dict[str, float]:
    """Write chunks one after the other, synced each or once at the end: bytes a second."""
    random_bytes = random.Random(seed)
    chunks = [random_bytes.randbytes(chunk) for _ in range(min(64, max(1, total // chunk)))]
    with written_file(folder / "floor", (total >> 20 << 20) + (2 << 20)) as descriptor:
        begin = time.perf_counter()
        for index in range(total // chunk):
            os.pwrite(descriptor, chunks[index % len(chunks)], index * chunk)
            if sync_each:
                os.fdatasync(descriptor)
        os.fdatasync(descriptor)
        seconds = time.perf_counter() - begin
    return {"bytes_per_second": total / seconds, "seconds": seconds}
