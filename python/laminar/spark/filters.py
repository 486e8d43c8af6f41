"""Filters on where rows stand: a read of some partitions, offsets or times need not touch the rest.

They only narrow what is read. Spark applies every filter again to the rows, so that a filter which is not understood,
or only in part, costs time and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from laminar.spark.source import BatchReader

if TYPE_CHECKING:
    from laminar.stream import Stream

_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)
_END = 2**63 - 1


def are_pushed() -> bool:
    """Whether Spark has filters to push, which it asks for in a process of their own.

    A reader with ``pushFilters`` is refused unless ``spark.sql.python.filterPushdown.enabled`` is set, and readers are
    not told whether it is.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHING in sys.modules or getattr(main, "name", None) == _PUSHING


@dataclass(frozen=True)
class Span:
    """Numbers from ``start`` up to ``end``, which is not among them."""

    start: int = 0
    end: int = _END

    def meet(self, other: Span) -> Span:
        """What is in both."""
        return Span(max(self.start, other.start), min(self.end, other.end))


@dataclass(frozen=True)
class Narrowed:
    """What filters leave of a stream."""

    partitions: frozenset[int] | None = None
    offsets: Span = Span()
    times_ms: Span = Span()

    def by(self, one: Filter) -> Narrowed:
        """What a filter leaves of this."""
        attribute, values = getattr(one, "attribute", None), _values(one)
        if attribute == ("_partition",) and isinstance(one, EqualTo | In) and all(map(_is_number, values)):
            chosen = frozenset(values)
            return replace(self, partitions=chosen if self.partitions is None else self.partitions & chosen)
        if attribute == ("_offset",) and values and all(map(_is_number, values)):
            return replace(self, offsets=self.offsets.meet(_span(one, min(values), max(values), exact=True)))
        if attribute == ("_timestamp",) and values and all(map(_has_zone, values)):
            # Rows are stamped in whole milliseconds, and the times may lie between two.
            since = [value - _EPOCH for value in values]
            exact = not any(time % _MILLISECOND for time in since)
            span = _span(one, min(since) // _MILLISECOND, max(since) // _MILLISECOND, exact=exact)
            return replace(self, times_ms=self.times_ms.meet(span))
        return self

    def of(self, ranges: dict[int, tuple[int, int]], stream: Stream) -> dict[int, tuple[int, int]]:
        """What is left of the ranges."""
        starts = stream._native.offsets_for_time(self.times_ms.start) if self.times_ms.start > 0 else {}
        ends = stream._native.offsets_for_time(max(0, self.times_ms.end)) if self.times_ms.end < _END else {}
        left = {}
        for partition, (start, end) in ranges.items():
            if self.partitions is None or partition in self.partitions:
                at_time = Span(starts.get(partition, start), ends.get(partition, end))
                span = Span(start, end).meet(self.offsets).meet(at_time)
                left[partition] = (span.start, span.end)
        return left


def _span(one: Filter, least: int, most: int, *, exact: bool) -> Span:
    """What a comparison with numbers leaves; if they are not exact, they were rounded down."""
    rounded_up = most if exact else most + 1
    if isinstance(one, GreaterThan):
        return Span(start=least + 1)
    if isinstance(one, GreaterThanOrEqual):
        return Span(start=rounded_up)
    if isinstance(one, LessThan):
        return Span(end=rounded_up)
    if isinstance(one, LessThanOrEqual):
        return Span(end=most + 1)
    return Span(least, most + 1)


def _values(one: Filter) -> tuple[Any, ...]:
    if isinstance(one, In):
        return tuple(one.value)
    if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return (one.value,)
    return ()


class FilteringReader(BatchReader):
    """A batch reader that reads only what filters leave."""

    _narrowed = Narrowed()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take the filters over, and give all of them back to be applied to the rows."""
        for one in filters:
            self._narrowed = self._narrowed.by(one)
        return filters

    def _ranges(self, stream: Stream) -> dict[int, tuple[int, int]]:
        return self._narrowed.of(super()._ranges(stream), stream)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _has_zone(value: Any) -> bool:
    return isinstance(value, datetime) and value.utcoffset() is not None


__all__ = ["FilteringReader", "Narrowed", "are_pushed"]
