"""Reading a stream as a batch: one consistent cut of all its partitions, a split for each range of offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from laminar.spark import bounds, clients, schemas, splits
from laminar.spark.reading import RowReader
from laminar.spark.splits import Split

if TYPE_CHECKING:
    import pyarrow as pa

    from laminar.spark.options import Place, SourceOptions
    from laminar.stream import Stream


def open_stream(place: Place) -> Stream:
    """The stream, for processes of the driver."""
    cluster = clients.driver(place.endpoint, secret=place.secret, linger=place.node_linger)
    return clients.stream_of(cluster, place.stream)


def offered(stream: Stream, options: SourceOptions) -> StructType:
    """The columns that a read has."""
    columns = schemas.to_spark(stream.schema, stream.path, options.columns)
    return StructType([*columns, *schemas.METADATA]) if options.include_metadata else columns


class BatchReader(DataSourceReader):
    """Plans a batch read on the driver, and reads splits in the executors."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        options.check_batch()
        stream = open_stream(options.place)
        schemas.check_given(schema, offered(stream, options), stream.path)
        self._options = options
        self._rows = RowReader(options.place, stream.stream_id, schema, options.fail_on_data_loss)

    def partitions(self) -> Sequence[InputPartition]:
        """The splits; none if there is nothing to read."""
        return splits.split(
            self._ranges(open_stream(self._options.place)),
            min_partitions=self._options.min_partitions,
            rows_max=self._options.rows_per_split_max,
        )

    def _ranges(self, stream: Stream) -> dict[int, tuple[int, int]]:
        return bounds.of_batch(stream, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a split."""
        # Spark makes up a partition where there is none.
        return self._rows.read(partition) if isinstance(partition, Split) else iter(())


__all__ = ["BatchReader", "offered", "open_stream"]
