"""The ceilings of PySpark's own API: a writer that throws Arrow away, and a reader that makes it from nothing.

Whatever a Python data source does, it cannot be faster than these.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)

#: Rows of one Arrow batch, as many as Spark hands to a writer.
BATCH_ROWS = 10_000
PAYLOAD_BYTES = 100
SCHEMA = "id long, payload binary"


@dataclass
class Seen(WriterCommitMessage):
    """How many rows a task saw."""

    rows: int


def _drain(batches: Iterator[pa.RecordBatch]) -> Seen:
    return Seen(sum(batch.num_rows for batch in batches))


class DiscardingWriter(DataSourceArrowWriter):
    """Looks at every batch, keeps nothing."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Seen:
        return _drain(iterator)


class DiscardingStreamWriter(DataSourceStreamArrowWriter):
    """The same, a micro-batch at a time."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Seen:
        return _drain(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - the name is Spark's
        """Nothing is kept, so nothing is committed."""

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - the name is Spark's
        """Nothing was kept."""


class Part(InputPartition):
    """Rows ``first`` to ``end``."""

    def __init__(self, first: int, end: int) -> None:
        super().__init__((first, end))
        self.first, self.end = first, end


class MadeReader(DataSourceReader):
    """Rows that are nowhere: a counter, and the same random bytes in every batch."""

    def __init__(self, rows: int, parts: int) -> None:
        self._rows, self._parts = rows, parts

    def partitions(self) -> list[Part]:
        cuts = [self._rows * part // self._parts for part in range(self._parts + 1)]
        return [Part(first, end) for first, end in itertools.pairwise(cuts)]

    def read(self, partition: Part) -> Iterator[pa.RecordBatch]:
        made = random.Random(partition.first)  # noqa: S311 - bytes must not compress, not be secret
        counter = pa.array(range(BATCH_ROWS), pa.int64())
        payloads = pa.array([made.randbytes(PAYLOAD_BYTES) for _ in range(BATCH_ROWS)], pa.binary())
        for first in range(partition.first, partition.end, BATCH_ROWS):
            count = min(BATCH_ROWS, partition.end - first)
            yield pa.record_batch([pc.add(counter[:count], first), payloads[:count]], names=["id", "payload"])


class Ceiling(DataSource):
    """``format("ceiling")``: write to discard, read ``rows`` rows in ``parts`` parts."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> MadeReader:  # noqa: ARG002 - the schema is always the same
        return MadeReader(int(self.options["rows"]), int(self.options["parts"]))

    def writer(self, schema: Any, overwrite: bool) -> DiscardingWriter:  # noqa: ARG002, FBT001 - Spark's signature
        return DiscardingWriter()

    def streamWriter(self, schema: Any, overwrite: bool) -> DiscardingStreamWriter:  # noqa: ARG002, FBT001, N802
        return DiscardingStreamWriter()
