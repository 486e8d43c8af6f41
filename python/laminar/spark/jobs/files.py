"""Files as Spark reads them: which format, by which options, and with the columns of the stream that they go to.

Where Spark's defaults lose something silently, ours end the job. Values of CSV and JSON are read as text and cast by
``places.fitted``, which is strict: Spark's own readers round decimals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laminar.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    import laminar

SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".orc": "orc",
    ".avro": "avro",
    ".txt": "text",
}
#: By Spark's own defaults what cannot be read becomes null, columns of CSV go by their place whatever the header says,
#: and one file of many says which columns Parquet and ORC have.
FILE_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "csv": {"header": "true", "mode": "FAILFAST", "enforceSchema": "false"},
    "json": {"mode": "FAILFAST"},
    "parquet": {"mergeSchema": "true"},
    "orc": {"mergeSchema": "true"},
}
_TEXT = ("csv", "json")
#: Of these a column may be missing in a file: it is null there.
_BY_NAME = ("json", "parquet", "orc")
#: Who says how times are written has them read by Spark, which knows the patterns.
_PATTERNS = {"date": "dateformat", "timestamp": "timestampformat", "timestamp_ntz": "timestampntzformat"}
_DIGITS_MAX = 38
_KAFKA_COLUMNS = ("key", "value")


def guess_format(source: str, given: str | None) -> str:
    """The format that was given, or that the name of the source says, or those of the files in it."""
    if given is not None:
        return given
    path = Path(source.rstrip("*"))
    found = SUFFIXES.get(path.suffix.lower())
    if found is None and path.is_dir():
        kinds = {SUFFIXES.get(one.suffix.lower()) for one in path.rglob("*.*") if one.name[0] not in "._"}
        found = kinds.pop() if len(kinds) == 1 else None
    if found is None:
        known = ", ".join(sorted(set(SUFFIXES.values())))
        raise InvalidError(
            f"{source}: its name does not say what it is; give the format: {known}, kafka, or any of Spark's"
        )
    return found


@dataclass(frozen=True)
class Reader:
    """What Spark is told to read."""

    spark: SparkSession
    source: str
    kind: str
    options: Mapping[str, str]
    schema: str | None

    def sample(self, *, infer: bool) -> DataFrame:
        """What is there now, with the columns that it has. Types of CSV are guessed if ``infer`` is set."""
        reader = self.spark.read.format(self.kind).options(**self._asked())
        if self.schema is not None:
            reader = reader.schema(self.schema)
        elif self.kind == "csv" and infer:
            reader = reader.option("inferSchema", "true")
        return self._loaded(reader)

    def batch(self, sample: DataFrame, stream: laminar.Stream) -> DataFrame:
        """What is there now, as it goes to the stream."""
        if self.kind not in _TEXT or self.schema is not None:
            return sample
        return self._loaded(self.spark.read.format(self.kind).options(**self._asked()).schema(self._of(sample, stream)))

    def streaming(self, sample: DataFrame, stream: laminar.Stream) -> DataFrame:
        """What comes, as it goes to the stream. Files need to be told their columns, also those that come later."""
        reader = self.spark.readStream.format(self.kind).options(**self._asked())
        if self.kind in SUFFIXES.values():
            reader = reader.schema(self.schema or self._of(sample, stream, later=self.kind in _BY_NAME))
        return self._loaded(reader)

    def _asked(self) -> dict[str, str]:
        asked = {"subscribe": self.source, "startingOffsets": "earliest"} if self.kind == "kafka" else {}
        return {**FILE_DEFAULTS.get(self.kind, {}), **asked, **self.options}

    def _loaded(self, reader: Any) -> DataFrame:
        if self.kind == "kafka":
            return reader.load().select(*_KAFKA_COLUMNS)  # type: ignore[no-any-return]
        return reader.load(self.source)  # type: ignore[no-any-return]

    def _of(self, sample: DataFrame, stream: laminar.Stream, *, later: bool = False) -> StructType:
        """The columns of the sample, and those of the stream that may come ``later``. What is strange stays in it."""
        from pyspark.sql.types import StructField, StructType  # noqa: PLC0415 - PySpark is imported when a job runs

        from laminar.spark.schemas import to_spark  # noqa: PLC0415

        there = {field.name: field.dataType for field in to_spark(stream.schema, stream.path)}
        # Binary formats say themselves which types they have, and the sink says whether those go.
        found = {
            field.name: self._read_as(there[field.name])
            if self.kind in _TEXT and field.name in there
            else field.dataType
            for field in sample.schema
        }
        if later:
            missing = {name: kind for name, kind in there.items() if name not in found}
            found |= {name: self._read_as(kind) if self.kind in _TEXT else kind for name, kind in missing.items()}
        return StructType([StructField(name, kind) for name, kind in found.items()])

    def _read_as(self, kind: DataType) -> DataType:
        from pyspark.sql.types import StringType  # noqa: PLC0415

        given = {name.lower() for name in self.options}
        if kind.typeName() in ("array", "map", "struct"):
            return _wide(kind)
        return kind if _PATTERNS.get(kind.typeName()) in given else StringType()


def _wide(kind: DataType) -> DataType:
    """A type inside another that Spark reads without rounding: the sink refuses values that the stream cannot have."""
    from pyspark.sql import types  # noqa: PLC0415

    if isinstance(kind, types.ArrayType):
        return types.ArrayType(_wide(kind.elementType), kind.containsNull)
    if isinstance(kind, types.MapType):
        return types.MapType(_wide(kind.keyType), _wide(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, types.StructType):
        return types.StructType(
            [types.StructField(field.name, _wide(field.dataType), field.nullable) for field in kind]
        )
    if kind == types.DecimalType(20, 0):
        # As Spark has uint64, which is not reached from decimals with digits after the point.
        return types.LongType()
    if isinstance(kind, types.DecimalType):
        return types.DecimalType(_DIGITS_MAX, _DIGITS_MAX - (kind.precision - kind.scale))
    return kind


__all__ = ["FILE_DEFAULTS", "SUFFIXES", "Reader", "guess_format"]
