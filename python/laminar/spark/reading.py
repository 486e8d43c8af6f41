"""What a task does: reads the rows of its split, as Arrow all the way.

Rows come from the node, and those that were staged straight from the object store. Small batches are put together,
because each costs a turn between Python and the JVM; large ones are cut, so that both work at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar.errors import CorruptionError, InvalidError
from laminar.spark import bounds, clients, schemas
from laminar.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from laminar.spark.options import Place
    from laminar.spark.splits import Split

_BATCH_ROWS_MAX = 65_536
_TOGETHER_ROWS_MIN = 8_192
_TOGETHER_BYTES_MIN = 1 << 20


@dataclass(frozen=True)
class RowReader:
    """Reads splits. It travels to the executors, so it holds no more than what names the rows."""

    place: Place
    stream_id: int
    schema: StructType
    fail_on_data_loss: bool

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The rows of a split, in the columns of the schema."""
        convert = schemas.converter(schemas.to_arrow(self.schema))
        for batch in _together(self._rows(split)):
            for begin in range(0, batch.num_rows, _BATCH_ROWS_MAX):
                yield convert(batch.slice(begin, _BATCH_ROWS_MAX))

    def _rows(self, split: Split) -> Iterator[pa.RecordBatch]:
        cluster = clients.worker(self.place.endpoint, secret=self.place.secret)
        stream = Stream(cluster, self.place.stream, self.stream_id)
        names = self.schema.fieldNames()
        position = split.start
        while position < split.end:
            try:
                for batch in self._range(stream, split.partition, position, split.end, names):
                    yield batch
                    position += batch.num_rows
            except (InvalidError, CorruptionError) as error:
                # Rows may have been removed since the read was planned. A block of theirs that was collected is not
                # found, which looks like corruption until one asks where the partition begins now.
                first = stream.offsets()[split.partition][0]
                if first <= position:
                    raise
                if self.fail_on_data_loss:
                    raise bounds.removed(stream, split.partition, position, first) from error
                position = first
                continue
            break

    def _range(
        self, stream: Stream, partition: int, start: int, end: int, names: list[str]
    ) -> Iterator[pa.RecordBatch]:
        with_metadata = any(name in schemas.METADATA.names for name in names)
        columns = [name for name in names if name not in schemas.METADATA.names]
        return iter(
            stream.read(
                partitions=[partition],
                start={partition: start},
                end={partition: end},
                # A read of no column would have no rows to count.
                columns=columns or stream.schema.names[:1],
                include_metadata=with_metadata,
            )
        )


def _together(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of one row each become batches of thousands."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _TOGETHER_ROWS_MIN or size >= _TOGETHER_BYTES_MIN:
            yield _one(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _one(waiting)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


__all__ = ["RowReader"]
