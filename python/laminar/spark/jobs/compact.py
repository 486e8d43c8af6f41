"""The newest row of each key of a stream, in few large blocks. Readers and writers go on meanwhile.

Tasks read a partition each and stage its newest rows; nothing of that can be read. The driver appends what they staged,
on the condition that it knows of every row that came since. After a grace, in which readers that have planned before
finish, the rows before are trimmed. Whoever dies in between leaves rows twice, and the next compaction takes them away.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa

from laminar.errors import InvalidError, NotOwnedError
from laminar.spark import clients
from laminar.spark.jobs.work import Progress, session, told, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from laminar.stream import Stream

#: The removal of a key stays for so long, in seconds, so that whoever folds the rows learns of it.
KEEP_REMOVED_SECONDS = 86_400.0
#: Old rows stay for so long after the new ones are there, in seconds.
GRACE_SECONDS = 60.0

#: With more partitions a task has several of them, one after the other.
_TASKS_MAX = 256
_SECONDS_MAX = 365 * 86_400.0

Outcome: TypeAlias = Literal["compacted", "already compact", "busy"]


@dataclass(frozen=True)
class CompactedPartition:
    """What became of a partition. One that is busy was written all the time, and is left as it is."""

    partition: int
    outcome: Outcome
    rows_before: int
    rows_after: int
    bytes_before: int
    bytes_after: int
    #: Removed keys that were left out.
    removed_dropped: int


@dataclass(frozen=True)
class Compacted:
    """What a compaction did. Rows that came meanwhile are not counted."""

    stream: str
    partitions: tuple[CompactedPartition, ...]
    seconds: float

    @property
    def rows_before(self) -> int:
        """Rows that were there."""
        return sum(one.rows_before for one in self.partitions)

    @property
    def rows_after(self) -> int:
        """Rows that are left of them."""
        return sum(one.rows_after for one in self.partitions)

    @property
    def bytes_before(self) -> int:
        """Their encoded bytes before."""
        return sum(one.bytes_before for one in self.partitions)

    @property
    def bytes_after(self) -> int:
        """Their encoded bytes after."""
        return sum(one.bytes_after for one in self.partitions)

    @property
    def removed_dropped(self) -> int:
        """Removed keys that were left out."""
        return sum(one.removed_dropped for one in self.partitions)

    @property
    def busy(self) -> list[int]:
        """Partitions that are as they were, because others wrote all the time."""
        return [one.partition for one in self.partitions if one.outcome == "busy"]


@dataclass(frozen=True)
class _Staged:
    """What a task staged of a partition, read up to ``end``."""

    partition: int
    end: int
    told: dict[str, Any]
    message: bytes

    def became(self, outcome: Outcome, rows: int, bytes_: int) -> CompactedPartition:
        """The partition, with so much left."""
        dropped = self.told["removed_dropped"] if outcome == "compacted" else 0
        return CompactedPartition(self.partition, outcome, self.told["rows"], rows, self.told["bytes"], bytes_, dropped)

    def as_it_was(self, outcome: Outcome) -> CompactedPartition:
        """The partition, with nothing changed."""
        return self.became(outcome, self.told["rows"], self.told["bytes"])


@dataclass(frozen=True)
class _Held:
    """Under whom rows are appended and trimmed."""

    node_id: int
    epochs: Sequence[tuple[int, int, int]]
    trim: Callable[[int, int], int]


def check_compact(stream: str, *, endpoint: str, secret: str | None = None, writer: str | None = None) -> Stream:
    """The stream, if it can be compacted; raises otherwise."""
    cluster = clients.driver(endpoint, secret=secret)
    found = cluster.stream(stream)
    if found.machine != "kv":
        raise InvalidError(
            f"stream {stream}: compaction keeps the newest row of each key, and this stream has machine "
            f"{found.machine!r}; only streams with machine 'kv' are compacted",
            stream=stream,
        )
    if writer is not None:
        return found
    claimed = next((one for one in cluster.status(stream).partitions if one.writer), None)
    if claimed is not None:
        raise NotOwnedError(
            f"stream {stream}: compaction refused, writer {claimed.writer!r} holds partition {claimed.partition} at "
            f"epoch {claimed.epoch}; wait until it is released, or compact under a writer's name, which ends that one",
            stream=stream,
            partition=claimed.partition,
            partition_id=claimed.partition_id,
            owner=claimed.owner,
            writer=claimed.writer,
        )
    return found


def compact(  # noqa: PLR0913 - each is an option of the command
    stream: str,
    *,
    endpoint: str,
    secret: str | None = None,
    writer: str | None = None,
    keep_removed: float = KEEP_REMOVED_SECONDS,
    grace: float = GRACE_SECONDS,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> Compacted:
    """Leave the newest row of each key, and trim the rest after ``grace`` seconds.

    Values stay as they are, whoever writes meanwhile. Keys that were removed more than ``keep_removed`` seconds ago
    leave no row. A stream that a writer holds is refused, unless ``writer`` is given: then it is claimed under that
    name, which ends whoever holds it, and released at the end.
    """
    began = time.monotonic()
    for name, value in (("keep_removed", keep_removed), ("grace", grace)):
        if not (math.isfinite(value) and 0 <= value <= _SECONDS_MAX):
            raise InvalidError(f"{name} is {value}; it must be a number of seconds from 0 to {_SECONDS_MAX:.0f}")
    source = check_compact(stream, endpoint=endpoint, secret=secret, writer=writer)
    with _holding(source, writer) as held:
        staged = _staged(source, endpoint, secret, keep_removed, spark, progress)
        done = [_committed(source, held, one) for one in staged]
        trims = [one for one, became in zip(staged, done, strict=True) if became.outcome == "compacted"]
        if trims and grace:
            time.sleep(grace)
        for one in trims:
            held.trim(one.partition, one.end)
    return Compacted(stream, tuple(done), time.monotonic() - began)


@contextmanager
def _holding(source: Stream, writer: str | None) -> Iterator[_Held]:
    """The stream claimed under a name, or as the server has it."""
    if writer is None:
        yield _Held(0, (), source.trim)
        return
    with source.writer(writer) as held:
        ids = source._native.partition_id
        epochs = [(partition, ids(partition), epoch) for partition, epoch in sorted(held.epochs.items())]
        yield _Held(held.node_id, epochs, held.trim)


def _staged(  # noqa: PLR0913, PLR0917 - what the job was given
    source: Stream,
    endpoint: str,
    secret: str | None,
    keep_removed: float,
    spark: SparkSession | None,
    progress: Progress | None,
) -> list[_Staged]:
    """What tasks staged, by partition. Partitions without rows have nothing to stage."""
    offsets = source.offsets(source.barrier(timeout=30.0))
    work = [partition for partition, (start, end) in sorted(offsets.items()) if start < end]
    rows = {}
    if work:
        stage = partial(_stage_partitions, clients.absolute(endpoint), secret, source.path, work, keep_removed)
        spark = session(spark, f"laminar compact {source.path}")
        count = sum(end - start for start, end in offsets.values())
        with told(), watched(spark, progress, count):
            places = spark.range(0, len(work), 1, min(len(work), _TASKS_MAX))
            found = places.mapInArrow(stage, "partition int, told string, message binary").collect()
        rows = {row.partition: (json.loads(row.told), bytes(row.message)) for row in found}
    none = {"rows": 0, "bytes": 0, "removed_dropped": 0, "already_compact": True}
    staged = []
    for partition, (_, end) in sorted(offsets.items()):
        answer, message = rows.get(partition, ({**none, "end": end}, b""))
        staged.append(_Staged(partition, answer["end"], answer, message))
    return staged


def _stage_partitions(  # noqa: PLR0913, PLR0917 - Spark hands on what it was given
    endpoint: str,
    secret: str | None,
    stream: str,
    work: list[int],
    keep_removed: float,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """In an executor: stage the partitions whose places come in."""
    native = clients.worker(endpoint, secret=secret).stream(stream)._native
    for batch in batches:
        for place in batch.column(0).to_pylist():
            answer = native.compact(work[place], keep_removed)
            message = answer.pop("message")
            yield pa.RecordBatch.from_pydict(
                {
                    "partition": pa.array([work[place]], pa.int32()),
                    "told": pa.array([json.dumps(answer)], pa.string()),
                    "message": pa.array([message], pa.binary()),
                }
            )


def _committed(source: Stream, held: _Held, staged: _Staged) -> CompactedPartition:
    """Append what was staged of a partition."""
    if staged.told["already_compact"]:
        return staged.as_it_was("already compact")
    answer = source._native.commit_compacted(
        staged.partition, staged.message, staged.end, node_id=held.node_id, epochs=held.epochs
    )
    if not answer["committed"]:
        return staged.as_it_was("busy")
    return staged.became("compacted", answer["rows"], answer["bytes"])


__all__ = [
    "GRACE_SECONDS",
    "KEEP_REMOVED_SECONDS",
    "Compacted",
    "CompactedPartition",
    "Outcome",
    "check_compact",
    "compact",
]
