"""Rows of a partition by their offsets: what one task reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Range:
    """Rows of a partition, from ``start`` and before ``end``."""

    partition: int
    start: int
    end: int

    @property
    def rows(self) -> int:
        """How many."""
        return self.end - self.start


def ranges(starts: Mapping[int, int], ends: Mapping[int, int], rows_max: int) -> list[Range]:
    """All rows between, in pieces of at most so many."""
    return [
        Range(partition, begin, min(begin + rows_max, end))
        for partition, end in sorted(ends.items())
        for begin in range(starts.get(partition, 0), end, rows_max)
    ]


__all__ = ["Range", "ranges"]
