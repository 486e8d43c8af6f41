"""Medians of the rounds, ratios to what stood beside them, and whether budgets are met."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: Above this share of its time, a floor's wait for a core makes it void.
WAITED_SHARE_MAX = 0.1
#: The unit of a figure, and whether less is better.
UNITS = {"us": "µs", "ms": "ms", "rows": "rows/s", "mb": "MB"}


@dataclass(frozen=True)
class Budget:
    """What ``ours`` must be: beside another participant (``factor`` times it), or alone."""

    ours: str
    limit: float
    other: str | None = None
    #: The figure must be at least the limit, not at most.
    at_least: bool = False
    #: Tells where the limit comes from if it is not simply ``limit``.
    limit_of: Callable[[Mapping[str, float]], float] | None = None
    words: str = ""
    #: The limit is how far it may lie above the other, in its unit, not how many times the other it may be.
    above: bool = False

    def judge(self, figures: Mapping[str, float]) -> tuple[str, str, bool] | None:
        """The ratio or figure, the budget in words, and whether it is met; ``None`` if something was not measured.

        The line knows whether what stood beside it can be believed.
        """
        if self.ours not in figures or (self.other is not None and self.other not in figures):
            return None
        measured = figures[self.ours]
        limit = self.limit_of(figures) if self.limit_of else self.limit
        sign = "≥" if self.at_least else "≤"
        if self.other is None:
            met = measured >= limit if self.at_least else measured <= limit
            return (self.words or "alone", f"{sign} {number(limit)}", met)
        if self.above:
            over = measured - figures[self.other]
            return (f"{over:+.0f} to {self.other}", f"{sign} {limit:+g}", over <= limit)
        ratio = measured / figures[self.other]
        met = ratio >= limit if self.at_least else ratio <= limit
        return (f"{ratio:.2f} x {self.other}", f"{sign} {limit:g} x", met)


@dataclass
class Line:
    """One line of the table: what is measured, its participants' figures by round, its budgets."""

    name: str
    title: str
    unit: str
    budgets: list[Budget]
    rounds: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    #: Participants that did not measure what they are for, with the reason: ratios to them are not judged.
    void: dict[str, str] = field(default_factory=dict)
    #: Other work ran on the machine when the run began.
    busy: bool = False

    def add(self, participant: str, figure: float) -> None:
        self.rounds.setdefault(participant, []).append(figure)

    def medians(self) -> dict[str, float]:
        return {participant: statistics.median(figures) for participant, figures in self.rounds.items()}

    def floor_waited(self, participant: str, share: float) -> None:
        """A floor whose thread waited for a core is void: it tells of the machine's other work, not of the disk."""
        if share > WAITED_SHARE_MAX:
            self.void[participant] = f"its thread waited for a core {share:.0%} of the time, so ratios are not judged"

    def verdict(self, budget: Budget, *, met: bool) -> str:
        if budget.other in self.void:
            return "not judged"
        return ("met" if met else "NOT MET") + (", busy machine" if self.busy else "")

    def spread(self, participant: str) -> str:
        figures = self.rounds[participant]
        return "" if len(figures) < 2 else f"{number(min(figures))} to {number(max(figures))}"

    def take(self, told: Mapping[str, Any]) -> None:
        """Take over the figures that ``to_json`` gave."""
        self.rounds = {who: list(figures) for who, figures in told["rounds"].items()}
        self.notes = dict(told["notes"])
        self.void = dict(told.get("void", {}))
        self.busy = bool(told.get("busy"))

    def to_json(self) -> dict[str, Any]:
        medians = self.medians()
        judged = [(budget, budget.judge(medians)) for budget in self.budgets]
        return {
            "name": self.name,
            "title": self.title,
            "unit": self.unit,
            "medians": medians,
            "rounds": self.rounds,
            "notes": self.notes,
            "void": self.void,
            "busy": self.busy,
            "budgets": [
                {
                    "ours": budget.ours,
                    "against": verdict[0],
                    "budget": verdict[1],
                    "verdict": self.verdict(budget, met=verdict[2]),
                }
                for budget, verdict in judged
                if verdict is not None
            ],
        }


def number(value: float) -> str:
    """A figure with three digits that count."""
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    if value >= 1e4:
        return f"{value / 1e3:.3g} k"
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def rows_of(line: Line) -> list[tuple[str, str, str, str, str, str]]:
    """Lines of a table: what, participant, median, spread, against, budget."""
    medians = line.medians()
    rows = []
    for participant, median in medians.items():
        verdicts = [(budget, budget.judge(medians)) for budget in line.budgets if budget.ours == participant]
        told = [(*judged[:2], line.verdict(budget, met=judged[2])) for budget, judged in verdicts if judged is not None]
        rows.append(
            (
                line.title,
                participant,
                f"{number(median)} {UNITS[line.unit]}",
                line.spread(participant),
                "; ".join(against for against, _, _ in told),
                "; ".join(f"{limit} {verdict}" for _, limit, verdict in told),
            )
        )
    return rows


HEADER = ("what", "who", "median", "spread of rounds", "beside it", "budget")


def text(lines: list[Line]) -> str:
    """A table for a terminal."""
    rows = [HEADER, *(row for line in lines for row in rows_of(line))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    out = []
    title = ""
    for row in rows:
        shown = ("" if row[0] == title else row[0], *row[1:])
        title = row[0]
        out.append("  ".join(cell.ljust(width) for cell, width in zip(shown, widths, strict=True)).rstrip())
    notes = [f"{line.name}: {who}: {note}" for line in lines for who, note in {**line.notes, **line.void}.items()]
    return "\n".join([*out, *notes])


def markdown(lines: list[Line]) -> str:
    """The same for ``docs/performance.md``."""
    out = ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    title = ""
    for line in lines:
        for row in rows_of(line):
            shown = ("" if row[0] == title else row[0], *row[1:])
            title = row[0]
            out.append("| " + " | ".join(cell.replace("NOT MET", "**not met**") for cell in shown) + " |")
    notes = [f"- {line.title}, {who}: {note}" for line in lines for who, note in {**line.notes, **line.void}.items()]
    return "\n".join([*out, *([""] if notes else []), *notes])
