"""Every record, block, offset and epoch of a stream read and checked, in parallel."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from laminar.errors import InvalidError
from laminar.spark import clients
from laminar.spark.jobs.work import Progress, Range, ranges, session, told, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS_PER_SPLIT = 1_000_000


@dataclass(frozen=True)
class Fault:
    """The first bad place of a partition."""

    partition: int
    offset: int
    what: str


@dataclass(frozen=True)
class VerifiedPartition:
    """What was read of a partition. ``misplaced`` rows lie outside the partition of their key."""

    partition: int
    start: int
    end: int
    records: int
    rows: int
    blocks: int
    bytes: int
    first_epoch: int | None
    last_epoch: int | None
    misplaced: int
    fault: Fault | None


@dataclass(frozen=True)
class Verified:
    """What a verification read."""

    stream: str
    partitions: tuple[VerifiedPartition, ...]
    seconds: float

    @property
    def fault(self) -> Fault | None:
        """The first bad place, if there is one."""
        return next((one.fault for one in self.partitions if one.fault is not None), None)


def verify(  # noqa: PLR0913 - each is an option of the command
    stream: str,
    *,
    endpoint: str,
    secret: str | None = None,
    rows_per_split: int = _ROWS_PER_SPLIT,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> Verified:
    """Read and check every row that is there now. A fault is told, not raised."""
    began = time.monotonic()
    if rows_per_split < 1:
        raise InvalidError(f"rows_per_split is {rows_per_split}; it must be at least 1")
    source = clients.stream_of(clients.driver(endpoint, secret=secret), stream)
    offsets = source.offsets(source.barrier(timeout=30.0))
    starts = {partition: first for partition, (first, _) in offsets.items()}
    work = ranges(starts, {partition: end for partition, (_, end) in offsets.items()}, rows_per_split)
    found: list[dict[str, Any]] = []
    if work:
        check = partial(_verify_ranges, clients.absolute(endpoint), secret, stream, work)
        spark = session(spark, f"laminar verify {stream}")
        with told(), watched(spark, progress, sum(piece.rows for piece in work)):
            rows = spark.range(0, len(work), 1, len(work)).mapInArrow(check, "place long, found string").collect()
        found = [json.loads(row.found) for row in sorted(rows, key=lambda row: row.place)]
    # What was removed meanwhile could not be read.
    kept = {partition: first for partition, (first, _) in source.offsets().items()}
    partitions = [_joined(partition, span, kept[partition], work, found) for partition, span in sorted(offsets.items())]
    return Verified(stream, tuple(partitions), time.monotonic() - began)


def _verify_ranges(
    endpoint: str, secret: str | None, stream: str, work: list[Range], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In an executor: check the ranges whose numbers come in."""
    native = clients.worker(endpoint, secret=secret).stream(stream)._native
    for batch in batches:
        for number in batch.column(0).to_pylist():
            piece = work[number]
            found = native.verify(piece.partition, piece.start, piece.end)
            yield pa.RecordBatch.from_pydict(
                {"place": pa.array([number], pa.int64()), "found": pa.array([json.dumps(found)], pa.string())}
            )


def _joined(
    partition: int, span: tuple[int, int], kept: int, work: list[Range], found: list[dict[str, Any]]
) -> VerifiedPartition:
    """The ranges of a partition as one. Between two of them epochs must not fall either; more is not told of them."""
    pieces = [(piece, told_) for piece, told_ in zip(work, found, strict=True) if piece.partition == partition]
    fault: Fault | None = None
    epoch: int | None = None
    for piece, one in pieces:
        first = one["first_epoch"]
        if fault is None and epoch is not None and first is not None and first < epoch:
            fault = Fault(partition, piece.start, f"epoch {first} follows epoch {epoch}; epochs never decrease")
        if fault is None and one["fault"] is not None:
            fault = Fault(partition, one["fault"]["offset"], one["fault"]["what"])
        epoch = one["last_epoch"] if one["last_epoch"] is not None else epoch
    sums = {name: _sum(name, pieces) for name in ("records", "rows", "blocks", "bytes", "misplaced")}
    if fault is None and not span[1] - max(kept, span[0]) <= sums["rows"] <= span[1] - span[0]:
        fault = Fault(partition, span[0], f"{sums['rows']} rows are there, not those from {span[0]} to {span[1] - 1}")
    epochs = [one["first_epoch"] for _, one in pieces if one["first_epoch"] is not None]
    return VerifiedPartition(
        partition, *span, **sums, first_epoch=epochs[0] if epochs else None, last_epoch=epoch, fault=fault
    )


def _sum(name: str, pieces: list[tuple[Range, dict[str, Any]]]) -> int:
    return sum(int(one[name]) for _, one in pieces)


__all__ = ["Fault", "Verified", "VerifiedPartition", "verify"]
