"""What the calls cost from Python. Writes its medians to the file given, for ``table.py``."""

from __future__ import annotations

import json
import statistics
import sys
import timeit
from pathlib import Path

import numpy as np

import laminar


def measure(statement: object, number: int, repeat: int = 15) -> float:
    """Median nanoseconds a call."""
    return statistics.median(timeit.repeat(statement, number=number, repeat=repeat)) / number * 1e9  # type: ignore[arg-type]


def main(out: Path) -> None:
    """Measure and write."""
    guards = laminar.PartitionGuardSet(1)
    for partition in range(1_000):
        guards.insert(laminar.PartitionGuard(partition, 1, 1))
    check = guards.check
    ids = np.random.default_rng(1).integers(0, 1_000, 1_000_000, dtype=np.uint32)
    wide = ids.astype(np.int64)
    nodes = [laminar.NodeInfo(number, cores=8) for number in range(1, 11)]
    plan = laminar.ConsistentHashAssigner().initial_assignment(range(1_000), nodes)
    rows = [
        {
            "id": "python/guard_set/check",
            "budget_ns": 150,
            "median_ns": measure(lambda: check(7), 200_000) - measure(lambda: None, 200_000),
        },
        {
            "id": "python/guard_set/check_many/1M uint32",
            "budget_ns": 3e6,
            "median_ns": measure(lambda: guards.check_many(ids), 5),
        },
        {
            "id": "python/guard_set/check_many/1M int64",
            "budget_ns": 3e6,
            "median_ns": measure(lambda: guards.check_many(wide), 5),
        },
        {"id": "python/plan/to_json/1000", "budget_ns": 5e6, "median_ns": measure(plan.to_json, 20)},
    ]
    out.write_text(json.dumps(rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
