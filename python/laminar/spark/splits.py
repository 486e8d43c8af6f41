"""What each task reads: a range of offsets of one partition."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from pyspark.sql.datasource import InputPartition

from laminar.spark.ranges import Range


class Split(Range, InputPartition):
    """A range as Spark plans it: one task reads it."""


def split(
    ranges: Mapping[int, tuple[int, int]], *, min_partitions: int | None = None, rows_max: int | None = None
) -> list[Split]:
    """One split for each range that is not empty; more if there are to be so many, or none is to have more rows.

    To have as many as ``min_partitions`` ranges are cut in proportion to their rows, as Kafka's source does it.
    """
    full = {partition: bounds for partition, bounds in sorted(ranges.items()) if bounds[0] < bounds[1]}
    rows = sum(end - start for start, end in full.values())
    splits = []
    for partition, (start, end) in full.items():
        parts = 1 if rows_max is None else -(-(end - start) // rows_max)
        if min_partitions is not None and min_partitions > len(full):
            # Rounded up: rounded to the nearest, small ranges would leave fewer than there are to be.
            parts = max(parts, -(-(end - start) * min_partitions // rows))
        splits += _cut(partition, start, end, min(parts, end - start))
    return splits


def _cut(partition: int, start: int, end: int, parts: int) -> list[Split]:
    bounds = [start + (end - start) * part // parts for part in range(parts + 1)]
    return [Split(partition, begin, until) for begin, until in itertools.pairwise(bounds)]


__all__ = ["Split", "split"]
