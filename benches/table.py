"""Prints what the benches measured beside their budgets, and beside the floor measured in the same run.

The budgets are the lines ``/// Budget `id`: < N unit[ each][, <= R x `other`]`` in ``benches/benches/*.rs``.
Criterion's results are read from its folder; ``python_bench.py`` hands over its own. Exits 0 whatever the figures are:
a noisy machine must not fail a build.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
BUDGET = re.compile(
    r"^/// Budget `([^`]+)`: < ([0-9.]+) (ns|us|ms|s)( each)?(?:, <= ([0-9.]+) x `([^`]+)`)?$", re.MULTILINE
)


def criterion_results(folder: Path) -> dict[str, tuple[float, int]]:
    """Median nanoseconds and elements an iteration, by bench id."""
    results = {}
    for estimates in folder.glob("**/new/estimates.json"):
        bench = json.loads((estimates.parent / "benchmark.json").read_text())
        throughput = bench.get("throughput") or {}
        elements = throughput.get("Elements", 1) if isinstance(throughput, dict) else 1
        results[bench["full_id"]] = (json.loads(estimates.read_text())["median"]["point_estimate"], elements)
    return results


def show(nanoseconds: float) -> str:
    """A time in the unit that suits it."""
    unit = max((unit for unit, size in UNITS.items() if nanoseconds >= size), key=UNITS.__getitem__, default="ns")
    return f"{nanoseconds / UNITS[unit]:.3g} {unit}"


def main(criterion: Path, python_results: Path) -> None:
    """Read, compare, print."""
    results = criterion_results(criterion)
    budgets = []
    for source in sorted(Path(__file__).parent.glob("benches/*.rs")):
        budgets += BUDGET.findall(source.read_text())
    if python_results.exists():
        for row in json.loads(python_results.read_text()):
            results[row["id"]] = (row["median_ns"], 1)
            limit, unit = show(row["budget_ns"]).split()
            budgets.append((row["id"], limit, unit, "", "", ""))
    table = Table("bench", "measured", "budget", "", "ratio", title="measured against budget", title_justify="left")
    for bench, limit, unit, each, ratio, other in budgets:
        if bench not in results:
            table.add_row(bench, "not run", f"< {limit} {unit}", "", "")
            continue
        median, elements = results[bench]
        measured = median / elements if each else median
        within = measured < float(limit) * UNITS[unit]
        against = ""
        if other in results:
            factor = median / results[other][0]
            within = within and factor <= float(ratio)
            against = f"{factor:.2f} x {other} (<= {ratio})"
        mark = "[green]✓[/green]" if within else "[yellow]over[/yellow]"
        table.add_row(bench, show(measured) + (" each" if each else ""), f"< {limit} {unit}{each}", mark, against)
    floors = Table("floor, same run", "measured", box=None)
    for bench in sorted(set(results) - {row[0] for row in budgets}):
        floors.add_row(bench, show(results[bench][0]))
    Console(width=130).print(table, floors)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
