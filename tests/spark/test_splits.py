"""How ranges become splits, and what filters leave of them."""

from __future__ import annotations

import pickle
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from laminar.spark.filters import Narrowed, Span
from laminar.spark.splits import Split, split

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
RANGES = st.dictionaries(st.integers(0, 20), st.tuples(st.integers(0, 500), st.integers(0, 500)), max_size=6)


def test_each_range_is_a_split_and_empty_ones_are_none() -> None:
    assert split({1: (5, 9), 0: (0, 3), 2: (4, 4)}) == [Split(0, 0, 3), Split(1, 5, 9)]


@given(RANGES, st.none() | st.integers(1, 40), st.none() | st.integers(1, 100))
def test_splits_cover_their_ranges_once_and_keep_the_limits(
    ranges: dict[int, tuple[int, int]], min_partitions: int | None, rows_max: int | None
) -> None:
    found = split(ranges, min_partitions=min_partitions, rows_max=rows_max)
    rows = [(one.partition, offset) for one in found for offset in range(one.start, one.end)]
    assert sorted(rows) == [
        (one, offset) for one, (start, end) in sorted(ranges.items()) for offset in range(start, end)
    ]
    assert all(one.start < one.end for one in found)
    assert rows_max is None or all(one.end - one.start <= rows_max for one in found)
    assert min_partitions is None or len(found) >= min(min_partitions, len(rows))


def test_a_split_is_small_as_a_pickle() -> None:
    one = Split(3, 10, 2**60)
    assert pickle.loads(pickle.dumps(one)) == one
    assert len(pickle.dumps(one)) < 200


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([EqualTo(("_partition",), 1)], Narrowed(partitions=frozenset({1}))),
        ([In(("_partition",), (1, 2)), EqualTo(("_partition",), 2)], Narrowed(partitions=frozenset({2}))),
        ([GreaterThan(("_offset",), 5), LessThanOrEqual(("_offset",), 9)], Narrowed(offsets=Span(6, 10))),
        ([GreaterThanOrEqual(("_offset",), 5), LessThan(("_offset",), 9)], Narrowed(offsets=Span(5, 9))),
        ([EqualTo(("_offset",), 7)], Narrowed(offsets=Span(7, 8))),
        ([In(("_offset",), (7, 3))], Narrowed(offsets=Span(3, 8))),
        ([LessThan(("_timestamp",), EPOCH + timedelta(seconds=1))], Narrowed(times_ms=Span(0, 1000))),
        # What is not understood leaves everything.
        ([EqualTo(("id",), 1), Not(EqualTo(("_partition",), 1)), IsNotNull(("_offset",))], Narrowed()),
        ([EqualTo(("_partition",), None), EqualTo(("_offset",), "5"), GreaterThan(("_offset",), True)], Narrowed()),
        ([EqualTo(("a", "_offset"), 1), LessThan(("_timestamp",), datetime(2026, 1, 1))], Narrowed()),  # noqa: DTZ001
    ],
    ids=str,
)
def test_filters_on_where_rows_stand_narrow_a_read(filters: list[Filter], left: Narrowed) -> None:
    narrowed = Narrowed()
    for one in filters:
        narrowed = narrowed.by(one)
    assert narrowed == left


@given(
    st.sampled_from([GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, EqualTo]),
    st.integers(0, 5_000),
    st.integers(0, 5),
)
def test_no_row_that_a_filter_on_time_keeps_is_left_out(kind: Any, micros: int, row_ms: int) -> None:
    limit, stamp = EPOCH + timedelta(microseconds=micros), EPOCH + timedelta(milliseconds=row_ms)
    keeps = {
        GreaterThan: stamp > limit,
        GreaterThanOrEqual: stamp >= limit,
        LessThan: stamp < limit,
        LessThanOrEqual: stamp <= limit,
        EqualTo: stamp == limit,
    }[kind]
    span = Narrowed().by(kind(("_timestamp",), limit)).times_ms
    within = span.start <= row_ms < span.end
    assert within or not keeps
    # And no more than it has to, but for a time that no row can have.
    assert keeps or not within or kind is EqualTo
