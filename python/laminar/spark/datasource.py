"""``format("laminar")``: what Spark asks for, and where it is.

Imports stand in the methods. Spark looks for data sources by importing them, also an older Spark for which this one is
not: then it says so when it is used, and leaves other data sources alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from laminar.spark.versions import check_pyspark

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

# ruff: noqa: PLC0415


class LaminarDataSource(DataSource):
    """Streams of laminar, to read and to write, in batches and as streaming queries."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "laminar"

    def schema(self) -> StructType:
        """The columns of the stream, where the user gave none."""
        check_pyspark()
        from laminar.spark import source
        from laminar.spark.options import SourceOptions

        options = SourceOptions.of(self.options)
        return source.offered(source.open_stream(options.place), options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads a batch."""
        check_pyspark()
        from laminar.spark import filters, source
        from laminar.spark.options import SourceOptions

        kind = filters.FilteringReader if filters.are_pushed() else source.BatchReader
        return kind(SourceOptions.of(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Reads as a streaming query."""
        check_pyspark()
        from laminar.spark.options import SourceOptions
        from laminar.spark.stream_source import StreamReader

        return StreamReader(SourceOptions.of(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        """Writes a batch."""
        check_pyspark()
        from laminar.spark.options import SinkOptions
        from laminar.spark.sink import BatchWriter

        return BatchWriter(SinkOptions.of(self.options), schema, overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's signature
    ) -> DataSourceStreamWriter:
        """Writes as a streaming query."""
        check_pyspark()
        from laminar.spark.options import SinkOptions
        from laminar.spark.stream_sink import StreamWriter

        return StreamWriter(SinkOptions.of(self.options), schema, overwrite)


__all__ = ["LaminarDataSource"]
