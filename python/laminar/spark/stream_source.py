"""Reading a stream as a streaming query.

Spark's offsets are ``{"partition": next offset}``, with the stream's id as ``"streamId"``: a stream that was dropped
and made again is another one, however long it is. Every vector of them is a cut: the end of all partitions at one
global index, so that a query never sees half of what was committed together, and limits hold but for one commit.

The reader lives in a process of the driver as long as the query does, and so does the node of a folder. It starts the
node again if the node was killed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from laminar.errors import InvalidError
from laminar.spark import bounds, schemas, splits
from laminar.spark.parsing import STREAM_ID
from laminar.spark.reading import RowReader
from laminar.spark.source import offered, open_stream
from laminar.spark.splits import Split

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from laminar.spark.options import SourceOptions
    from laminar.stream import Stream


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Finds cuts and plans splits on the driver, and reads splits in the executors."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        options.check_streaming()
        stream = open_stream(options.place)
        schemas.check_given(schema, offered(stream, options), stream.path)
        self._options = options
        self._rows = RowReader(options.place, stream.stream_id, schema, options.fail_on_data_loss)
        #: With Trigger.AvailableNow: nothing that came after this global index is read.
        self._until: int | None = None
        #: The ends of the last cut, if it left nothing out.
        self._latest: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Where a query begins that has no checkpoint: with ``latest`` if nothing is said, as Kafka's does."""
        stream = self._stream()
        options = self._options
        there = stream.offsets(stream.barrier(timeout=bounds.BARRIER_SECONDS))
        if options.starting_offsets is None and options.starting_time_ms is None:
            return self._told({partition: end for partition, (_, end) in there.items()})
        return self._told(bounds.begin(stream, options, there))

    def latestOffset(self, start: Mapping[str, int] | None, limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        """The furthest cut after ``start`` that the limit allows: whole commits, and at least one."""
        stream = self._stream()
        begin = self._read(start or {}, stream)
        rows_max, bytes_max = self._limits(limit)
        cut: dict[str, Any] = stream._native.cut(begin, rows_max=rows_max, bytes_max=bytes_max, at=self._until)
        if self._options.fail_on_data_loss:
            there = {partition: (first, cut["ends"][partition]) for partition, first in cut["starts"].items()}
            bounds.kept(stream, begin, there, fail=True)
        # A partition never goes back, and one that the cut does not know yet stays where it is.
        ends = self._told({**begin, **{one: max(end, begin.get(one, 0)) for one, end in cut["ends"].items()}})
        self._latest = ends if cut["complete"] else None
        return ends

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """What the options allow a micro-batch to have."""
        # Spark knows one limit at a time; if both are given, ``latestOffset`` keeps the other as well.
        if self._options.rows_per_trigger_max is not None:
            return ReadMaxRows(self._options.rows_per_trigger_max)
        if self._options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(self._options.bytes_per_trigger_max)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802 - Spark's name
        """Where the stream ends, for the progress of the query."""
        if self._latest is None:
            return self._told({partition: end for partition, (_, end) in self._stream().offsets().items()})
        return self._latest

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read no further than what is there now."""
        self._until = self._stream().barrier(timeout=bounds.BARRIER_SECONDS).global_index

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        """The splits between two offsets. Partitions that ``start`` does not name are new: they begin with 0."""
        stream = self._stream()
        begin, until = self._read(start, stream), self._read(end, stream)
        there = stream.offsets()
        for partition, offset in until.items():
            if partition not in there or offset > there[partition][1]:
                raise _not_this_stream(stream, partition, offset, there)
        begin = {partition: begin.get(partition, 0) for partition in until}
        kept = bounds.kept(stream, begin, there, fail=self._options.fail_on_data_loss)
        return splits.split(
            {partition: (kept[partition], until[partition]) for partition in until},
            min_partitions=self._options.min_partitions,
            rows_max=self._options.rows_per_split_max,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a split."""
        # Spark makes up a partition where there is none.
        return self._rows.read(partition) if isinstance(partition, Split) else iter(())

    def _stream(self) -> Stream:
        return open_stream(self._options.place)

    def _told(self, offsets: Mapping[int, int]) -> dict[str, int]:
        """Offsets as Spark writes them into its checkpoint."""
        told = {str(partition): offset for partition, offset in sorted(offsets.items())}
        return {**told, STREAM_ID: self._rows.stream_id}

    def _read(self, offsets: Mapping[str, int], stream: Stream) -> dict[int, int]:
        """Offsets as Spark found them in its checkpoint. Those of a release before name no stream."""
        found, now = offsets.get(STREAM_ID, self._rows.stream_id), stream.stream_id
        if found != now:
            raise InvalidError(
                f"stream {stream.path}: the checkpoint is of stream id {found} and this is {now}; the stream was "
                "dropped and made again, or the checkpoint is another query's: begin with a new checkpoint",
                stream=stream.path,
                value=found,
            )
        return {int(partition): offset for partition, offset in offsets.items() if partition != STREAM_ID}

    def _limits(self, limit: ReadLimit) -> tuple[int | None, int | None]:
        if isinstance(limit, ReadMaxRows | ReadMaxBytes):
            rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.bytes_per_trigger_max
            return rows_max, bytes_max
        return None, None


def _not_this_stream(stream: Stream, partition: int, offset: int, there: Mapping[int, tuple[int, int]]) -> InvalidError:
    ends = f"ends at {there[partition][1]}" if partition in there else "is not there"
    return InvalidError(
        f"stream {stream.path}, partition {partition}: the checkpoint says offset {offset}, and the partition {ends}; "
        "the stream was dropped and made again, or the checkpoint is another query's: begin with a new checkpoint",
        stream=stream.path,
        partition=partition,
        value=offset,
    )


__all__ = ["StreamReader"]
