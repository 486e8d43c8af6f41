"""Counts what ``laminar demo`` wrote: every acknowledged row once, and none of a writer behind its fence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any


@dataclass
class Verdict:
    """What was found. All of it must be empty but ``rows``."""

    rows: int = 0
    #: Acknowledged, and not there.
    lost: list[int] = field(default_factory=list)
    #: There more than once.
    doubled: list[int] = field(default_factory=list)
    #: There, though no writer was told so and none was left in doubt.
    unasked: list[int] = field(default_factory=list)
    #: Partition and offset of a row whose epoch is below that of the row before it (EPOCH-2).
    behind_the_fence: list[tuple[int, int]] = field(default_factory=list)
    #: Partition and offset of a row that does not follow the one before it (LOG-2).
    gaps: list[tuple[int, int]] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.lost or self.doubled or self.unasked or self.behind_the_fence or self.gaps)


def check(acked: Iterable[int], in_doubt: Iterable[int], rows: Sequence[Mapping[str, Any]]) -> Verdict:
    """Compares the ids that writers were told of with rows that have ``id`` and the metadata columns."""
    acked, in_doubt = set(acked), set(in_doubt)
    there = Counter(row["id"] for row in rows)
    verdict = Verdict(
        rows=len(rows),
        lost=sorted(acked - there.keys()),
        doubled=sorted(number for number, count in there.items() if count > 1),
        unasked=sorted(there.keys() - acked - in_doubt),
    )
    ordered = sorted(rows, key=lambda row: (row["_partition"], row["_offset"]))
    for before, after in pairwise(ordered):
        place = (after["_partition"], after["_offset"])
        if before["_partition"] != after["_partition"]:
            if after["_offset"] != 0:
                verdict.gaps.append(place)
            continue
        if after["_offset"] != before["_offset"] + 1:
            verdict.gaps.append(place)
        if after["_epoch"] < before["_epoch"]:
            verdict.behind_the_fence.append(place)
    if ordered and ordered[0]["_offset"] != 0:
        verdict.gaps.insert(0, (ordered[0]["_partition"], ordered[0]["_offset"]))
    return verdict


__all__ = ["Verdict", "check"]
